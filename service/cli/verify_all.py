"""The command `verify --all`: its progress, its table, and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from tilewright.service.cli.options import Common, MachineOptions
from tilewright.service.errors import ExitCode
from tilewright.service.resolve import targets
from tilewright.service.units import duration

if TYPE_CHECKING:
    from tilewright.schedules.target import Target
    from tilewright.service.answers.unverified import CheckedTask

# Start-up: a command loads what it needs when it runs.


def verify_everything(machine: MachineOptions, common: Common) -> None:
    """Verify all unverified records of the named machine. The exit code is 6 if one failed."""
    from tilewright.service.answers.unverified import check_task, find_unverified

    output = common.output()
    works = find_unverified(common.db, _fitting(machine))
    done = []
    for number, work in enumerate(works, start=1):
        output.remark(f"[{number}/{len(works)}] {work.name} on {work.target.cpu} ...")
        done.append(check_task(common.db, work, machine.seed))
        output.remark(f"  {done[-1].outcome}")
    failed = sum(not one.passed for one in done)
    document = {
        "verified": len(done) - failed,
        "failed": failed,
        "works": [one.to_json() for one in done],
    }
    output.result(document, lambda: _table(done))
    if failed:
        output.remark(f"tilewright: {failed} of {len(done)} failed; `tilewright tune` finds others")
        raise typer.Exit(ExitCode.VERIFICATION)


def _fitting(machine: MachineOptions) -> Callable[[Target], bool]:
    """Return a predicate for targets: the named machine with the requested number of threads, or
    with any number if none is requested."""
    named = targets.read_target(machine.target, machine.threads, probe=False)
    threads = machine.threads
    wanted = range(1, named.cores + 1) if threads is None else (threads,)

    def fits(target: Target) -> bool:
        here = target.threads in wanted
        return here and target.key == named.with_threads(target.threads).key

    return fits


def _table(done: list[CheckedTask]) -> Any:
    from rich.text import Text

    from tilewright.service.cli.render import grid

    if not done:
        return Text("there are no unverified records of this machine")
    rows = []
    for one in done:
        check = one.checks[-1] if one.checks else None
        secs = check.result.run_secs_estimate if check is not None else None
        threads = str(one.waiting.target.threads)
        rows.append([one.waiting.name, one.outcome, threads, duration(secs) if secs else ""])
    return grid(["workload", "", "threads", "time"], rows, words=2)
