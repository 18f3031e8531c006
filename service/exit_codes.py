"""What the command's exit code tells a script. The numbers are a promise."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `tilewright`; `docs/cli.md` explains each."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_ANSWER = 3
    DATABASE = 4
    UNREACHABLE = 5
    VERIFICATION = 6
    INTERRUPTED = 130
