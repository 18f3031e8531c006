"""No sketch is lost: primitives accept the default of each, or of a setting near it; what they
refuse altogether is named."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from benchmarks.suite.operator_suite import constant_cases, suite_cases
from benchmarks.suite.registry import workload_of
from tests.support.interpreter.interpret import interpret_for
from tests.support.paths import example_target
from tests.support.schedule_fuzz.workloads import random_workload
from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.algebra.comparisons import less
from tilewright.schedules.arrays import BoolArray, IntArray
from tilewright.schedules.errors import ScheduleError, require
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower, plain_nest
from tilewright.schedules.nest.coverage import is_written_whole
from tilewright.schedules.nest.finding import buffers_in
from tilewright.schedules.nest.loop_ir import Stmt, StoreElement, loops, transform
from tilewright.schedules.primitives import Fuse, Reorder, Split, TransformLayout
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.sketches import program, space_for
from tilewright.schedules.sketches.accepted import accepted_settings, nearby
from tilewright.schedules.sketches.groups import Stages
from tilewright.schedules.sketches.knobs import PartSketch
from tilewright.schedules.sketches.rules import alone
from tilewright.schedules.sketches.writer import TraceWriter
from tilewright.schedules.space import DroppedSketch, Knob
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

SUITE = {case.name: case for case in (*suite_cases(), *constant_cases())}

Tensors = dict[str, tuple[str, tuple[int, ...]]]

LOST: dict[str, tuple[str, Tensors, dict[str, int], str]] = {
    "prefetches of far taps": (
        "Y[q,p] += X[c,q-j]*W[c,p+256*j]", {"X": ("f32", (128, 64)), "W": ("f32", (128, 5632))},
        {"q": 64, "p": 4096, "j": 7}, "tile",
    ),
    "taps that go backwards": (
        "Y[q,p] += X[c,q+j]*W[c,p-j+2]", {"X": ("f32", (256, 66)), "W": ("f32", (256, 4096))},
        {"q": 64, "p": 4096, "j": 3}, "tile",
    ),
    "a reduction shorter than a vector": (
        "Y[q,p] += X[q,c,j]*W[c,2*p+j]", {"X": ("f32", (16, 256, 3)), "W": ("f32", (256, 1026))},
        {"q": 16, "p": 512, "j": 3}, "inner_product",
    ),
    "a fused walk around an axis of one": (
        "T[a,b,c] = X[a,b,c] + Z[c,a]; Y[a,c] max= T[a,b,c]",
        {"X": ("f32", (11, 1, 7)), "Z": ("f32", (7, 11))}, {}, "rows",
    ),
    "rows that read unrelated places": (
        "T[i,j] min= A[k,i,j]; Y[i] min= T[i,2*k] * T[i,k+2*i-1]",
        {"A": ("f64", (31, 13, 5))}, {"k": 3}, "rows",
    ),
    "an axis of eight in a vector of two": (
        "Y[a,b,c] *= min(X[r,b,c], X[0-b,c//8,a])", {"X": ("f32", (2, 8, 2))},
        {"a": 17, "r": 2, "b": 8, "c": 2}, "tile",
    ),
    "axes of one iteration in another order": (
        "Y[a,b,c,d,e] = A[e,c,d,a,b] + A[d,c,e,a,b]", {"A": ("f32", (1, 4, 1, 9, 8))},
        {"a": 9, "b": 8, "c": 4, "d": 1, "e": 1}, "transpose",
    ),
    "two sums that conditions solve": (
        "T[a,b,c] += A[k,a,b,c] * B[c,a]; Y[x,y] += where(k==0, where(l==0, T[x,2*l,2*k], 0), 0)"
        " * where(k<1, T[k+l,2*k,x+1], 0)",
        {"A": ("i8", (65, 13, 2, 7)), "B": ("i8", (7, 13))},
        {"x": 1, "y": 3, "k": 7, "l": 33}, "rows",
    ),
}  # fmt: skip


IN_ONE_SETTING = "an axis of eight in a vector of two"
"""What is refused in it is no matter of structure: a division that guards decide, not loops."""

LARGE = ("prefetches of far taps", "taps that go backwards", "a reduction shorter than a vector")


def lost(name: str) -> tuple[Workload, str]:
    text, tensors, ranges, kind = LOST[name]
    return from_notation(text, tensors, ranges), kind


@pytest.mark.parametrize("name", SUITE)
def test_no_sketch_of_the_suite_is_dropped(name: str) -> None:
    workload = workload_of(SUITE[name])
    for threads in (1, 2):
        assert space_for(workload, example_target("znver5", threads)).dropped == ()


@pytest.mark.parametrize("seed", range(40))
def test_no_sketch_of_a_random_workload_is_dropped(seed: int) -> None:
    workload = random_workload(random.Random(f"dropped {seed}"))
    for one in (target(1, 512, 32), target(2)):
        assert space_for(workload, one).dropped == ()


@pytest.mark.parametrize("name", LOST)
def test_what_was_lost_is_there(name: str) -> None:
    workload, kind = lost(name)
    for one in (example_target("znver5", 1), example_target("x86-64-v3", 2)):
        space = space_for(workload, one)
        assert space.dropped == ()
        assert any(kind in sketch.name for sketch in space.sketches)


@pytest.mark.parametrize("name", [name for name in LOST if name != IN_ONE_SETTING])
def test_feasible_settings_of_what_was_lost_are_legal(name: str) -> None:
    space = space_for(lost(name)[0], example_target("znver5", 1))
    for sketch in space.sketches:
        settings = drawn(sketch, 2000)
        for row in settings[sketch.feasible(settings)][:8]:
            lower(space.workload, sketch.trace([int(i) for i in row]))


@pytest.mark.parametrize("name", [name for name in LOST if name not in LARGE])
def test_what_was_lost_computes_the_expression(name: str) -> None:
    space = space_for(lost(name)[0], target(1, 512, 32))
    rng = np.random.default_rng(3)
    given = [rng.integers(-3, 4, t.shape).astype(t.dtype.numpy) for t in space.workload.inputs]
    (right,) = evaluate(space.workload, given)
    for sketch in space.sketches:
        nest = sketch.lowered(sketch.default())[1]
        (found,) = interpret_for(space.workload, nest, given)
        assert np.array_equal(found, right)


def test_where_a_default_is_refused_the_nearest_setting_stands_for_it() -> None:
    space = space_for(lost(IN_ONE_SETTING)[0], target(1, 512, 32))
    (sketch,) = (x for x in space.sketches if x.name == "tile")
    assert isinstance(sketch, program.ProgramSketch)
    (part,) = sketch.parts
    changed = [a != b for a, b in zip(sketch.default(), part.default(), strict=True)]
    assert 1 <= sum(changed) <= 2
    assert sketch.feasible(np.asarray([sketch.default()]))[0]
    assert sketch.single_part(0).default() == sketch.default()


@dataclass(frozen=True)
class Refused:
    """A part of which primitives accept nothing but the settings `accepts`."""

    workload: Workload
    accepts: tuple[tuple[int, ...], ...] = ()
    name: str = "refused"
    knobs: tuple[Knob, ...] = (Knob("a", (0, 1, 2, 3)), Knob("b", (0, 1, 2, 3, 4, 5, 6, 7)))

    def default(self) -> tuple[int, ...]:
        return (0, 0)

    def feasible(self, settings: IntArray) -> BoolArray:
        return np.asarray(settings[:, 0] != 2)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        require(tuple(setting) in self.accepts, "Step()", f"not {tuple(setting)}")


def test_settings_are_tried_by_their_distance_if_they_are_feasible() -> None:
    part = Refused(lost("rows that read unrelated places")[0])
    found = list(nearby(part, (0, 0)))  # type: ignore[arg-type]  # only what a default needs
    assert found[:3] == [(0, 1), (1, 0), (0, 2)] or found[:3] == [(1, 0), (0, 1), (0, 2)]
    assert all(setting[0] != 2 for setting in found)
    assert len(set(found)) == len(found)


def test_a_sketch_of_which_nothing_is_accepted_is_named_with_the_reason() -> None:
    workload = lost("rows that read unrelated places")[0]
    one = Refused(workload, ((0, 0),)), Refused(workload, ((1, 1),))
    assert accepted_settings(workload, (), one) == ((0, 0), (1, 1))  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"Step\(\): not \(0, 0\)"):
        accepted_settings(workload, (), (Refused(workload),))  # type: ignore[arg-type]


def test_a_space_says_which_sketches_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = lost("rows that read unrelated places")[0]

    def refused(*given: object) -> list[list[tuple[Refused, ...]]]:
        return [[(Refused(workload),)]]

    monkeypatch.setattr(program, "covers", refused)
    space = space_for(workload, target())
    assert space.dropped == (DroppedSketch("refused", "Step(): not (0, 0)"),)
    assert [sketch.name for sketch in space.sketches] == ["rows+rows"]


def test_a_stage_without_a_legal_sketch_leaves_the_others_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = notation(
        "T[i,j] += A[i,k] * B[k,j]; S[i,j] = cumsum(T[i,j], j)", A="f32[9,7]", B="f32[7,21]"
    ).normalised()

    def refused(stages: Stages) -> list[tuple[PartSketch, ...]]:
        product, scan = alone(stages)
        return [product, (Refused(workload), scan[-1])]  # type: ignore[list-item]

    monkeypatch.setattr(program, "covers", lambda stages: [[(Refused(workload),)]])
    monkeypatch.setattr(program, "alone", refused)
    (sketch,) = space_for(workload, target()).sketches
    assert sketch.name == "tile+plain"
    check_meaning(workload, lower(workload, sketch.trace(sketch.default())))


def test_tiles_of_a_large_stage_in_one_walk_are_told_apart_by_digits() -> None:
    """Batches are one loop, blocks of an axis end inside: 1.8 million iterations, of which 144 say
    what there is to say."""
    workload = from_notation(
        "T[a,b,c,d] = X[a,b,c,d] * 2; Y[a,b,c] += T[a,b,c,d]", {"X": ("f32", (28, 28, 128, 16))}
    ).normalised()
    steps = (
        Split("s0.d2", 32), Split("s0.d2i", 6), Split("s0.d2ii", 3), Split("s0.d3", 8),
        Reorder(("s0.d0", "s0.d1", "s0.d2o", "s0.d2io", "s0.d3o", "s0.d2iio")),
        Fuse("s0.d0", "s0.d1"), Fuse("s0.d0f", "s0.d2o"), Fuse("s0.d0ff", "s0.d2io"),
        Fuse("s0.d0fff", "s0.d3o"),
    )  # fmt: skip
    nest = Trace(steps).apply(plain_nest(workload))
    assert is_written_whole(nest, buffers_in(nest)["s0"])


@pytest.mark.parametrize("seed", range(20))
def test_what_a_stage_is_divided_into_writes_all_of_it(seed: int) -> None:
    """Whatever divides the loops of a stage, every element is written; with a layout in parts that
    do not divide, or a guard that ends too early, some are not."""
    rng = random.Random(seed)
    a, b = rng.choice((5, 13, 24)), rng.choice((7, 12, 16))
    workload = from_notation(
        "T[i,j] = X[i,j] * 2; Y[i] += T[i,j]", {"X": ("f32", (a, b))}
    ).normalised()
    steps: list[Split | Fuse] = [Fuse("s0.d0", "s0.d1")] if rng.random() < 0.5 else []
    nest = Trace(tuple(steps)).apply(plain_nest(workload))
    for _ in range(3):
        names = [x.var for x in loops(nest.body) if x.var.startswith("s0")]
        nest = Split(rng.choice(names), rng.choice((2, 3, 4, 5, 8))).apply(nest)
    buffer = buffers_in(nest)["s0"]
    assert is_written_whole(nest, buffer)
    padded = TransformLayout("s0", ((0, a - 1),), ((0, 1), (0, 2), (1, 0))).apply(nest)
    assert not is_written_whole(padded, buffers_in(padded)["s0"])

    def ended(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, StoreElement) and stmt.buffer == "s0":
            return (replace(stmt, guards=(*stmt.guards, less(stmt.index[0] + 1, a))),)
        return None

    assert not is_written_whole(replace(nest, body=transform(nest.body, ended)), buffer)
