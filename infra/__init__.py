"""Adapters to the outside: artifact store, launchers, samplers, engines, sandbox, tracking."""
