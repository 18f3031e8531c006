"""The bound of a workload on a target. `tuner/machine/roofline.py` computes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """The lower limit of the time of one call.

    The peak and the bandwidth are for all threads of the target, and for the arithmetic type of the
    workload.
    """

    secs: float
    """The lower limit in seconds."""
    binds: str
    """"compute", or the level from which the bytes come ("L2", "memory")."""
    threads: int
    peak_gflops: float
    bandwidth_gbs: float
    """The bandwidth of main memory."""
    probed: bool
    """False if the target's peak or bandwidth was assumed, or measured on a busy machine. Such a
    bound is for information and ends no search."""
    least_secs: float
    """The time of the operations on all cores, each at the peak of a single core. It does not
    depend on probes of caches or of several threads. It is 0.0 if a peak was not probed. No time is
    then rejected as implausible."""
    by: str = ""
    """The types or instructions whose peak applies to the operations ("f32", "vpdpbusd",
    "vpdpbusd+i32")."""
