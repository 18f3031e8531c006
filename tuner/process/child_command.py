"""The command that starts a module of this project as a child process.

`python -m` would search the current folder before installed packages and import, for example, a
file `random.py` there. `-P` excludes that folder.
"""

from __future__ import annotations

import os
import sys
from typing import IO


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs an installed `module` with this Python interpreter."""
    return [sys.executable, "-P", "-m", module, *arguments]


def tail(file: IO[bytes], size_bytes: int = 4096) -> str:
    """Return the end of `file`, which contains the standard error of a process."""
    end = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size_bytes, max(0, end - size_bytes)).decode(errors="replace")
