"""The command `tune` for several workloads: a list in a file, or several spellings."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.schedules.workload.workload import Workload
from tilewright.service import database
from tilewright.service.cli.many_list import spelled_list
from tilewright.service.cli.many_progress import Tasks, many_reporter
from tilewright.service.cli.option_groups import Common, MachineOptions
from tilewright.service.cli.output import Exit
from tilewright.service.cli.render import many_summary
from tilewright.service.cli.run_tune import (
    INTERRUPTED,
    PROBING,
    check_options,
    interrupt_events,
    interruptible,
    machine_arguments,
    print_wait,
)
from tilewright.service.errors import ExitCode, InvalidField
from tilewright.service.jobs.options import TuneOptions
from tilewright.service.resolve import targets
from tilewright.service.resolve.entries import read_entries
from tilewright.service.resolve.spelling import WorkloadSpelling
from tilewright.service.resolve.workloads import read_workload, workload_of
from tilewright.service.training import start_training
from tilewright.tuner.many.entries import ManyEntry, ManyError, distinct_tasks
from tilewright.tuner.process.control import Activity, Control
from tilewright.tuner.process.linux import process_age_secs

# Start-up: a command loads what it needs when it runs.


@dataclass(frozen=True, slots=True)
class Listed:
    """The workloads of a command, and the arguments that name them."""

    entries: Sequence[ManyEntry]
    words: Sequence[str]


def listed(spelling: WorkloadSpelling, more: Sequence[str], file: str | None) -> Listed:
    """Return the workloads in `file`, or those spelled on the command line. Raise UsageProblem,
    ManyError or InvalidField for invalid ones."""
    found = spelled_list(spelling, more, file)
    if file is None:
        return Listed(read_entries(found, _read), found)
    try:
        return Listed(read_entries(found, _read), ["--many", file])
    except ManyError as error:
        raise InvalidField(
            f"{file}: {error}", code=error.code, pointer=error.pointer, advice=error.advice
        ) from error


def _read(spelled: Any) -> Workload:
    if isinstance(spelled, str):
        return read_workload(WorkloadSpelling(spelled))
    return workload_of(spelled)


def tune_many_with_progress(
    found: Listed, machine: MachineOptions, common: Common, options: TuneOptions
) -> None:
    """Tune and print the report; exit code 1 unless every task has a best, 130 if interrupted.

    Ctrl-C and SIGTERM work as in `run_tune.tune_with_progress`; the bests of all open tasks are
    checked as far as the time suffices.
    """
    from tilewright.service.jobs import tuning
    from tilewright.tuner.measure.measurer_spec import measured_target

    output = common.output()
    check_options(machine, common)
    tasks = distinct_tasks(found.entries)
    again = shlex.join([*found.words, *machine_arguments(machine, common)])
    with interruptible(output, again), many_reporter(output, Tasks.of(tasks)) as reporter:
        started = time.monotonic() - process_age_secs()
        control = Control(print_wait, on_activity=reporter.on_activity, started=started)
        control.allow(options.budget.seconds)
        with interrupt_events(control) as stop, database.session(common.db) as store:
            control.doing(PROBING)
            target = measured_target(machine.measurer, machine.target, machine.threads, control)
            report = tuning.tune_many_into(
                store, found.entries, target, options, reporter.on_event, stop.is_set,
                control=control,
            )  # fmt: skip
            control.doing(Activity("publishing", "building the files of the bests"))
            document = tuning.many_document(store, found.entries, target, report, control)
            if not targets.is_mocked(machine.measurer):
                start_training(store, target.key)
    mocked = targets.is_mocked(machine.measurer)
    output.result(document, many_summary(document, mocked=mocked))
    warned: dict[str, list[str]] = {}
    for task in document["tasks"]:
        if task.get("warning"):
            warned.setdefault(task["warning"], []).append(task["name"])
    for warning, (first, *others) in warned.items():
        more = f" and {len(others)} more" if others else ""
        sys.stderr.write(f"tilewright: {first}{more}: {warning}\n")
    for task in document["tasks"]:
        if task["error"]:
            output.remark(f"tilewright: {task['name']}: {task['error']['message']}")
    if stop.is_set():
        sys.stderr.write(INTERRUPTED.format(again=again))
        raise Exit(ExitCode.INTERRUPTED)
    if not report.complete:
        raise Exit(ExitCode.FAILED)
