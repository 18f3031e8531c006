"""Starting a process that runs one of our modules, and its last words on standard error.

`python -m` searches the current folder before installed packages, so a file `random.py` there would
be imported. `-P` leaves that folder out.
"""

from __future__ import annotations

import os
import sys
from typing import IO


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs an installed `module` in a Python like this one."""
    return [sys.executable, "-P", "-m", module, *arguments]


def tail(file: IO[bytes], size_bytes: int = 4096) -> str:
    """The end of a process's standard error."""
    end = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size_bytes, max(0, end - size_bytes)).decode(errors="replace")
