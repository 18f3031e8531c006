"""The bound of a workload on a target. `tuner/machine/roofline.py` computes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """The lower limit of the time of one call, `secs`.

    `binds` is "compute", or the level from which the bytes come ("L2", "memory"). `by` names the
    types or instructions whose peak applies to the operations ("f32", "vpdpbusd", "vpdpbusd+i32").

    `probed` is False if the target's peak or bandwidth was assumed, or measured on a busy machine:
    such a bound is for information and ends no search. `peak_gflops` and `bandwidth_gbs` (main
    memory) are for all threads of the target and the arithmetic type of the workload. `least_secs`
    is the time of the operations on all cores, each at the peak of a single core, so it does not
    depend on probes of caches or of several threads. It is 0.0, and no time is implausible, if a
    peak was not probed.
    """

    secs: float
    binds: str
    threads: int
    peak_gflops: float
    bandwidth_gbs: float
    probed: bool
    least_secs: float
    by: str = ""
