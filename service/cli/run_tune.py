"""The command `tune`: the run, its progress, and its end, also after Ctrl-C."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service import database, timeouts
from tilewright.service.answers.failed_checks import all_failed_message, rejection_reasons
from tilewright.service.cli.option_groups import Common, MachineOptions
from tilewright.service.cli.output import Exit, Output
from tilewright.service.cli.progress import trial_reporter
from tilewright.service.errors import ExitCode
from tilewright.service.jobs.options import REAL, TuneOptions
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.spelling import WorkloadSpelling
from tilewright.service.training import start_training
from tilewright.tuner.process.control import Activity, Control, MeasurementAborted, OutOfTime
from tilewright.tuner.process.linux import process_age_secs

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tilewright.tuner.compiling.pool import CompilePool

# Start-up: a command loads what it needs when it runs.


def tune_with_progress(
    spelling: WorkloadSpelling, machine: MachineOptions, common: Common, options: TuneOptions
) -> None:
    """Tune and print the report. The exit code is 1 if no candidate passed, 130 if interrupted.

    The first Ctrl-C or SIGTERM ends the search after the current trial. The incumbent is verified,
    stored and printed, if that takes at most `INTERRUPTED_TUNE_SECS`. The second one exits
    immediately.
    """
    output = common.output()
    described = check_options(machine, common)
    workload = workloads.read_workload(spelling)
    again = command_arguments(spelling, machine, common)
    with (
        interruptible(output, again),
        trial_reporter(output, workloads.flops_of(workload), options.budget.trials) as reporter,
        compile_workers(machine.measurer, described) as pool,
    ):
        from tilewright.service.answers.publish import BuildAhead
        from tilewright.service.jobs import tuning
        from tilewright.tuner.measure.measurer_spec import measured_target

        started = time.monotonic() - process_age_secs()
        control = Control(print_wait, on_activity=reporter.on_activity, started=started)
        control.allow(options.budget.seconds)
        with interrupt_events(control) as stop, database.session(common.db) as store:
            control.doing(PROBING)
            target = measured_target(machine.measurer, machine.target, machine.threads, control)
            _describe(workload, output)
            with BuildAhead(workload, target) as publish:
                report = tuning.tune_into(
                    store, workload, target, options, reporter.on_event, stop.is_set,
                    control=control, pool=pool, beside_check=publish.begin,
                )  # fmt: skip
                control.doing(Activity("publishing", "building the files of the best"))
                document = tuning.whole_document(store, workload, target, report, control, publish)
            if not targets.is_mocked(machine.measurer):
                start_training(store, target.key)
    mocked = targets.is_mocked(machine.measurer)
    output.result(document, lambda: _summary(document, again=again, mocked=mocked))
    if document.get("warning"):
        sys.stderr.write(f"tilewright: {document['warning']}\n")
    if stop.is_set():
        sys.stderr.write(INTERRUPTED.format(again=again))
        raise Exit(ExitCode.INTERRUPTED)
    if report.best is None:
        if report.out_of_time is None:
            why = all_failed_message(rejection_reasons(document)) or "no candidate passed"
            output.remark(f"tilewright: {why}; nothing is stored as the best")
        raise Exit(ExitCode.FAILED)


def _summary(document: dict[str, Any], *, again: str, mocked: bool) -> RenderableType:
    from tilewright.service.cli.render import tune_summary  # Start-up: it loads rich

    return tune_summary(document, again=again, mocked=mocked)


def check_options(machine: MachineOptions, common: Common) -> Target | None:
    """Return the target without probes, or None if a fleet measures. Raise the errors of usage,
    which are reported before the machine is probed."""
    database.database_url(common.db)
    targets.check_measurer(machine.measurer)
    if targets.fleet_of(machine.measurer):
        return None
    return targets.read_target(machine.target, machine.threads, probe=False)


@contextmanager
def compile_workers(measurer: str, target: Target | None) -> Iterator[CompilePool | None]:
    """Yield the compile workers of the local measurer, which start while this process loads its
    modules; None for other measurers."""
    if measurer != REAL or target is None:
        yield None
        return
    from tilewright.tuner.measure.compile_workers import compile_pool

    with compile_pool(target.threads) as pool:
        yield pool


def _describe(workload: Workload, output: Output) -> None:
    """Print what the workload computes, before the run, and a hint on an option that would reduce
    the work."""
    from tilewright.tuner.machine.least_work import saved_by_allowing_error

    for line in workloads.computed_lines(workload):
        output.remark(line)
    saved = saved_by_allowing_error(workload)
    if saved >= WORTH_A_HINT:
        output.remark(
            f"hint: --allow-error 1e-6 would reduce the work {saved:.0f}x: sums of products of"
            " three or more factors can then be computed in steps, with other rounding"
        )


def command_arguments(spelling: WorkloadSpelling, machine: MachineOptions, common: Common) -> str:
    """Return the arguments that select the same workload, target, threads and database, quoted for
    a shell."""
    words = [spelling.workload or ""] if spelling.expr is None else ["--expr", spelling.expr]
    for tensor in spelling.tensor or []:
        words += ["--tensor", tensor]
    for axis in spelling.range or []:
        words += ["--range", axis]
    for name in spelling.constant or []:
        words += ["--constant", name]
    if spelling.allow_error is not None:
        words += ["--allow-error", repr(spelling.allow_error)]
    return shlex.join(words + machine_arguments(machine, common))


def machine_arguments(machine: MachineOptions, common: Common) -> list[str]:
    """Return the arguments that select the same target, threads and database."""
    words = []
    if machine.target != "native":
        words += ["--target", machine.target]
    if machine.threads is not None:
        words += ["--threads", str(machine.threads)]
    if common.db is not None:
        words += ["--db", common.db]
    return words


INTERRUPTED = (
    "tilewright: interrupted; every trial that was reported is stored.\n"
    "  The same command continues from there: tilewright tune {again} ...\n"
)


PROBING = Activity("starting", "probing this machine")

WORTH_A_HINT = 1.5
"""If an allowed error reduces the work by this factor or more, a hint is printed."""


_NOTHING_DONE = frozenset({"starting", "reference", "full check"})


def print_wait(text: str) -> None:
    if text:
        sys.stderr.write(f"tilewright: {text}\n")
        sys.stderr.flush()


@contextmanager
def interrupt_events(control: Control) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets. A second one raises KeyboardInterrupt.

    The run is aborted `INTERRUPTED_TUNE_SECS` after the first signal. It is already aborted after
    `INTERRUPTED_STEP_SECS` if it is still in the phase in which the signal arrived and this phase
    stores no result (`_NOTHING_DONE`).
    """
    stop, over = threading.Event(), threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread receives signals
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        sys.stderr.write(
            "\ntilewright: stopping; the best so far is checked (Ctrl-C again exits immediately)\n"
        )
        threading.Thread(target=abort_when_late, daemon=True).start()

    def abort_when_late() -> None:
        found = control.activity
        late = not over.wait(timeouts.INTERRUPTED_STEP_SECS)
        if late and not (found.phase in _NOTHING_DONE and control.activity.text == found.text):
            late = not over.wait(timeouts.INTERRUPTED_TUNE_SECS - timeouts.INTERRUPTED_STEP_SECS)
        while late:
            control.abort()
            late = not over.wait(0.2)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_interrupt) for number in numbers}
    try:
        yield stop
    except MeasurementAborted as aborted:
        if stop.is_set() and not isinstance(aborted, OutOfTime):
            raise KeyboardInterrupt from None
        raise
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible(output: Output, again: str) -> Iterator[None]:
    """Convert Ctrl-C into exit code 130 and a hint on how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\n" + INTERRUPTED.format(again=again))
        if output.as_json:
            output.print_json(
                {"error": {"code": "interrupted", "message": "interrupted; trials are stored",
                           "pointer": "", "advice": "run the same command again",
                           "exit_code": int(ExitCode.INTERRUPTED)}}
            )  # fmt: skip
        raise Exit(ExitCode.INTERRUPTED) from None
