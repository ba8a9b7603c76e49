"""``ninefold`` over the pipeline of counting stages: ``python counting_cli.py CONTROL run CONFIG ...``."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from counting import HERE, ROOT, patches

from flows import start
from flows.cli import main

if __name__ == "__main__":
    control, *arguments = sys.argv[1:]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(HERE)])
    with ExitStack() as stack:
        for patch in [*patches(Path(control)), mock.patch.object(start, "PRELOAD", ())]:
            stack.enter_context(patch)
        main(arguments)
