"""The command `tune`: a run with its progress, its end, and what Ctrl-C leaves behind."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from service.exit_codes import ExitCode
from service.render import tune_summary

from .options import Common, Machine, WorkloadSpelling
from .output import Output
from .progress import trial_reporter


def tune(
    spelling: WorkloadSpelling,
    machine: Machine,
    common: Common,
    *,
    trials: int,
    seconds: float | None,
    strategy: str,
    fresh: bool,
) -> None:
    """Tune and print the report; exit code 1 if no candidate passed, 130 if interrupted."""
    from service import database, runs, wiring
    from service.publishing import result_document

    output = common.output()
    workload = wiring.read_workload(spelling)
    with output.busy("looking at this machine ..."):
        target = wiring.read_target(
            machine.target, machine.threads, probe=machine.measurer == runs.REAL
        )
    options = runs.TuneOptions(
        trials=trials,
        seconds=seconds,
        strategy=strategy,
        seed=machine.seed,
        measurer=machine.measurer,
        fresh=fresh,
    )
    again = spelled(spelling, machine, common)
    with (
        database.session(common.db) as store,
        interruptible(output, again),
        trial_reporter(output, wiring.flops_of(workload), trials) as on_event,
    ):
        report = runs.run_tuning(store, workload, target, options, on_event)
        document = result_document(store, workload, target, report)
    output.result(document, tune_summary(document, again=again))
    if document.get("warning"):
        sys.stderr.write(f"tilewright: {document['warning']}\n")
    if report.best is None:
        output.remark("tilewright: no candidate passed; nothing is stored as the best")
        raise typer.Exit(ExitCode.FAILED)


def spelled(spelling: WorkloadSpelling, machine: Machine, common: Common) -> str:
    """The workload and what names its stored answer, as they would be typed again."""
    if spelling.expr is None:
        words = [spelling.workload or ""]
    else:
        words = ["--expr", spelling.expr]
        for tensor in spelling.tensor or []:
            words += ["--tensor", tensor]
        for axis in spelling.range or []:
            words += ["--range", axis]
    if machine.target != "native":
        words += ["--target", machine.target]
    if machine.threads is not None:
        words += ["--threads", str(machine.threads)]
    if common.db is not None:
        words += ["--db", common.db]
    return shlex.join(words)


@contextmanager
def interruptible(output: Output, again: str) -> Iterator[None]:
    """Turn Ctrl-C into exit code 130 with a word on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(
            "\ntilewright: interrupted; every trial that was reported is stored.\n"
            f"  The same command goes on from there: tilewright tune {again} ...\n"
        )
        if output.as_json:
            output.print_json(
                {"error": {"code": "interrupted", "message": "interrupted; trials are stored",
                           "pointer": "", "advice": "run the same command again",
                           "exit_code": int(ExitCode.INTERRUPTED)}}
            )  # fmt: skip
        raise typer.Exit(ExitCode.INTERRUPTED) from None
