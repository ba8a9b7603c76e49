"""Samplers: where responses are drawn from."""
