"""The result of a candidate, derived from the way its process ended."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.record import MeasureStatus

from ..memory.guarded import GuardedBuffer
from ..memory.stacks import STACK_BYTES
from .sandbox import ChildExit, Outcome, ResourceLimits


def explain(outcome: Outcome, limits: ResourceLimits) -> dict[str, Any]:
    """Return the result document of a candidate: `status`, `detail`, times, `fork_secs`,
    `child_secs`."""
    document = _verdict(outcome, limits)
    return {**document, "fork_secs": outcome.fork_secs, "child_secs": outcome.secs}


def _verdict(outcome: Outcome, limits: ResourceLimits) -> dict[str, Any]:
    match outcome.ending:
        case ChildExit.DONE:
            last = outcome.frames[-1].document if outcome.frames else {}
            if "status" in last:
                return last
            return _failed(MeasureStatus.RUN_CRASH, "the kernel ended its process")
        case ChildExit.DEADLINE:
            detail = f"did not end within {limits.deadline_secs:.3g} s"
            return _failed(MeasureStatus.RUN_TIMEOUT, detail)
        case ChildExit.MEMORY:
            detail = f"needed more than {limits.memory_bytes >> 20} MiB"
            return _failed(MeasureStatus.OUT_OF_MEMORY, detail)
        case ChildExit.SIGNAL:
            return _crash(outcome)


def _crash(outcome: Outcome) -> dict[str, Any]:
    """Return OUT_OF_BOUNDS if the fault was at or near a buffer, otherwise RUN_CRASH."""
    address = outcome.fault_address
    if outcome.signal_name not in ("SIGSEGV", "SIGBUS") or address is None:
        return _failed(MeasureStatus.RUN_CRASH, outcome.signal_name)
    for frame in outcome.notes[::-1]:
        if any(low <= address < high for low, high in frame.document.get("stacks", ())):
            detail = f"{outcome.signal_name}: took more than {STACK_BYTES >> 10} KiB of stack"
            return _failed(MeasureStatus.RUN_CRASH, detail)
        for fields in frame.document.get("buffers", ()):
            where = GuardedBuffer(*fields).describe(address)
            if where is not None:
                return _failed(MeasureStatus.OUT_OF_BOUNDS, f"touched memory: {where}")
        break  # the memory of the last run
    return _failed(MeasureStatus.RUN_CRASH, f"{outcome.signal_name} at address {address:#x}")


def _failed(status: MeasureStatus, detail: str) -> dict[str, Any]:
    return {"status": status, "detail": detail}
