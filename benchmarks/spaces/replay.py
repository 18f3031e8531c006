"""What a schedule space is, as hashes: the guard of everything that moves inside `schedules`.

A row of a replay is one workload on one target with a number of threads. For each sketch it holds
the knobs with their values, which of some drawn settings are feasible, the counts and the prior's
predictions of those, and the traces and the LLVM text of a few. Two versions with equal rows
propose the same schedules and make the same kernels of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from tilewright.costmodel.counts.counting import counts, program_counts
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import ScheduleSpace, Sketch
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import llvm_text

HERE = Path(__file__).resolve().parent
TARGETS = HERE.parent.parent / "examples" / "targets"

CPUS = ("znver5", "x86-64-v3", "neoverse-n1")
THREADS = (1, 2)

DRAWN = 400
"""Settings of each sketch whose feasibility is asked for; those that are have counts as well."""

TRACED = 3
"""Settings of each sketch that are written down and compiled to LLVM text, its default among
them."""

FIELDS = ("name", "knobs", "feasible", "counts", "prior", "default", "traces", "llvm")
"""What a row says of a sketch, in the order in which differences are looked for: what is later
follows from what is before."""


@dataclass(frozen=True, slots=True)
class Place:
    """One workload of the replay, on one machine."""

    name: str
    document: dict[str, Any]
    cpu: str
    threads: int

    @property
    def key(self) -> str:
        return f"{self.name} | {self.cpu} | {self.threads}"


def places(workloads: Iterable[tuple[str, dict[str, Any]]], every: int = 1) -> Iterator[Place]:
    """Each workload on each machine with each number of threads; of those, about one of `every`,
    told by their names: counted off, an even number would meet one number of threads alone."""
    everything = (
        Place(name, document, cpu, threads)
        for name, document in workloads
        for cpu in CPUS
        for threads in THREADS
    )
    return (place for place in everything if crc32(place.key.encode()) % every == 0)


def target_of(cpu: str, threads: int) -> Target:
    """A machine of `examples/targets`."""
    document = json.loads((TARGETS / f"{cpu}.json").read_text())
    return replace(Target.from_json(document), threads=threads)


def replayed(place: Place) -> dict[str, Any]:
    """The row of one place: a JSON value of hashes. A space that cannot be made is told by the
    kind of error."""
    target = target_of(place.cpu, place.threads)
    try:
        space = space_for(Workload.from_json(place.document).normalised(), target)
    except ScheduleError as error:
        return {"place": place.key, "error": type(error).__name__}
    sketches = [_sketch_row(space, number, place) for number in range(len(space.sketches))]
    return {"place": place.key, "sketches": sketches}


def _sketch_row(space: ScheduleSpace, number: int, place: Place) -> dict[str, Any]:
    sketch = space.sketches[number]
    settings = drawn(sketch, f"{place.key} {number}")
    feasible = sketch.feasible(settings)
    good = settings[feasible]
    default = sketch.default()
    shown = [default, *(tuple(int(i) for i in row) for row in good[: TRACED - 1])]
    traces, texts = [], []
    for setting in shown:
        try:
            trace = sketch.trace(setting)
        except ScheduleError as error:  # primitives have the last word
            traces.append(type(error).__name__)
            continue
        traces.append(_digest(trace.to_json()))
        texts.append(_digest(_text(space.workload, trace, space.target)))
    return {
        "name": sketch.name,
        "knobs": _digest([[knob.name, list(knob.values)] for knob in sketch.knobs]),
        "feasible": f"{int(feasible.sum())}:{_digest(feasible.tolist())}",
        "counts": {name: _numbers(values) for name, values in _counts(sketch, good).items()},
        "prior": _numbers(Prior(space).log2_secs(number, good)) if len(good) else "",
        "default": _digest([int(i) for i in default]),
        "traces": traces,
        "llvm": texts,
    }


def _counts(sketch: Sketch, settings: IntArray) -> Mapping[str, Any]:
    if not len(settings):
        return {}
    default = sketch.split_settings(np.asarray([sketch.default()]))
    each = zip(sketch.parts, default, strict=True)
    heaviest = int(np.argmax([counts(part, own)["flops"][0] for part, own in each]))
    plan = sketch.parts[heaviest].plan(sketch.split_settings(settings)[heaviest])
    dense = np.broadcast_to(plan.dense_mask, len(settings)).astype(np.float64)
    trips = plan.trips.astype(np.float64).ravel()
    return {**program_counts(sketch, settings), "packed_accesses": dense, "trips": trips}


def _text(workload: Workload, trace: Any, target: Target) -> str:
    """The kernel's LLVM text, or which error its trace is: that is part of what a version does."""
    try:
        return llvm_text(workload, trace, target)
    except ScheduleError as error:
        return f"{type(error).__name__}"


def drawn(sketch: Sketch, seed: str) -> IntArray:
    """(DRAWN, J) settings, the same for the same knobs and seed."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
    rng = np.random.default_rng(start)
    return rng.integers(0, sizes, (DRAWN, len(sizes)))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def _numbers(values: Any) -> str:
    """Equal for arrays that differ in less than processors round differently."""
    return _digest([f"{value:.8g}" for value in np.asarray(values, np.float64).tolist()])


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed in one place: `sketch 0 tile: counts.vector_stores`."""
    if "error" in was or "error" in now:
        return [] if was == now else [f"error: {was.get('error')} -> {now.get('error')}"]
    before, after = was["sketches"], now["sketches"]
    names = ([row["name"] for row in rows] for rows in (before, after))
    old, new = (list(found) for found in names)
    if old != new:
        return [f"sketches: {', '.join(old)} -> {', '.join(new)}"]
    return [
        f"sketch {n} {one['name']}: {field}"
        for n, (one, other) in enumerate(zip(before, after, strict=True))
        for field in _fields(one, other)
    ]


def _fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> Sequence[str]:
    found: list[str] = []
    for field in FIELDS:
        if one[field] == other[field]:
            continue
        if field != "counts":
            found.append(field)
            continue
        names = sorted(one[field].keys() | other[field].keys())
        found += [f"counts.{n}" for n in names if one[field].get(n) != other[field].get(n)]
    return found
