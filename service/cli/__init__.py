"""The command `tilewright`. Commands import heavy libraries only when they need them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from tilewright.service.cli.root import run

GC_THRESHOLD = 100_000
"""Allocations before the garbage collector runs. With Python's default of 700 it would repeatedly
scan the imported modules, which are never garbage: 8 % of the CPU time of the start of `tune`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`)
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for good
    words = sys.argv[1:] if arguments is None else list(arguments)
    gc.set_threshold(GC_THRESHOLD)
    try:
        sys.exit(run(words))
    finally:
        # At its end, Python searches all objects for garbage several times: a third of a second
        # after `tune`. Frozen objects are left to the end of the process.
        gc.freeze()


__all__ = ["main", "run"]
