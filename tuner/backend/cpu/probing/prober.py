"""Probing of a machine: arithmetic peaks, read bandwidths, clock, time of a parallel region.

It runs as a separate process (`python -m tilewright.tuner.backend.cpu.probing.prober`, target JSON
on stdin, probes JSON on stdout). The reason is that it starts threads and OpenMP, and a process
that forks later must not do that. Every rate is the best of short bursts in several rounds. The CPU
time of a burst reveals whether it shared its core with another process. If other programs use the
cores, there are more rounds. If too few rounds are quiet, the probes are doubtful
(`Probes.doubtful`).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from functools import partial

from tilewright.schedules.dtypes import FLOATS
from tilewright.schedules.target import Probes, Target

from ....process.contention import ContentionMonitor, cpu_times
from ....process.host import available_memory_bytes, cpu_affinity
from .machine import PROBED_DTYPES, ProbedMachine, probed_dots, working_sets
from .rounds import (
    QUIET_ROUNDS,
    Figure,
    best_of_rounds,
    look_again,
    spread,
    thread_counts,
)

TOTAL_BUDGET_SECS = 0.8
MAX_PROBE_SECS = 0.04
ROUND_PAUSE_SECS = 0.1
LOOK_PAUSE_SECS = 0.15
_REGIONS: Figure = ("parallel regions a second", 0)
_CLOCK: Figure = ("clock", 1)
_STRIDED = "strided "
"""Prefix of the figures of lines of different pages."""


def measure_probes(target: Target, budget_secs: float = TOTAL_BUDGET_SECS) -> Probes:
    """Measure the probes of this machine in this process, which starts threads and OpenMP.

    It takes about `budget_secs` on a quiet machine and up to three times as long on a busy one.
    """
    counts = thread_counts(target.cores)
    levels = working_sets(target, available_memory_bytes())
    probes = len(counts) * (len(PROBED_DTYPES) + len(probed_dots(target)) + len(levels))
    probes += len(levels) - 1  # lines of different pages, by one thread
    # The CPUs are read once, because OpenMP binds the thread that starts its first region to one
    # core.
    others = ContentionMonitor(partial(cpu_times, cpu_affinity()))
    with ProbedMachine(target, min(MAX_PROBE_SECS, budget_secs / probes) / QUIET_ROUNDS) as machine:
        machine.warm_up()
        arithmetic = {name: partial(machine.gigaops, name) for name in machine.arithmetic}
        reading = {level: partial(machine.gigabytes, *where) for level, where in levels.items()}
        apart = {
            _STRIDED + level: partial(machine.strided_gigabytes, size)
            for level, (size, _) in levels.items()
            if level != "L1"
        }
        both = arithmetic | reading
        found = best_of_rounds(
            lambda: {
                **{(name, n): measure(n) for name, measure in both.items() for n in counts},
                **{(name, 1): measure() for name, measure in apart.items()},
                _CLOCK: machine.gigahertz(),
                _REGIONS: 1 / machine.region_secs(target.cores),
            },
            others.contended,
            pause=partial(time.sleep, ROUND_PAUSE_SECS),
        )
        rates = {name: {n: found.rates[name, n] for n in counts} for name in both}
        private = {name: both[name] for name in both if not levels.get(name, (0, False))[1]}
        look_again(private, rates, pause=partial(time.sleep, LOOK_PAUSE_SECS))
        region_secs = float(f"{1 / found.rates[_REGIONS]:.3g}")
        clock_ghz = float(f"{found.rates[_CLOCK]:.4g}")
    curves = {name: spread(found, target.cores) for name, found in rates.items()}
    # Narrow floats are computed in f32, so their peak is the f32 peak.
    peaks = {name: curves[name] for name in arithmetic}
    peaks |= {d.value: list(peaks[d.wide.value]) for d in FLOATS if d.is_narrow_float}
    bandwidths = {name: curves[name] for name in reading}
    strided = {
        name.removeprefix(_STRIDED): [float(f"{found.rates[name, 1]:.4g}")] for name in apart
    }
    return Probes(peaks, bandwidths, region_secs, not found.quiet, clock_ghz, strided)


def main() -> None:
    target = Target.from_json(json.load(sys.stdin))
    probes = measure_probes(target)
    json.dump(asdict(probes), sys.stdout)


if __name__ == "__main__":
    main()
