"""Traces by hand, from files and from the network: whatever stands in a step, it is applied or it
is a ScheduleError, soon; and what is applied can be compiled."""

from __future__ import annotations

import random
import re
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding as llvm

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedule_fuzz.traces import random_trace
from tests.support.schedules.workloads import bias_relu, convolution, matmul, notation, softmax
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.limits import (
    MAX_ATOMS,
    MAX_COPIES,
    MAX_LOOP_EXTENT,
    MAX_NESTING,
    MAX_STATEMENTS,
)
from tilewright.schedules.lowering.lower import lower, plain_nest, start
from tilewright.schedules.nest.finding import buffers_in
from tilewright.schedules.nest.loop_ir import Nest, loops, walk
from tilewright.schedules.primitives import (
    PRIMITIVES,
    CacheRead,
    Fuse,
    Partition,
    Prefetch,
    Split,
    Stagger,
    TransformLayout,
    Unroll,
)
from tilewright.schedules.primitives.overlap import MAX_CUTS
from tilewright.schedules.primitives.primitive import spelling_of
from tilewright.schedules.rewrites import REWRITES
from tilewright.schedules.trace import Step, Trace
from tilewright.tuner.emit.kernel import generated

WORKLOADS = (matmul(), bias_relu(), softmax(), convolution(), convolution().allowing(0.5))

POWERS = [2**n + d for n in (3, 6, 12, 16, 31, 32, 47, 48, 62, 63, 64, 200) for d in (-1, 0, 1)]
INTEGERS = st.sampled_from([0, 1, 2, 3, 5, 10**400, *POWERS]).flatmap(
    lambda n: st.sampled_from([n, -n])
)
TEXTS = st.sampled_from(
    ["", "s0", "q", ".", "s0.d0.t", "\x00", '"}\n', "%x", "é", "-1", "a" * 5000]
)


KINDS: tuple[type[Step], ...] = (*PRIMITIVES, *REWRITES)


def value_of(hint: Any, names: list[str]) -> st.SearchStrategy[Any]:
    """Any value of a field's type, names mostly ones that there are."""
    text = st.sampled_from(names) | st.sampled_from(names) | TEXTS
    if hint is str:
        return text
    if hint is int:
        return INTEGERS
    if hint is bool:
        return st.booleans()
    if hint == tuple[str, ...]:
        return st.lists(text, max_size=4).map(tuple)
    if hint == tuple[int, ...]:
        return st.lists(INTEGERS, max_size=4).map(tuple)
    return st.lists(st.tuples(INTEGERS, INTEGERS), max_size=4).map(tuple)


def step_of(kind: type[Step], names: list[str]) -> st.SearchStrategy[Step]:
    return st.builds(kind, **{f: value_of(h, names) for f, h in fields_of(kind).items()})


