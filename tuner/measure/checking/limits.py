"""Limits of memory and time of measuring, and the predicted time of a full check."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import psutil

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ... import timeouts
from ...machine.bound import Bound
from ...machine.roofline import bound_for
from ...process.control import Control
from .requests import full_check_calls

_DEADLINE_RATIO = 10  # a candidate is stopped if it is slower than the incumbent by this factor
_IMPLAUSIBLE_RATIO = 8.0
"""If a checked kernel is faster than its operations allow by this factor, the clock was wrong.
Clock drift, busy probes and costs that a bound ignores cause smaller errors. A kernel that is
faster by a smaller factor proves the bound wrong (`session/roofline_bound.py`)."""

CONFIRM_SECS = 0.15  # of timing: three times as long as the timing of a finalist
# fraction of the reserve that a candidate may use if it runs when the reserve begins
_OVERRUN_SHARE = 0.25
_QUICK_CHECKS_PER_CALL = 1.5  # time of a call in a full check / time of a quick check
_CALLS_AT_BOUND = 20.0  # predicted time of an unknown kernel's quick check / bound
_PROCESS_BYTES = 64 << 20  # of a runner, with NumPy
_MAX_OVER_PREDICTED = 10.0
"""In a run without a time budget, a full check ends after this many times its predicted time, but
not before `timeouts.MAX_FULL_CHECK_SECS`."""


@dataclass(slots=True)
class TimeLimits:
    """The time limits of one workload's candidates. They depend on the results so far.

    `run_deadline_secs` and `bound_secs` replace the values that are derived from the bound of the
    workload if they are not None.
    """

    workload: Workload
    target: Target
    run_deadline_secs: float | None
    bound_secs: float | None
    incumbent_secs: float | None = None
    """The estimated time of the fastest candidate until now."""
    last_ok: MeasureResult | None = None
    known_bound: Bound | None = None
    """The bound of the workload. If it is None, it is computed when it is needed."""

    def learn(self, result: MeasureResult) -> None:
        """Take the result of a candidate into account."""
        if result.ok and result.run_secs_estimate is not None:
            self.incumbent_secs = min(self.incumbent_secs or inf, result.run_secs_estimate)
            self.last_ok = result

    @property
    def bound(self) -> Bound:
        if self.known_bound is None:
            self.known_bound = bound_for(self.workload, self.target)
        return self.known_bound

    def deadline_secs(self, threads: int) -> float:
        """Return the wall time in seconds that one candidate may take on one case, including
        verification."""
        if self.run_deadline_secs is not None:
            return self.run_deadline_secs
        calls = 5 + 4 * threads  # the shares of threads run one after the other, some of them twice
        if self.incumbent_secs is None:
            return max(timeouts.FIRST_RUN_DEADLINE_SECS, 50 * calls * self.bound.secs)
        return max(timeouts.RUN_DEADLINE_SECS, _DEADLINE_RATIO * calls * self.incumbent_secs)

    def plausible(self, result: MeasureResult) -> MeasureResult:
        """Return `result`, or a result with the status IMPLAUSIBLE if its time is too short."""
        estimate = result.run_secs_estimate
        least_secs = self._least_secs() if result.ok else 0.0
        if not result.ok or estimate is None or estimate * _IMPLAUSIBLE_RATIO >= least_secs:
            return result
        return MeasureResult(
            MeasureStatus.IMPLAUSIBLE,
            compile_secs=result.compile_secs,
            verify_secs=result.verify_secs,
            detail=f"the measured {estimate:.3g} s per call are wrong: they are less than an"
            f" eighth of the bound, {least_secs:.3g} s",
        )

    def _least_secs(self) -> float:
        """Return the bound for IMPLAUSIBLE. Return 0.0 if it is unknown, so that no time is
        implausible."""
        if self.bound_secs is not None:
            return self.bound_secs
        found = self.bound
        return found.least_secs if found.probed and found.binds == "compute" else 0.0

    def usual_result(self) -> MeasureResult:
        """Return the last successful result, or a prediction for a kernel at the bound."""
        if self.last_ok is not None:
            return self.last_ok
        return MeasureResult(MeasureStatus.OK, verify_secs=_CALLS_AT_BOUND * self.bound.secs)


def full_check_secs(
    result: MeasureResult, target: Target, opening: dict[str, float], most_reference_secs: float
) -> float:
    """Return the predicted seconds of a full check of a candidate with this result, without its
    builds.

    They consist of a reference per case that takes as long as the first one, and the calls on all
    cases. Most of the calls are on the first case. `opening` is the answer of the runner (see
    `RunnerClient`).
    """
    cases = max(int(opening.get("cases", 0)), 1)
    reference_secs = min(cases * float(opening.get("quick_secs", 0.0)), most_reference_secs)
    calls_secs = (cases + full_check_calls({"threads": target.threads})) * (
        _QUICK_CHECKS_PER_CALL * result.verify_secs
    )
    return reference_secs + calls_secs + CONFIRM_SECS


def most_full_check_secs(predicted_secs: float) -> float:
    """Return the seconds after which a full check ends if the run has no time budget."""
    return max(timeouts.MAX_FULL_CHECK_SECS, _MAX_OVER_PREDICTED * predicted_secs)


def run_limit_secs(control: Control) -> float:
    """Return the seconds that one candidate may take.

    They are the time before the reserve and a fraction of the reserve. If there is no final check,
    they are all remaining time.
    """
    reserve_secs = control.reserve_secs
    if not reserve_secs:
        return max(control.killed_in_secs, timeouts.MEASURE_POLL_SECS)
    left_secs = control.left_secs - reserve_secs
    return max(left_secs, 0.0) + max(_OVERRUN_SHARE * reserve_secs, timeouts.MIN_OVERRUN_SECS)


def refuse_too_large(workload: Workload) -> None:
    """Raise WorkloadError if the workload needs more memory than is available."""
    available_bytes = psutil.virtual_memory().available
    needed = memory_bytes(workload)
    if needed > available_bytes:
        raise WorkloadError(
            f"measuring needs about {needed / 2**30:.1f} GiB of memory, of which "
            f"{available_bytes / 2**30:.1f} GiB are available: make the tensors smaller or "
            "measure on a machine with more memory",
            code="too_large",
        )


def runner_bytes(workload: Workload) -> int:
    """Return the memory of a runner that has opened the workload, about."""
    return _PROCESS_BYTES + memory_bytes(workload)


def memory_bytes(workload: Workload) -> int:
    """Return the memory that measuring the workload needs, about, without the processes."""
    # Inputs exist as arrays, twice guarded, flat, and in float64 for the reference. Outputs exist
    # guarded, flat, for comparison, and as values and bounds of the reference. Stages exist only in
    # the reference.
    inputs = sum(t.bytes for t in workload.inputs)
    outputs = sum(t.bytes for t in workload.output_tensors)
    stages = sum(s.tensor.bytes for s in workload.stages)
    packed = sum(t.bytes for t in workload.constants)  # guarded and flat
    return 6 * inputs + 10 * outputs + 4 * stages + 2 * packed
