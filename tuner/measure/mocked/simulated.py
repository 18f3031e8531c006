"""A simulated machine: `--measurer simulated:FILE`.

Its times are a function of the trace. They consist of the base cost of the operations, gains of
sensible choices, a small simulated cache with the trace's tile sizes, random hills that a hash
determines, noise and failures. No formula is the same as in the cost model, so a search succeeds
here only by learning. The same file, workload, trace and seed give the same times on every machine.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from hashlib import sha256
from math import cos, exp, log, log2, pi, sin, sqrt
from pathlib import Path
from typing import Any, Self

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ..protocol import MeasureRequest, MeasurerError, OnResult, measure_each
from .timings_file import file_tag, parse_object, read_text

SIMULATED_VERSION = 1


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """The settings of a simulated machine, with their defaults. Costs and gains are in log2
    units."""

    seed: int = 0
    ops_per_sec: float = 2e10
    bytes_per_sec: float = 1e10
    lanes: int = 8
    region_secs: float = 2e-6
    cache_lines: int = 24
    """The size of the simulated cache in lines."""
    ruggedness: float = 0.25
    """The height of the random hills in log2 units."""
    noise: float = 0.01
    """The relative spread of one sample."""
    samples: int = 5
    latency_secs: float = 0.0
    """The real time that measuring a candidate takes."""
    failure_rates: dict[str, float] = field(default_factory=dict)
    """The fraction of candidates that fail, for each failing status."""
    confirm_failure_rate: float = 0.0
    """The fraction of candidates that fail the full check."""
    vector_gain: float = 3.0
    """The gain of full vectors."""
    copy_cost: float = 0.0
    """The cost of each private copy."""
    stride_cost: float = 0.0
    """The cost of reading without a private copy."""
    code_limit: int = 0
    """The number of unrolled statements that cost nothing. 0 means no limit."""
    code_cost: float = 0.8
    """The cost of each doubling of unrolled code beyond `code_limit`."""
    thread_gain: float = 0.9
    """The fraction of a thread's work that each further thread takes over."""
    interaction: float = 0.0
    """The height of hills over pairs of distant steps."""
    common: float = 0.0
    """The share, 0 to 1, of the variance of hills that is the same for every workload."""

    def __call__(self, workload: Workload, target: Target, seed: int) -> SimulatedMeasurer:
        """Return a measurer of this machine. The seed of the run does not affect times."""
        return SimulatedMeasurer(self, workload, target.threads)

    @property
    def toolchain(self) -> Toolchain:
        """A toolchain of code generator version 0, so that real records replace simulated ones."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        if not self.common:
            del settings["common"]  # so that records of earlier versions are reused
        return Toolchain(0, "simulated", file_tag(canonical_bytes(settings)))


@dataclass(frozen=True, slots=True)
class SimulatedMeasurer:
    """A `Measurer` on a simulated machine. `sleep` waits for `latency_secs`."""

    machine: SimulatedMachine
    workload: Workload
    threads: int = 1
    sleep: Callable[[float], None] = time.sleep

    @property
    def toolchain(self) -> Toolchain:
        return self.machine.toolchain

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        return measure_each(requests, lambda request: self._run(request, "measure"), on_result)

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Return the same time with new noise. A fraction of the candidates fails."""
        key = self._key(request)
        if uniform(key, "confirm") < self.machine.confirm_failure_rate:
            return MeasureResult(MeasureStatus.WRONG_RESULT, detail="simulated: full check failed")
        return self._run(request, "confirm")

    def _key(self, request: MeasureRequest) -> str:
        trace = canonical_bytes(request.trace.to_json())
        return f"{self.machine.seed}/{self.workload.key}/{sha256(trace).hexdigest()}"

    def _run(self, request: MeasureRequest, purpose: str) -> MeasureResult:
        machine, key = self.machine, self._key(request)
        if machine.latency_secs:
            self.sleep(machine.latency_secs)
        drawn = uniform(key, "failure")
        for status, rate in sorted(machine.failure_rates.items()):
            if drawn < rate:
                return MeasureResult(
                    MeasureStatus(status),
                    measure_secs=machine.latency_secs,
                    detail=f"simulated: {status}",
                )
            drawn -= rate
        secs = self.true_secs(request)
        # Interference only adds time, so the smallest sample is nearest to the true time.
        samples = tuple(
            secs * exp(machine.noise * abs(normal(key, f"{purpose}/{i}")))
            for i in range(machine.samples)
        )
        return MeasureResult(
            MeasureStatus.OK,
            run_secs=samples,
            run_secs_estimate=min(samples),
            measure_secs=machine.latency_secs,
        )

    def true_secs(self, request: MeasureRequest) -> float:
        """Return the seconds per call, without noise."""
        steps = request.trace.to_json()
        machine = self.machine
        # The normal form does not depend on names and declared counts.
        workload = self.workload.normalised()
        work = workload.flops / machine.ops_per_sec
        moved = workload.min_bytes / machine.bytes_per_sec
        tiles = [int(s["factor"]) for s in steps if isinstance(s.get("factor"), int)]
        name = f"{machine.seed}/{self.workload.key}"
        cost = vector_cost(steps, machine.lanes, machine.vector_gain)
        for seed, share in ((name, 1.0 - machine.common), (str(machine.seed), machine.common)):
            if share:
                cost += hills(seed, steps, machine.ruggedness * sqrt(share))
                cost += far_hills(seed, steps, machine.interaction * sqrt(share))
        cost += copies_cost(steps, machine.copy_cost, machine.stride_cost)
        cost += code_cost(steps, machine.code_limit, machine.code_cost)
        misses = walked_misses(tuple(tiles[-4:]), machine.cache_lines)
        serial: float = (work + moved * (0.5 + 2.0 * misses)) * 2.0**cost + 1e-7
        if not any(s.get("do") == "Parallel" for s in steps):
            return serial
        return serial / (1.0 + machine.thread_gain * (self.threads - 1)) + machine.region_secs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Do nothing, because there are no processes to end."""


# -- the landscape


def vector_cost(steps: Sequence[dict[str, Any]], lanes: int, gain: float) -> float:
    """Return log2 of the slowdown relative to full vectors. It is `gain` if no loop is vectorised.

    The width of the vectors is the factor of the split that created the vectorised loop. A multiple
    of `lanes` costs little.
    """
    loops = [str(s.get("loop")) for s in steps if s.get("do") == "Vectorize"]
    if not loops:
        return gain
    width = _split_factors(steps).get(loops[0])
    if width is None:
        return 0.2 * gain
    return 0.05 * abs(log2(width / (2 * lanes))) if width % lanes == 0 else gain / 3


def copies_cost(steps: Sequence[dict[str, Any]], copy: float, stride: float) -> float:
    """Return log2 of the slowdown by private copies, or by strided reads if there is no copy."""
    copies = sum(s.get("do") == "CacheRead" for s in steps)
    return copies * copy if copies else stride


def code_cost(steps: Sequence[dict[str, Any]], limit: int, cost: float) -> float:
    """Return log2 of the slowdown by code that exceeds an instruction cache of `limit` statements.

    The size of the code is the product of the split factors of unrolled loops. A loop without a
    split counts as 2.
    """
    if not limit:
        return 0.0
    factors = _split_factors(steps)
    written: dict[str, int] = {}
    for loop in (str(s.get("loop")) for s in steps if s.get("do") == "Unroll"):
        nest = loop.rpartition(".")[0]
        written[nest] = written.get(nest, 1) * factors.get(loop, 2)
    return cost * max(log2(max(written.values(), default=1) / limit), 0.0)


def _split_factors(steps: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the factor of each split, keyed by the name of its inner loop."""
    return {
        f"{s.get('loop')}i": s["factor"]
        for s in steps
        if s.get("do") == "Split" and isinstance(s.get("factor"), int) and s["factor"] >= 1
    }


