"""The environment of Prefect and MLflow: no telemetry, no call outside, no chatter. To be set before their import."""

from __future__ import annotations

import os

from infra.store.local import Store
from infra.tracking.connect import QUIET

PREFECT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # Our own lines say what failed and why; Prefect would say it again, three times over.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
}


def set_environment(store: Store) -> None:
    """Whatever the user has set stays. Prefect's home is in the store, unless the user has another or a server."""
    for name, value in {**QUIET, **PREFECT}.items():
        os.environ.setdefault(name, value)
    if "PREFECT_API_URL" not in os.environ:
        os.environ.setdefault("PREFECT_HOME", str((store.root / ".prefect").resolve()))
