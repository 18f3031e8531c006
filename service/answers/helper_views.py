"""Views of a schedule that take long to compute, for a helper process.

Each function takes a JSON document with `workload`, `target` and, if it shows a schedule, `trace`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.service.answers import objects
from tilewright.service.resolve import workloads
from tilewright.tuner.process.frames import Frame

Document = dict[str, Any]


def nests(document: Document) -> Frame:
    """Return the loop nests `before` and `after` the trace."""
    workload = workloads.workload_of(document["workload"])
    target = Target.from_json(document["target"])
    trace = Trace.from_json(document["trace"])
    return Frame(
        {
            "before": objects.shown(workload, Trace(), target, "nest"),
            "after": objects.shown(workload, trace, target, "nest"),
        }
    )


def assembly(document: Document) -> Frame:
    """Return the assembly of the trace for its own target."""
    workload = workloads.workload_of(document["workload"])
    target = Target.from_json(document["target"])
    return Frame(
        {"text": objects.shown(workload, Trace.from_json(document["trace"]), target, "asm")}
    )


def limits(document: Document) -> Frame:
    """Return the roofline bound of a workload: rates in GFLOP/s and GB/s, times in seconds."""
    # Start-up: pages that show no bound load no NumPy.
    from tilewright.tuner.machine.roofline import bound_for

    workload = workloads.workload_of(document["workload"])
    target = Target.from_json(document["target"])
    found = bound_for(workload, target)
    return Frame(
        {
            "bound_secs": found.secs,
            "binds": found.binds,
            "probed": found.probed,
            "peak_gflops": found.peak_gflops,
            "bandwidth_gbs": found.bandwidth_gbs,
            "min_bytes": workload.min_bytes,
            "flops": workload.flops,
        }
    )
