"""The command `tilewright`. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .root import run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


__all__ = ["main", "run"]
