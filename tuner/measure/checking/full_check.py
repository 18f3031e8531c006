"""The full check of one candidate, built twice in new processes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tilewright.schedules.record import MeasureResult, MeasureStatus

from ... import timeouts
from ...compiling.pool import Compiled
from ...process.control import Activity
from ..protocol import MeasureRequest
from .limits import CONFIRM_SECS, full_check_secs, most_full_check_secs
from .objects import MeasuredObjects, sha256
from .processes import Processes
from .requests import checked_in_full, full_check_calls


def check_in_full(
    processes: Processes, objects: MeasuredObjects, request: MeasureRequest
) -> MeasureResult:
    """Build twice in new processes, compare the object files with the measured one, and check in
    full (`requests.checked_in_full`)."""
    what = f"the full check of trial {request.trial}"
    control, runner = processes.control, processes.runner
    processes.doing(Activity("full check", f"building twice in new processes for {what}"))
    document = processes.document_of(request.trace)
    first, second = processes.pool.fresh(document, builds=2, look=control.check)
    control.check()
    for built in (first, second):
        if built.status is not MeasureStatus.OK:
            return MeasureResult(built.status, compile_secs=built.secs, detail=built.detail)
    measured = objects.sha256(request.trace) or sha256(first.object_bytes)
    if not measured == sha256(first.object_bytes) == sha256(second.object_bytes):
        return MeasureResult(
            MeasureStatus.WRONG_RESULT,
            compile_secs=first.secs,
            detail="two builds of one trace gave different object files",
        )
    processes.until_open()
    _submit(processes, first, request)
    try:
        return processes.result(first, _answer(processes, what))
    finally:
        if runner.busy:  # a check is still running, and its result is not needed
            runner.close()


def predicted_secs(processes: Processes, result: MeasureResult) -> float:
    """Return the predicted seconds of `check_in_full` for a candidate with this result: two builds
    in new processes, and the check."""
    runner = processes.runner
    most_secs = float(runner.document.get("check_secs", timeouts.REFERENCE_SECS))
    builds_secs = processes.pool.start_secs + result.compile_secs
    check_secs = full_check_secs(result, processes.limits.target, runner.opening, most_secs)
    return builds_secs + check_secs


def _submit(processes: Processes, built: Compiled, request: MeasureRequest) -> None:
    job = checked_in_full(processes.job(built, request.trace)) | {
        "incumbent_secs": None,
        "final_secs": max(CONFIRM_SECS, processes.final_secs),
    }
    deadline_secs = full_check_calls(job) * processes.limits.deadline_secs(built.threads)
    processes.runner.submit(job, built.object_bytes, deadline_secs, op="check")


def _answer(processes: Processes, what: str) -> dict[str, Any]:
    """Return the answer of the full check that is running.

    The machine's lock is held from the first case on. It is released between two cases if another
    run needs it.
    """
    control, runner = processes.control, processes.runner
    start = control.clock()
    predicted = predicted_secs(processes, processes.limits.usual_result())
    most_secs = most_full_check_secs(predicted)
    held, holds = ExitStack(), False

    def on_note(note: dict[str, Any]) -> None:
        nonlocal holds
        processes.doing(Activity("full check", what, note["case"], note["of"], predicted))
        control.check()
        if control.is_wanted():
            held.close()
            holds = False
            with runner.in_background():
                control.pause()
        if not holds:
            held.enter_context(processes.machine())
            holds = True

    processes.doing(Activity("full check", what, predicted_secs=predicted))
    runner.on_note = on_note
    with held:
        return processes.answer(lambda: processes.end_late(start, most_secs))