def hills(seed: str, steps: Sequence[dict[str, Any]], height: float) -> float:
    """Return a smooth random function of the numbers in the trace, plus effects of its other
    choices."""
    total, previous = 0.0, 0.0
    for place, step in enumerate(steps):
        numbers = [v for v in step.values() if isinstance(v, int) and not isinstance(v, bool)]
        words = canonical_bytes({k: v for k, v in step.items() if not isinstance(v, int)})
        name = f"{seed}/{words.decode()}"
        if not numbers:
            total += 0.3 * height * normal(name, "word")
            continue
        x = log2(1.0 + abs(numbers[0]))
        wave = 0.4 + 0.8 * uniform(name, "frequency")
        total += height * sin(wave * x + 2 * pi * uniform(name, "phase"))
        if place:
            total += 0.5 * height * cos(0.5 * (x - previous) + 2 * pi * uniform(name, "pair"))
        previous = x
    return total


def far_hills(seed: str, steps: Sequence[dict[str, Any]], height: float) -> float:
    """Return random effects of a fifth of all pairs of splits. They are no sum over single
    choices."""
    if not height:
        return 0.0
    placed = [(str(s.get("loop")), log2(1.0 + s["factor"])) for s in steps if s.get("factor")]
    total = 0.0
    for number, (one, x) in enumerate(placed):
        for other, y in placed[number + 1 :]:
            chosen, along, across, phase = _pair(f"{seed}/{one}/{other}")
            if chosen < 0.2:
                total += height * cos((0.4 + along) * x - (0.4 + across) * y + 2 * pi * phase)
    return total


