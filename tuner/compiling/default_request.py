"""What a helper process is asked for that needs no LLVM: the default schedule."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ..process.frames import Frame
from ..search.default import default_trace


def choose_default(document: dict[str, Any]) -> Frame:
    """The default trace of `workload` on `target`."""
    trace = default_trace(
        Workload.from_json(document["workload"]), Target.from_json(document["target"])
    )
    return Frame({"trace": trace.to_json()})
