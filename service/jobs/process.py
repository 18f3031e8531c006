"""Entry point of the worker process: `python -m tilewright.service.jobs.process PARENT`, with
settings on standard input, as JSON.

The process first requests that the kernel kills it when its parent dies, and then imports the
worker, which takes a third of a second. Otherwise, if the parent died during the import, an orphan
would hold the database's lock, and no service could start. Acknowledged results are in the
database.
"""

from __future__ import annotations

import sys

from tilewright.tuner.process.linux import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    from tilewright.service.jobs.worker import main

    sys.exit(main())
