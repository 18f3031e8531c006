"""Measured times of many settings of many spaces: what a change of the prior is held against.

Settings are kept by the names and values of their knobs, and by the hash of their trace, so that
they can still be found when a knob is added or gone: a row whose trace today's space cannot make is
left out.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commits.rows import Row
from benchmarks.commits.rows import rows as read_rows
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner.measure.measurer_spec import parse_measurer
from tilewright.tuner.measure.protocol import MeasureRequest

FILES = {
    "zen5": Path(__file__).with_name("timings.jsonl.gz"),
    "xeon": Path(__file__).with_name("timings_xeon.jsonl.gz"),
    "xeon_avx2": Path(__file__).with_name("timings_xeon_avx2.jsonl.gz"),
}
"""The times by machine: two cores of a Zen 5; and two cores of a Xeon with 2 MiB of L2 and a
distant L3, with AVX-512 and held to AVX2 (see `machines`). The probes of the Xeon were measured
again when the rate of lines of different pages was added to them."""

DRAWN = 40_000
"""Random settings a sketch, of which feasible ones are taken."""


@dataclass(frozen=True)
class Timed:
    """One setting and its time a call in seconds."""

    sketch: str
    knobs: dict[str, Any]
    trace: str
    secs: float


@dataclass(frozen=True)
class Measured:
    """All that was measured of one row with one number of threads."""

    row: str
    threads: int
    target: dict[str, Any]
    timed: tuple[Timed, ...]


def candidates(space: ScheduleSpace, count: int, seed: int) -> list[Candidate]:
    """Of every sketch its default; then, in equal parts, settings that the prior likes best, likes
    among those of the first tenth, and random ones."""
    rng = np.random.default_rng(seed)
    prior = Prior(space)
    found = [Candidate(n, sketch.default()) for n, sketch in enumerate(space.sketches)]
    pool: list[tuple[float, Candidate]] = []
    for number, sketch in enumerate(space.sketches):
        sizes = [len(knob.values) for knob in sketch.knobs]
        settings = rng.integers(0, sizes, (DRAWN, len(sizes)))
        settings = np.unique(settings[sketch.feasible(settings)], axis=0)
        if len(settings):
            secs = prior.log2_secs(number, settings)
            pool += [
                (float(s), Candidate(number, tuple(row.tolist())))
                for s, row in zip(secs, settings, strict=True)
            ]
    pool.sort(key=lambda item: item[0])
    each = max(count // 3, 1)
    good = pool[each : max(len(pool) // 10, each + 1)]
    picked = [c for _, c in pool[:each]]
    picked += [good[i][1] for i in rng.permutation(len(good))[:each]]
    picked += [pool[i][1] for i in rng.permutation(len(pool))[:each]]
    return list(dict.fromkeys([*found, *picked]))


def trace_hash(trace: Trace) -> str:
    text = json.dumps(trace.to_json(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measure(row: Row, target: Target, count: int, seed: int) -> Measured:
    """Time `count` settings of `row`; those that fail are left out."""
    space = space_for(row.workload, target)
    chosen = candidates(space, count, seed)
    traces = [space.trace(candidate) for candidate in chosen]
    timed = []
    with parse_measurer("local")(row.workload, target, seed) as measurer:
        requests = [MeasureRequest(n + 1, trace) for n, trace in enumerate(traces)]
        results = measurer.measure(requests)
    for candidate, trace, result in zip(chosen, traces, results, strict=True):
        if result.run_secs_estimate is None:
            continue
        sketch = space.sketches[candidate.sketch]
        knobs = {
            knob.name: knob.values[i]
            for knob, i in zip(sketch.knobs, candidate.setting, strict=True)
        }
        timed.append(Timed(sketch.name, knobs, trace_hash(trace), result.run_secs_estimate))
    return Measured(row.name, target.threads, target.to_json(), tuple(timed))


def append(found: Measured, path: Path) -> None:
    """Members of a gzip file follow one another: what is written stays if a run is stopped."""
    with gzip.open(path, "at", encoding="utf-8") as file:
        file.write(json.dumps(asdict(found), sort_keys=True) + "\n")


def read(path: Path) -> Iterator[Measured]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            document = json.loads(line)
            timed = tuple(Timed(**one) for one in document.pop("timed"))
            yield Measured(timed=timed, **document)


def settings_of(space: ScheduleSpace, timed: Sequence[Timed]) -> list[Candidate | None]:
    """The settings of today's `space` that make what was timed; None where none does, or where the
    setting of the same knobs makes another trace now."""
    return [_setting_of(space, one) for one in timed]


def _setting_of(space: ScheduleSpace, timed: Timed) -> Candidate | None:
    for number, sketch in enumerate(space.sketches):
        if sketch.name != timed.sketch:
            continue
        places = []
        for knob in sketch.knobs:
            value = timed.knobs.get(knob.name, knob.values[0])
            if value not in knob.values:
                break
            places.append(knob.values.index(value))
        else:
            row: IntArray = np.asarray([places], np.int64)
            # A knob that is gone or called otherwise must not pass for its first value.
            if sketch.feasible(row)[0] and trace_hash(sketch.trace(places)) == timed.trace:
                return Candidate(number, tuple(places))
    return None


def rows_by_name() -> dict[str, Row]:
    return {row.name: row for row in read_rows()}
