"""``python -m flows.cli`` is ``ninefold``."""

from flows.cli import main

main()
