"""The full check of one candidate, built twice in new processes."""

from __future__ import annotations

from tilewright.schedules.record import MeasureResult, MeasureStatus

from ... import timeouts
from ...compiling.pool import Compiled
from ...process.control import Activity
from ..protocol import MeasureRequest
from .limits import CONFIRM_SECS, full_check_secs
from .objects import MeasuredObjects, sha256
from .processes import Processes
from .requests import checked_in_full, full_check_calls
from .running_check import RunningCheck


def begin_full_check(
    processes: Processes, objects: MeasuredObjects, request: MeasureRequest
) -> RunningCheck | MeasureResult:
    """Build twice in new processes, compare the object files with the measured one, and submit the
    full check (`requests.checked_in_full`). Return the result of a candidate that fails before."""
    what = f"the full check of trial {request.trial}"
    control = processes.control
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
    predicted = predicted_secs(processes, processes.limits.usual_result())
    return RunningCheck(processes, first, what, predicted)


def predicted_secs(processes: Processes, result: MeasureResult) -> float:
    """Return the predicted seconds of a full check of a candidate with this result: two builds
    in new processes, and the check."""
    runner = processes.runner
    most_secs = float(runner.document.get("check_secs", timeouts.REFERENCE_SECS))
    check_secs = full_check_secs(result, processes.limits.target, runner.opening, most_secs)
    return result.compile_secs + check_secs


def _submit(processes: Processes, built: Compiled, request: MeasureRequest) -> None:
    job = checked_in_full(processes.job(built, request.trace)) | {
        "incumbent_secs": None,
        "final_secs": max(CONFIRM_SECS, processes.final_secs),
    }
    deadline_secs = full_check_calls(job) * processes.limits.deadline_secs(built.threads)
    processes.runner.submit(job, built.object_bytes, deadline_secs, op="check")
