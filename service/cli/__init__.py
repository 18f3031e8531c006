"""The command `tilewright`. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from tilewright.service.cli.fast_path import HOMES
from tilewright.service.cli.root import run

OBJECTS_BEFORE_A_LOOK = 100_000
"""How many objects a quick command makes before the collector looks for cycles: with the 700 that
Python begins with, what is imported is looked through again and again, and none of it is garbage.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`): nobody wants the words
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for good
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in HOMES:  # the process ends with it
        gc.set_threshold(OBJECTS_BEFORE_A_LOOK)
    sys.exit(run(words))


__all__ = ["main", "run"]
