"""How a process of ours is started: with the modules that are installed, wherever it is called.

`python -m` puts the folder it is called in before everything that is installed: a project with a
folder `db`, or a file `random.py`, would be imported in place of ours. `-P` leaves that folder out.
"""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs an installed `module` in a Python like this one."""
    return [sys.executable, "-P", "-m", module, *arguments]