@lru_cache(maxsize=1 << 14)
def _pair(name: str) -> tuple[float, float, float, float]:
    return (
        uniform(name, "chosen"),
        uniform(name, "along"),
        uniform(name, "across"),
        uniform(name, "phase"),
    )


@lru_cache(maxsize=4096)
def walked_misses(tiles: tuple[int, ...], cache_lines: int, side: int = 24) -> float:
    """Return the fraction of accesses that miss a simulated cache, if an outer product of two
    vectors is tiled.

    The cache is fully associative with least-recently-used replacement. It is simulated access by
    access, over `side` x `side` points. The last two of `tiles`, the split factors of the trace,
    are the tile.
    """
    rows, columns = (*(min(max(t, 1), side) for t in tiles[-2:]), 1, 1)[:2]
    held: OrderedDict[tuple[str, int], None] = OrderedDict()
    misses = accesses = 0
    for row in range(0, side, rows):
        for column in range(0, side, columns):
            for i in range(row, min(row + rows, side)):
                for j in range(column, min(column + columns, side)):
                    for line in (("a", i), ("b", j), ("c", i * side + j // 8)):
                        accesses += 1
                        if line in held:
                            held.move_to_end(line)
                            continue
                        misses += 1
                        held[line] = None
                        if len(held) > cache_lines:
                            held.popitem(last=False)
    return misses / accesses


def uniform(key: str, purpose: str) -> float:
    """Return a number in [0, 1) that depends only on the arguments."""
    return int.from_bytes(sha256(f"{key}|{purpose}".encode()).digest()[:7]) / float(1 << 56)


def normal(key: str, purpose: str) -> float:
    """Return a standard normal number that depends only on the arguments (Box and Muller, 1958)."""
    radius = sqrt(-2.0 * log(1.0 - uniform(key, purpose + "/r")))
    return radius * cos(2.0 * pi * uniform(key, purpose + "/a"))


# -- the file


def read_simulated(path: str | Path) -> SimulatedMachine:
    """Return the machine that a JSON file describes. Raise MeasurerError, which names the field, if
    a field is invalid."""
    return machine_from_json(parse_object(read_text(path), str(path)), str(path))


def machine_from_json(document: dict[str, Any], where: str) -> SimulatedMachine:
    """Return the machine that a JSON object describes. Errors contain `where`, for example the name
    of a file."""
    version = document.get("simulated", SIMULATED_VERSION)
    if version != SIMULATED_VERSION:
        raise MeasurerError(f"{where}: version must be {SIMULATED_VERSION}, got {version!r}")
    defaults = SimulatedMachine()
    known = {f.name: getattr(defaults, f.name) for f in fields(defaults)}
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name == "simulated":
            continue
        if name not in known:
            raise MeasurerError(f"{where}: unknown field {name!r}; there are {', '.join(known)}")
        values[name] = _checked(f"{where}: {name}", value, known[name])
    return SimulatedMachine(**values)


def _checked(where: str, value: Any, like: Any) -> Any:
    if isinstance(like, dict):
        return _checked_rates(where, value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value < 0 or (isinstance(like, int) and not isinstance(value, int)):
        kind = "a whole number" if isinstance(like, int) else "a number"
        raise MeasurerError(f"{where} must be {kind}, at least 0; got {value!r}")
    if value == 0 and where.endswith(("_per_sec", "lanes", "samples", "cache_lines")):
        raise MeasurerError(f"{where} must be above 0; got {value!r}")
    return type(like)(value)


def _checked_rates(where: str, value: Any) -> dict[str, float]:
    failures = [s.value for s in MeasureStatus if s is not MeasureStatus.OK]
    if not isinstance(value, dict):
        raise MeasurerError(f"{where} must be an object of status and share; got {value!r}")
    for status, rate in value.items():
        if status not in failures:
            raise MeasurerError(f"{where}: {status!r} is none of {', '.join(failures)}")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise MeasurerError(f"{where}: the share of {status} must be 0..1; got {rate!r}")
    if sum(value.values()) > 1:
        raise MeasurerError(f"{where}: shares add up to {sum(value.values())}, above 1")
    return {status: float(rate) for status, rate in value.items()}
