"""On the path of every process of a test: whoever tries to reach another machine is written down in NETWORK_GUARD."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

HOME = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0", "", None, socket.gethostname()})


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # a path: a socket of this machine
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if (host.decode() if isinstance(host, bytes) else host) not in HOME:
        with open(os.environ["NETWORK_GUARD"], "a") as out:
            out.write(f"{event} {host} {sys.argv}\n")


if "NETWORK_GUARD" in os.environ:
    sys.addaudithook(_watch)
