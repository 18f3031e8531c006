"""How a process of ours is started, with the modules that are installed, wherever it is called; and
what it said last.

`python -m` puts the folder it is called in before everything that is installed: a project with a
folder `db`, or a file `random.py`, would be imported in place of ours. `-P` leaves that folder out.
"""

from __future__ import annotations

import os
import sys
from typing import IO


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs an installed `module` in a Python like this one."""
    return [sys.executable, "-P", "-m", module, *arguments]


def tail(file: IO[bytes], size_bytes: int = 4096) -> str:
    """The end of what a process wrote to its standard error."""
    end = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size_bytes, max(0, end - size_bytes)).decode(errors="replace")
