"""The bound of a workload on a target, as a value: `tuner/machine/roofline.py` computes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """`secs` of one call; `binds` is "compute" or the level the bytes come from ("L2", "memory").

    `by` is what the operations are counted at the peak of: types, or instructions for narrow
    operands ("f32", "vpdpbusd", "vpdpbusd+i32").

    `probed` is False where the target's peak or bandwidth was assumed rather than measured, or
    measured on a busy machine: such a bound is for information and ends no search. `peak_gflops`
    and `bandwidth_gbs` (main memory) are those for all the target's threads and the workload's
    arithmetic type. `least_secs` is what all cores together need for the operations alone, each at
    the peak of a single one: not even wrong probes of several threads, or of caches, make it longer
    than it is. It is 0.0 where the peak of one of the instructions was not probed: no time is
    implausible then.
    """

    secs: float
    binds: str
    threads: int
    peak_gflops: float
    bandwidth_gbs: float
    probed: bool
    least_secs: float
    by: str = ""
