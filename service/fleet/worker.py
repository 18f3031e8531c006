"""`tilewright worker`: this machine measures for a fleet until it is stopped.

python -m tilewright.service.fleet.worker ADDRESS        (started by `serve --fleet`)
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

from tilewright.schedules.errors import TilewrightError
from tilewright.service import timeouts
from tilewright.service.errors import ExitCode
from tilewright.service.fleet import processes
from tilewright.service.problems import problem_of

# Start-up: usage errors are reported before Dask is loaded.


def join(
    address: str,
    *,
    measurer: str = "local",
    target: str = "native",
    name: str = "",
    on_wait: Callable[[str], None] = lambda text: None,
    parent: int | None = None,
) -> int:
    """Describe this machine and join the fleet at `address`. Return the exit code.

    It ends at SIGTERM or SIGINT, or when the process `parent` ends. Another machine repeats a
    measurement in progress. Raise MeasurerError, TargetError or FleetError if it cannot join.
    """
    from tilewright.tuner.measure.fleet.address import parse_address
    from tilewright.tuner.measure.fleet.describe import describe

    where = parse_address(address)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    description = describe(measurer, target, name)
    with processes.machine(where, description):
        kind = f"{description.target.cpu} ({description.target.key[:12]})"
        joined = (
            f"{description.name} measures on {kind} for the fleet at {where}; Ctrl-C ends this."
        )
        missing = _missing(where)
        if missing:
            on_wait(f"{missing}; {description.name} waits for the scheduler. Ctrl-C ends the wait.")
        else:
            on_wait(joined)
        while not stop.wait(timeouts.FLEET_WORKER_POLL_SECS):
            if parent is not None and os.getppid() != parent:
                break
            if missing and not (missing := _missing(where)):
                on_wait(joined)
    return ExitCode.DONE


def _missing(address: str) -> str:
    """Return why this machine cannot join now, or "" if the scheduler listens."""
    from tilewright.tuner.measure.fleet.address import FleetError, check_listens

    try:
        check_listens(address, timeouts.SCHEDULER_ANSWER_SECS)
    except FleetError as error:
        return str(error)
    return ""


def main(arguments: list[str]) -> int:
    """Join the fleet at the given address until the parent process ends."""
    try:
        return join(arguments[0], parent=os.getppid())
    except TilewrightError as error:
        problem = problem_of(error)
        sys.stderr.write(f"tilewright worker: {problem.detail}\n")
        return problem.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
