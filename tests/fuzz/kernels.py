"""Computations compiled by schedules of every origin: all values are those of `evaluate`."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.interpreter.interpret import interpret_for
from tests.support.schedule_fuzz.check import (
    CACHES,
    INTERPRETED_EXECUTIONS,
    MAX_BYTES,
    MAX_EXECUTIONS,
    executions,
    run_kernel,
    this_machine,
)
from tests.support.schedule_fuzz.traces import random_trace
from tilewright.costmodel.counts.counting import program_counts
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Allocate, walk
from tilewright.schedules.reference.evaluate import evaluate as product_reference
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import compile_kernel
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.search.default import default_trace

from .computation import Computation, indexing_tensors
from .drawing import EXTREMES
from .evaluate import Number, evaluate, to_bf16
from .fronts import Finding, front_ends

Array = npt.NDArray[Any]

DEFAULTS_CHOSEN = 0.1
"""Of which part of the documents the default is looked for as users get it: thousands of settings
are priced for that."""

_NUMPY = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32,
          "i8": np.int8, "u8": np.uint8}  # fmt: skip


def check_document(computation: Computation, seed: int, settings: int = 2) -> str:
    """The default schedule and `settings` others of the space: "run", or why there is nothing to.

    The product's own reference and the interpreter of loop nests are held to the same values.
    """
    rng = random.Random(seed)
    workload = _workload(computation, rng)
    if workload is None:
        return "refused"
    threads, bits = rng.choice((1, 2)), rng.choice((128, 256, 256, 512))
    target = this_machine(threads, bits, rng.choice(CACHES))
    arrays, expected = _case(computation, workload, rng)
    given = [arrays[t.name] for t in workload.inputs]
    with np.errstate(all="ignore"):
        found = product_reference(workload, given)
    _judge("the reference", workload, found, expected)
    space = space_for(workload, target)
    if space.dropped:
        raise Finding(f"sketches are dropped: {space.dropped}")
    candidates = [space.trace(space.default())]
    if rng.random() < DEFAULTS_CHOSEN:
        candidates.append(default_trace(workload, target))
    drawn = np.random.default_rng(seed)
    for _ in range(settings):
        sketch = rng.choice(space.sketches)
        sizes = [len(knob.values) for knob in sketch.knobs]
        points = drawn.integers(0, sizes, (200, len(sizes)))
        feasible = points[sketch.feasible(points)]
        _judge_costs(space, space.sketches.index(sketch), feasible)
        setting = [int(i) for i in feasible[0]] if len(feasible) else sketch.default()
        try:
            candidates.append(sketch.trace(setting))
        except ScheduleError:  # primitives have the last word
            continue
    for number, trace in enumerate(dict.fromkeys(candidates)):
        who = "a setting" if number else "default"
        _check_trace(workload, trace, target, given, expected, who)
    return "run"


def check_space(computation: Computation, seed: int, settings: int = 20) -> str:
    """The space alone, on three targets: nothing is dropped, and every sketch has a price."""
    rng, drawn = random.Random(seed), np.random.default_rng(seed)
    workload = _workload(computation, rng)
    if workload is None:
        return "refused"
    narrow = (2, rng.choice((128, 256)))
    for (threads, bits), caches in (((1, 512), CACHES[0]), *((narrow, one) for one in CACHES)):
        space = space_for(workload, this_machine(threads, bits, caches))
        if space.dropped:
            raise Finding(f"sketches are dropped: {space.dropped}")
        for number, sketch in enumerate(space.sketches):
            points = drawn.integers(
                0, [len(k.values) for k in sketch.knobs], (settings, len(sketch.knobs))
            )
            _judge_costs(space, number, points[sketch.feasible(points)])
    return "made"


def _judge_costs(space: ScheduleSpace, sketch: int, settings: IntArray) -> None:
    """What the cost model says of feasible settings and of the default: numbers, none below 0."""
    default = np.asarray([space.sketches[sketch].default()])
    settings = np.concatenate([default, settings])
    for name, values in program_counts(space.sketches[sketch], settings).items():
        if not np.all(np.asarray(values) >= 0):
            raise Finding(f"{space.sketches[sketch].name}: {name} is {values}")
    if not np.all(np.isfinite(Prior(space).log2_secs(sketch, settings))):
        raise Finding(f"{space.sketches[sketch].name}: no time is predicted")


def check_trace(computation: Computation, seed: int, most_steps: int = 20) -> str:
    """A random trace, illegal steps refused on the way."""
    rng = random.Random(seed)
    workload = _workload(computation, rng)
    if workload is None:
        return "refused"
    trace, _ = random_trace(rng, workload, most_steps)
    try:
        lower(workload, trace)
    except ScheduleError:
        return "illegal"
    arrays, expected = _case(computation, workload, rng)
    given = [arrays[t.name] for t in workload.inputs]
    target = this_machine(rng.choice((1, 2)), rng.choice((128, 256, 512)))
    return _check_trace(workload, trace, target, given, expected, "a random trace")


def _workload(computation: Computation, rng: random.Random) -> Workload | None:
    """By one of the front ends; None if it refuses what it cannot prove."""
    from tilewright.schedules import WorkloadError

    name = rng.choice(("json", "python", "notation"))
    try:
        return front_ends(computation, rng.getrandbits(30))[name]()
    except WorkloadError as error:
        if error.code in ("out_of_bounds", "unused_axis"):
            return None
        raise


def _check_trace(
    workload: Workload,
    trace: Trace,
    target: Any,
    given: list[Array],
    expected: Mapping[str, list[Number]],
    who: str,
) -> str:
    try:
        nest = lower(workload, trace)
        times = executions(nest)
        held = sum(s.buffer.bytes for s in walk(nest.body) if isinstance(s, Allocate))
        if times > MAX_EXECUTIONS or held > MAX_BYTES:
            return "too large"
        if times <= INTERPRETED_EXECUTIONS:
            _judge(f"{who}, interpreted", workload, interpret_for(workload, nest, given), expected)
        kernel = compile_kernel(workload, trace, target)
        case = Case(InputKind.INTEGERS, 0, False, tuple(given), ())
        for poison in (0xA5, 0xFF):
            found = run_kernel(kernel, workload, case, poison)
            _judge(f"{who}, compiled", workload, found, expected)
    except Exception as error:
        error.add_note(f"trace: {trace.to_json()}; target: {target.threads} threads,"
                       f" {target.vector_bits} bits")  # fmt: skip
        raise
    return "run"


def _case(
    computation: Computation, workload: Workload, rng: random.Random
) -> tuple[dict[str, Array], dict[str, list[Number]]]:
    """Inputs in the types of buffers, and what every stage is."""
    draw = np.random.default_rng(rng.getrandbits(32))
    kind = rng.random()
    arrays: dict[str, Array] = {}
    plain: dict[str, Array] = {}
    indexing = indexing_tensors(computation.stages)
    for tensor in computation.inputs:
        if tensor.dtype in ("i8", "u8", "i32", "i64"):
            low = 0 if tensor.dtype == "u8" else -9
            high = 10
            if kind > 0.7:
                low, high = (0, 256) if tensor.dtype == "u8" else (-128, 128)
            whole = draw.integers(low, high, tensor.shape)
            if tensor.name in indexing and tensor.dtype in ("i32", "i64"):
                far = draw.choice((31, 62) if tensor.dtype == "i64" else (29,), tensor.shape)
                whole += np.where(draw.random(tensor.shape) < 0.1, 2 << (far - 1), 0)
            arrays[tensor.name] = whole.astype(_NUMPY[tensor.dtype])
            plain[tensor.name] = arrays[tensor.name]
            continue
        values: Array = draw.integers(-4, 5, tensor.shape).astype(np.float64)
        if kind > 0.85:
            values = draw.normal(size=tensor.shape)
        elif kind > 0.7:
            values = np.abs(values) + 1
        if kind > 0.95:
            extreme = draw.choice(np.asarray(EXTREMES), tensor.shape)
            values = np.where(draw.random(tensor.shape) < 0.3, extreme, values)
        values = values if tensor.dtype == "f64" else values.astype(np.float32)
        if tensor.dtype == "bf16":
            flat = [to_bf16(float(v)) for v in values.reshape(-1)]
            values = np.array(flat, np.float32).reshape(tensor.shape)
            arrays[tensor.name] = (values.view(np.uint32) >> 16).astype(np.uint16)
        elif tensor.dtype == "f16":
            with np.errstate(over="ignore"):
                arrays[tensor.name] = values.astype(np.float16)
            values = arrays[tensor.name].astype(np.float32)
        else:
            arrays[tensor.name] = values
        plain[tensor.name] = values
    return arrays, evaluate(computation, plain)


def _judge(
    who: str, workload: Workload, outputs: Sequence[Array], expected: Mapping[str, list[Number]]
) -> None:
    """Finding at the first element that is not what it must be."""
    for tensor, array in zip(workload.output_tensors, outputs, strict=True):
        if array.dtype == np.uint16:  # bf16, as its bits
            array = (array.astype(np.uint32) << 16).view(np.float32)  # noqa: PLW2901
        wanted = expected[tensor.name]
        got = array.reshape(-1).tolist()
        if len(got) != len(wanted):
            raise Finding(f"{who}: {tensor.name} has {len(got)} elements, not {len(wanted)}")
        for at, (value, right) in enumerate(zip(got, wanted, strict=True)):
            if right is None or value == right[0]:
                continue
            number, error = right
            if math.isnan(value) or math.isinf(value) or not abs(value - number) <= 2 * error:
                raise Finding(
                    f"{who}: element {at} of {tensor.name} is {value!r}, must be {number!r}"
                    f" within {error:.3g}"
                )
