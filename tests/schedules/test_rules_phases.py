"""Which expressions are computed a phase at a time, and what is left of them."""

from __future__ import annotations

import random

import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, random_setting, this_machine
from tilewright.schedules.algebra.affine import FloorDiv, Mod
from tilewright.schedules.algebra.scalar import Select, walk
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, Update, leaves, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.operators import build
from tilewright.schedules.primitives import Inline, Reorder, Solve
from tilewright.schedules.rewrites import ReadThrough
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.analysis.stages import StageView, view_stage
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.workload.flops import useful_flops
from tilewright.schedules.workload.workload import Workload

GATHER = (
    "Y[n,h,w,o] += where((h+1-r) % 2 == 0, where((w+1-q) % 2 == 0,"
    " X[n,(h+1-r)//2,(w+1-q)//2,c], 0), 0) * W[r,q,c,o]"
)


def transposed(k: int = 4, stride: int = 2, pad: int = 1, epilogue: str = "") -> Workload:
    sizes = {"H": 5, "W": 6, "CI": 7, "CO": 17, "K": k, "stride": stride, "pad": pad}
    return build("conv2d_transpose_nhwc", sizes, epilogue=epilogue)


def view(workload: Workload, stage: str = "s0") -> StageView:
    return view_stage(workload.normalised(), stage)


def test_phases_are_output_axes_that_inputs_do_not_know_of() -> None:
    found = view(transposed())
    assert [loop.extent for loop in found.spatial] == [1, 5, 2, 6, 2, 17]
    assert [loop.extent for loop in found.reduce] == [2, 2, 7]
    assert sum(isinstance(step, Solve) for step in found.phase_steps) == 2
    for read in found.reads:
        divided = {
            name
            for index in read.index
            for atom, _ in index.terms
            if isinstance(atom, FloorDiv | Mod)
            for name in atom.numerator.vars()
        }
        assert divided <= {"s0.d1i", "s0.d2i"}


def test_the_same_expression_in_notation_is_the_same_thing() -> None:
    tensors = {"X": ("f32", (1, 5, 6, 7)), "W": ("f32", (4, 4, 7, 17))}
    written = from_notation(GATHER, tensors, {"n": 1, "h": 10, "w": 12})
    assert written.key == transposed().key
    other = {"X": ("f32", (2, 5, 6, 7)), "W": ("f32", (3, 5, 7, 17))}
    rectangular = from_notation(GATHER, other, {"n": 2, "h": 9, "w": 13})
    assert [loop.extent for loop in view(rectangular).reduce] == [2, 3, 7]


def test_written_as_a_scatter_the_same_is_left() -> None:
    tensors = {"X": ("f32", (1, 5, 6, 7)), "W": ("f32", (4, 4, 7, 17))}
    scatter = from_notation(
        "Y[n,h,w,o] += where(2*y + r == h + 1, where(2*x + q == w + 1, X[n,y,x,c], 0), 0)"
        " * W[r,q,c,o]",
        tensors, {"n": 1, "h": 10, "w": 12},
    )  # fmt: skip
    found, gathered = view(scatter), view(transposed())
    assert [loop.extent for loop in found.reduce] == [2, 2, 7]
    assert {str(r.index) for r in found.reads} == {str(r.index) for r in gathered.reads}
    assert useful_flops(scatter) == useful_flops(transposed())


def test_zeros_that_a_stage_puts_in_are_taken_out_again() -> None:
    spread = from_notation(
        "U[h,w,c] = where(h % 2 == 0, where(w % 2 == 0, X[h//2,w//2,c], 0), 0);"
        " Y[h,w,o] += U[h+r-2,w+q-2,c] * W[r,q,c,o]",
        {"X": ("f32", (5, 6, 7)), "W": ("f32", (4, 4, 7, 17))}, {"h": 9, "w": 11},
    )  # fmt: skip
    space = space_for(spread, this_machine())
    trace = space.sketches[0].trace(space.sketches[0].default())
    assert sum(isinstance(step, Solve) for step in trace.steps) == 2
    assert isinstance(trace.steps[0], ReadThrough)
    dense = from_notation(
        "Y[h,w,o] += U[h+r-2,w+q-2,c] * W[r,q,c,o]",
        {"U": ("f32", (9, 11, 7)), "W": ("f32", (4, 4, 7, 17))}, {"h": 9, "w": 11},
    )  # fmt: skip
    assert useful_flops(spread) < useful_flops(dense) / 3


def test_a_stage_that_something_else_reads_keeps_its_zeros() -> None:
    spread = from_notation(
        "U[x] = where(x % 2 == 0, X[x//2], 0); Y[x,z] += U[x+r-2] * W[r,z]; V[x] max= U[x+r]",
        {"X": ("f32", (5,)), "W": ("f32", (4, 7))}, {"x": 9, "r": 4},
    )  # fmt: skip
    for sketch in space_for(spread, this_machine()).sketches:
        steps = sketch.trace(sketch.default()).steps
        assert not any(isinstance(step, Inline) for step in steps)


