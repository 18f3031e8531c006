"""Entry point of the worker process, which first ties its life to its parent's.


    python -m tilewright.service.jobs.process PARENT        (settings on standard input, as JSON)

Importing the worker takes a third of a second. If the parent died meanwhile, an orphan would hold
the database's lock, and no service could start: so the kernel kills this process with its parent
from the beginning. Nothing is lost: what was acknowledged is in the database.
"""

from __future__ import annotations

import sys

from tilewright.tuner.process.linux import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    from tilewright.service.jobs.worker import main

    sys.exit(main())