def fields_of(kind: type[Step]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def names_of(nest: Nest) -> list[str]:
    return [*(loop.var for loop in loops(nest.body)), *buffers_in(nest)]


def as_json(step: Step) -> list[dict[str, Any]]:
    """What somebody may send: `Trace.to_json`, without the rules of `spelling_of`."""
    spelling = spelling_of(step)
    return [{"do": spelling.name, **{name: getattr(step, name) for name in spelling.fields}}]


@given(st.data())
@settings(max_examples=250)
def test_a_step_with_any_arguments_is_applied_or_refused(data: st.DataObject) -> None:
    workload = data.draw(st.sampled_from(WORKLOADS))
    rng = random.Random(data.draw(st.integers(0, 2**20)))
    before, _ = random_trace(rng, workload, 4)
    rewritten, rest = start(workload, before)
    nest = rest.apply(plain_nest(rewritten))
    kind = data.draw(st.sampled_from(KINDS))
    step = data.draw(step_of(kind, names_of(nest)))
    steps = (step, *before.steps) if kind in REWRITES else (*before.steps, step)
    try:
        made = lower(workload, Trace(steps))
        text = generated(workload, Trace(steps), this_machine(2)).text
    except ScheduleError:
        return
    assert sum(1 for _ in walk(made.body)) <= MAX_STATEMENTS
    llvm.parse_assembly(text).verify()


@given(st.data())
@settings(max_examples=250)
def test_steps_are_read_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    document = as_json(data.draw(step_of(kind, ["s0.d0", "s0"])))
    anything = st.none() | st.booleans() | st.floats() | INTEGERS | TEXTS | st.lists(INTEGERS)
    if data.draw(st.booleans()):
        field = data.draw(st.sampled_from(sorted(document[0])))
        document[0][field] = data.draw(anything)
    try:
        trace = Trace.from_json(document)
    except ScheduleError:
        return
    assert Trace.from_json(trace.to_json()) == trace


THREE_AXES = notation("Y[i,j] += X[i,j,k]", X="f32[4000,4000,4000]")
"""Loops long enough to be cut and divided many times."""


def splits_and_fuses(count: int) -> list[Step]:
    """A loop divided by numbers that have nothing in common, and made one again."""
    steps: list[Step] = []
    loop = "s0.r0"
    for n in range(count):
        steps += [Split(loop, (3000, 2999, 1777)[n % 3]), Fuse(f"{loop}o", f"{loop}i")]
        loop += "of"
    return steps


def cut(loop: str, times: int) -> list[Step]:
    return [Partition(loop, 3999 - n) for n in range(times)]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([Split("s0.d0", 2**64)], "factor must be 1..8000, the loop has 4000"),
        ([Split("s0.d0", 8001)], "factor must be 1..8000, the loop has 4000"),
        ([Partition("s0.d0", 2**64)], "at must be 1..3999"),
        ([Prefetch("i0", "s0.r0", 2**31)], "ahead be 1..2147483647"),
        ([Prefetch("i0", "s0.d1", 1, "s0.r0", "", 2**31)], "ahead and step be 1..2147483647"),
        (
            [
                CacheRead("i0", "s0.d1", "p"),
                TransformLayout("p", ((2, 8001),), ((0, 0), (1, 0), (2, 1), (2, 2))),
            ],
            "dimension 2 may be divided by 1..8000",
        ),
        ([Unroll("s0.r0"), Unroll("s0.d1")], "unrolling makes 16000000 copies"),
        (
            [*cut("s0.r0", 60), *cut("s0.d1", 60), *cut("s0.d0", 60)],
            f"statements, at most {MAX_STATEMENTS} are allowed",
        ),
        (
            [Unroll("s0.r0"), *cut("s0.d1", 20)],
            f"unrolled loops make 84000 statements, at most {MAX_COPIES} are allowed",
        ),
        (
            [Split("s0.r0" + "o" * n, 1) for n in range(100)],
            f"would be nested {MAX_NESTING + 1} deep, at most {MAX_NESTING} are allowed",
        ),
        (splits_and_fuses(12), f"at most {MAX_ATOMS} are allowed"),
    ],
)
def test_what_would_be_too_large_is_refused(steps: list[Step], message: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(message)):
        lower(THREE_AXES, Trace(tuple(steps)))


def test_a_fused_loop_has_a_greatest_extent() -> None:
    nest = plain_nest(
        notation("Y[y] += X[i] * Z[j]", {"y": 1}, X="f32[16777217]", Z="f32[16777217]")
    )
    with pytest.raises(ScheduleError, match=f"more than {MAX_LOOP_EXTENT} iterations"):
        Fuse("s0.r0", "s0.r1").apply(nest)


def test_a_loop_is_cut_into_few_staggered_steps() -> None:
    nest = plain_nest(notation("Y[i,j] = X[i,j]", X="f32[64,64]"))
    steps = (*(Partition(f"s0.d1{'.t' * n}", 1) for n in range(18)),)
    starts = tuple(f"s0.d1{'.t' * n}" for n in range(1, 18))
    with pytest.raises(ScheduleError, match=f"at most {MAX_CUTS} starts are allowed, found 17"):
        Stagger("s0.d0", starts).apply(Trace(steps).apply(nest))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([{"do": "Split", "loop": "s0.d0", "factor": 10**5000}], "found one of 16610 bits"),
        ([{"do": 10**5000}], "found a value of type int"),
        ([{"do": "Split", "loop": [10**5000], "factor": 1}], "must be str, found a value of type"),
        ([{"do": "Split", "loop": "x" * 10**6, "factor": 1}], "at most 4096 characters, found"),
        ([{"do": "Reorder", "order": ["s0.d0"] * 30_000}], "at most 20000 entries, found 30000"),
    ],
)
def test_what_no_step_can_use_is_not_read(document: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Trace.from_json(document)