def test_one_and_three_axes() -> None:
    line = from_notation(
        "Y[x,o] += where((x-r) % 3 == 0, X[(x-r)//3,c], 0) * W[r,c,o]",
        {"X": ("f32", (5, 4)), "W": ("f32", (7, 4, 8))}, {"x": 19},
    )  # fmt: skip
    assert [loop.extent for loop in view(line).spatial] == [7, 3, 8]
    volume = from_notation(
        "Y[x,y,z,o] += where((x-r) % 2 == 0, where((y-s) % 2 == 0, where((z-t) % 2 == 0,"
        " X[(x-r)//2,(y-s)//2,(z-t)//2,c], 0), 0), 0) * W[r,s,t,c,o]",
        {"X": ("f32", (3, 3, 3, 2)), "W": ("f32", (2, 2, 2, 2, 8))}, {"x": 6, "y": 6, "z": 6},
    )  # fmt: skip
    assert [loop.extent for loop in view(volume).reduce] == [2]


def test_an_ordinary_convolution_has_no_phases() -> None:
    plain = transposed(stride=1)
    assert view(plain).phase_steps == view(plain).axis_splits == ()


@pytest.mark.parametrize(("k", "stride", "pad"), [(4, 2, 1), (3, 2, 1), (2, 3, 0), (5, 3, 2)])
def test_copies_leave_a_loop_of_plain_products(k: int, stride: int, pad: int) -> None:
    space = space_for(transposed(k, stride, pad), this_machine())
    (sketch, *_) = space.sketches
    nest = lower(space.workload, sketch.trace(sketch.default()))
    (update,) = [leaf for leaf in leaves(nest.body) if isinstance(leaf, Update)]
    if k >= stride:
        assert not any(isinstance(node, Select) for node in walk(update.value))
    assert update.guards == ()


def test_a_ragged_tap_ends_a_loop_outside_of_the_innermost() -> None:
    space = space_for(transposed(3), this_machine())
    (sketch, *_) = space.sketches
    nest = lower(space.workload, sketch.trace(sketch.default()))
    reduced = [loop for loop in loops(nest.body) if loop.reduce and loop.kind is LoopKind.SERIAL]
    assert [bool(loop.bounds) for loop in reduced] == [True, True, False]


def test_phases_with_fewer_taps_are_spread_over_the_threads() -> None:
    for k, uneven in ((3, True), (4, False)):
        space = space_for(transposed(k), this_machine(threads=2))
        (sketch, *_) = space.sketches
        assert isinstance(sketch, ProgramSketch)
        (part,) = sketch.parts
        assert isinstance(part, TileSketch)
        assert part.is_uneven == uneven
        trace = sketch.trace(sketch.default())
        order = next(step.order for step in trace.steps if isinstance(step, Reorder))
        assert (order.index("s0.d3o") < order.index("s0.d1i")) == uneven  # phases take turns


def test_what_follows_is_computed_from_each_tile() -> None:
    space = space_for(transposed(epilogue="bias+relu"), this_machine())
    (sketch, *_) = space.sketches
    text = to_text(lower(space.workload, sketch.trace(sketch.default())))
    assert "alloc s0: f32[1, 1, " in text
    assert "%" not in text.split("s0.acc[")[2].split("\n")[0]


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_divide_the_sum_of_one_output_channel(threads: int, bits: int) -> None:
    """The axes of a divided reduction are split before it is moved into a row of its reader."""
    sizes = {"H": 7, "W": 3, "CI": 32, "CO": 1, "K": 5, "stride": 3, "pad": 1}
    workload = build("conv2d_transpose_nhwc", sizes, epilogue="bias+relu")
    rng, machine = random.Random(0), this_machine(threads, bits)
    for _ in range(4):
        trace = random_setting(rng, workload, machine)
        check_pair(Pair("knobs", workload, trace, threads, bits))


def test_phases_may_be_many() -> None:
    far = from_notation(
        "Y[x] += where((x-r) % 100 == 0, X[(x-r)//100], 0) * W[r]",
        {"X": ("f32", (5,)), "W": ("f32", (100,))}, {"x": 500},
    )  # fmt: skip
    found = view(far)
    assert [loop.extent for loop in found.spatial] == [5, 100]
    assert not found.reduce


@pytest.mark.parametrize("quotient", ["x//2", "x//3", "x%2", "x//6"])
@pytest.mark.parametrize("extents", [(12, 33, 2), (9, 16, 33), (17, 24, 16)])
def test_an_axis_of_a_congruence_and_of_a_quotient_is_split_twice(
    quotient: str, extents: tuple[int, int, int]
) -> None:
    x, k, b = extents
    workload = from_notation(
        f"Y[x,b] += where((k + 5*x + 4) % 6 == 1, A[{quotient},k], 0) * B[k,b]",
        {"A": ("f32", (x, k)), "B": ("f32", (k, b))},
        {"x": x, "k": k, "b": b},
    )
    for sketch in space_for(workload, this_machine()).sketches:
        lower(workload, sketch.trace(sketch.default()))
