"""The bound of a workload on a target, as a value. `tuner/machine/roofline.py` computes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time of one call, `secs`. `binds` is "compute", or the level that the bytes come
    from ("L2", "memory").

    `by` names the types or instructions whose peak applies to the operations ("f32", "vpdpbusd",
    "vpdpbusd+i32").

    `probed` is False if the target's peak or bandwidth was assumed rather than measured, or
    measured on a busy machine: such a bound is for information and ends no search. `peak_gflops`
    and `bandwidth_gbs` (main memory) are for all threads of the target and the arithmetic type of
    the workload. `least_secs` is the time of the operations alone on all cores, each at the peak of
    a single core; wrong probes of several threads or of caches do not change it. It is 0.0 if the
    peak of one of the instructions was not probed: no time is implausible then.
    """

    secs: float
    binds: str
    threads: int
    peak_gflops: float
    bandwidth_gbs: float
    probed: bool
    least_secs: float
    by: str = ""
