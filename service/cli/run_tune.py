"""The command `tune`: a run with its progress, its end, and what Ctrl-C leaves behind."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import typer

from service import database
from service.answers.refusals import every_failed, rejected_words
from service.cli.options import Common, Machine
from service.cli.output import Output
from service.cli.progress import trial_reporter
from service.cli.render import tune_summary
from service.exit_codes import ExitCode
from service.resolve import targets, workloads
from service.resolve.spelling import Spelling
from tuner.process.control import Control

if TYPE_CHECKING:
    from service.jobs.tuning import TuneOptions

# Start-up: a command loads what it works with when it runs.


def tune_with_progress(
    spelling: Spelling, machine: Machine, common: Common, options: TuneOptions
) -> None:
    """Tune and print the report; exit code 1 if no candidate passed, 130 if interrupted.

    The first Ctrl-C or SIGTERM ends the search after the trial in flight: the best so far is
    confirmed, kept and printed, after SIGTERM only if that takes no longer than `TERM_SECS`. The
    second leaves at once.
    """
    from service.answers.publish import result_document
    from service.jobs import tuning
    from tuner.measure.choose import measured_target

    output = common.output()
    database.database_url(common.db)  # what will not do is told before the machine is looked at
    workload = workloads.read_workload(spelling)
    with output.busy("looking at this machine ..."):
        target = measured_target(machine.measurer, machine.target, machine.threads)
    again = spelled(spelling, machine, common)
    control = Control(_say_what_for)
    with database.session(common.db) as store, interruptible(output, again):
        with (
            polite_interrupts(control) as stop,
            trial_reporter(output, workloads.flops_of(workload), options.budget.trials) as on_event,
        ):
            report = tuning.tune_into(
                store, workload, target, options, on_event, stop.is_set, control=control
            )
        document = result_document(store, workload, target, report)
    mocked = targets.is_mocked(machine.measurer)
    output.result(document, tune_summary(document, again=again, mocked=mocked))
    if document.get("warning"):
        sys.stderr.write(f"tilewright: {document['warning']}\n")
    if stop.is_set():
        sys.stderr.write(_INTERRUPTED.format(again=again))
        raise typer.Exit(ExitCode.INTERRUPTED)
    if report.best is None:
        why = every_failed(rejected_words(document)) or "no candidate passed"
        output.remark(f"tilewright: {why}; nothing is stored as the best")
        raise typer.Exit(ExitCode.FAILED)


def spelled(spelling: Spelling, machine: Machine, common: Common) -> str:
    """The workload and what names its stored answer, as they would be typed again."""
    if spelling.expr is None:
        words = [spelling.workload or ""]
    else:
        words = ["--expr", spelling.expr]
        for tensor in spelling.tensor or []:
            words += ["--tensor", tensor]
        for axis in spelling.range or []:
            words += ["--range", axis]
    for name in spelling.constant or []:
        words += ["--constant", name]
    if spelling.allow_error is not None:
        words += ["--allow-error", repr(spelling.allow_error)]
    if machine.target != "native":
        words += ["--target", machine.target]
    if machine.threads is not None:
        words += ["--threads", str(machine.threads)]
    if common.db is not None:
        words += ["--db", common.db]
    return shlex.join(words)


_INTERRUPTED = (
    "tilewright: interrupted; every trial that was reported is stored.\n"
    "  The same command goes on from there: tilewright tune {again} ...\n"
)


TERM_SECS = 8.0
"""How long a run may go on after SIGTERM: those who send it send SIGKILL ten seconds later."""


def _say_what_for(text: str) -> None:
    """Tell what the run waits for."""
    if text:
        sys.stderr.write(f"tilewright: {text}\n")
        sys.stderr.flush()


@contextmanager
def polite_interrupts(control: Control) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second is a KeyboardInterrupt. After
    SIGTERM the run is aborted when `TERM_SECS` are over."""
    stop, over = threading.Event(), threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread hears of signals
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        sys.stderr.write(
            "\ntilewright: stopping; the best so far is checked (Ctrl-C again leaves at once)\n"
        )
        if number == signal.SIGTERM:
            threading.Thread(target=abort_when_late, daemon=True).start()

    def abort_when_late() -> None:
        late = not over.wait(TERM_SECS)
        while late and not over.wait(0.2):
            control.abort()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_interrupt) for number in numbers}
    try:
        yield stop
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible(output: Output, again: str) -> Iterator[None]:
    """Turn Ctrl-C into exit code 130 with a word on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\n" + _INTERRUPTED.format(again=again))
        if output.as_json:
            output.print_json(
                {"error": {"code": "interrupted", "message": "interrupted; trials are stored",
                           "pointer": "", "advice": "run the same command again",
                           "exit_code": int(ExitCode.INTERRUPTED)}}
            )  # fmt: skip
        raise typer.Exit(ExitCode.INTERRUPTED) from None
