"""The command `tilewright`. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from service.cli.root import run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`): nobody wants the words
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for good
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


__all__ = ["main", "run"]
