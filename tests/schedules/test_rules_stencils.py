"""Stages that read neighbours of each other are computed in tiles with halos: which they are, what
their loops look like, and that they mean what the expression does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.spaces import SMALL, drawn, settings, target
from tests.support.schedules.stencils import stencil_program
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules.frontend.expr import (
    compute,
    maximum,
    padded,
    placeholder,
    reduce_axis,
)
from tilewright.schedules.frontend.expr import sum as sum_over
from tilewright.schedules.frontend.expr_core import Expr, Index
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import For, LoopKind, Nest, buffers_allocated, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.rewrites import CopyOutput
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.stencils.sketch import StencilSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload


def blur(rows: int, columns: int, dtype: str = "f32") -> Workload:
    """Sums of three neighbours along rows, then along columns."""
    image = placeholder("X", (rows + 2, columns + 2), dtype)
    across = compute(
        "a",
        (rows + 2, columns),
        lambda y, x: image[y, x] + image[y, x + 1] + image[y, x + 2],
    )
    out = compute(
        "Y", (rows, columns), lambda y, x: across[y, x] + across[y + 1, x] + across[y + 2, x]
    )
    return Workload.of(out, inputs=[image]).normalised()


def corners(rows: int, columns: int) -> Workload:
    """Two differences, their squares, and a product of sums of the squares."""
    image = placeholder("X", (rows + 3, columns + 3))
    wide = (rows + 1, columns + 1)

    def rest(y: Index, x: Index) -> Expr:
        return image[y + 1, x + 1] - 2 * image[y + 2, x + 2]

    right = compute("u", wide, lambda y, x: image[y, x + 1] - image[y, x] + rest(y, x))
    down = compute("v", wide, lambda y, x: image[y + 1, x] - image[y, x] - rest(y, x))
    p = compute("p", wide, lambda y, x: right[y, x] * right[y, x])
    q = compute("q", wide, lambda y, x: down[y, x] * down[y, x])
    s = compute("s", (rows, columns), lambda y, x: p[y, x] + p[y, x + 1] + p[y + 1, x])
    t = compute("t", (rows, columns), lambda y, x: q[y, x] + q[y, x + 1] + q[y + 1, x])
    out = compute("Y", (rows, columns), lambda y, x: s[y, x] * t[y, x] - s[y, x] - t[y, x])
    return Workload.of(out, inputs=[image]).normalised()


def windows(rows: int, columns: int) -> Workload:
    """Sums of squares over windows of three by three elements, then their differences."""
    image = placeholder("X", (rows + 2, columns + 3))
    square = compute("a", (rows + 2, columns + 3), lambda y, x: image[y, x] * image[y, x])
    r, s = reduce_axis(3, "r"), reduce_axis(3, "s")
    box = compute(
        "b", (rows, columns + 1), lambda y, x: sum_over(square[y + r, x + s], axis=(r, s))
    )
    out = compute("Y", (rows, columns), lambda y, x: box[y, x + 1] - box[y, x])
    return Workload.of(out, inputs=[image]).normalised()


def part_of(sketch: Sketch) -> StencilSketch | None:
    assert isinstance(sketch, ProgramSketch)
    return next((part for part in sketch.parts if isinstance(part, StencilSketch)), None)


def stencils_of(workload: Workload, machine: Target | None = None) -> Sketch:
    """The first sketch of the space, which must be one of stencils."""
    sketch = space_for(workload, machine or target()).sketches[0]
    assert sketch.name == "stencils"
    return sketch


def with_knobs(sketch: Sketch, **values: int) -> tuple[int, ...]:
    setting = [*sketch.default()]
    for n, knob in enumerate(sketch.knobs):
        if knob.name in values:
            setting[n] = knob.values.index(values[knob.name])
    assert sketch.feasible(np.asarray([setting]))[0]
    return tuple(setting)


def nest_with(workload: Workload, **values: int) -> Nest:
    """The nest with these knobs, and with as few stages inlined as the space offers."""
    sketch = stencils_of(workload)
    part = part_of(sketch)
    assert part is not None
    fewest = min(range(len(part.inlined)), key=lambda n: len(part.inlined[n]))
    values = {"inline": fewest, **values}
    return lower(workload, sketch.trace(with_knobs(sketch, **values)))


@pytest.mark.parametrize("seed", range(40))
def test_random_stencils_mean_the_same(seed: int) -> None:
    workload = stencil_program(random.Random(seed))
    for machine in (target(1), target(2, 512, 32), SMALL):
        space = space_for(workload, machine)
        assert not space.dropped
        for sketch in space.sketches:
            if part_of(sketch):
                for setting in settings(sketch, 4, seed):
                    check_meaning(workload, lower(workload, sketch.trace(setting)))


def test_random_programs_have_stencils_of_every_kind() -> None:
    """Otherwise the test above would test little."""
    found = [
        part
        for seed in range(60)
        for sketch in space_for(stencil_program(random.Random(seed)), target()).sketches
        if (part := part_of(sketch))
    ]
    assert len(found) > 30
    assert any(len(part.variants) > 1 for part in found)
    assert any(view.is_reduction for part in found for view in part.stages)
    assert any(read.padded for part in found for view in part.stages for read in view.reads)
    assert {len(part.group.last.spatial) for part in found} == {1, 2, 3}
    several = [part for part in found if part.group.more_results]
    assert len(several) > 10
    assert any(
        view.shape != part.group.last.shape for part in several for view in part.group.results
    )
    assert any(
        not index.is_linear_in(loop.name)
        for part in found
        if part.group.producers
        for view in part.stages
        for read in view.reads
        for index in read.index
        for loop in view.spatial
    )
    copies = [
        sketch
        for seed in range(60)
        for sketch in space_for(stencil_program(random.Random(seed)), target()).sketches
        if isinstance(sketch, ProgramSketch)
        and any(isinstance(step, CopyOutput) for step in sketch.rewrites)
    ]
    assert copies


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 13, 17, 41])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 13, 17])
def test_images_of_every_size_mean_the_same(rows: int, columns: int) -> None:
    for workload in (blur(rows, columns), blur(rows, columns, "u8"), windows(rows, columns)):
        for sketch in space_for(workload, target()).sketches:
            for setting in settings(sketch, 2, rows):
                check_meaning(workload, lower(workload, sketch.trace(setting)))


def test_a_blur_in_tiles(golden: Golden) -> None:
    workload = blur(10, 37)
    nest = nest_with(workload, tile_rows=4, tile_vectors=2, rows_at_once=2)
    assert to_text(nest) == golden
    check_meaning(workload, nest)


def test_sums_over_windows_in_tiles(golden: Golden) -> None:
    workload = windows(8, 32)
    nest = nest_with(workload, tile_rows=4, tile_vectors=2, rows_at_once=1)
    assert to_text(nest) == golden
    check_meaning(workload, nest)


def test_tiles_have_a_buffer_for_the_rows_and_columns_of_the_halo() -> None:
    nest = nest_with(blur(32, 64), tile_rows=8, tile_vectors=2)
    assert {buffer.shape for buffer in buffers_allocated(nest.body)} == {(10, 16)}


def test_threads_divide_strips_of_rows() -> None:
    nest = nest_with(blur(32, 64), tile_rows=8, tile_vectors=2, parallel=1)
    (strips,) = [loop for loop in nest.body if isinstance(loop, For)]
    assert (strips.kind, strips.extent) == (LoopKind.PARALLEL, 4)


def test_full_tiles_have_no_masks() -> None:
    """Only the vectors of the last tile of a strip may be partial."""
    nest = nest_with(blur(32, 45), tile_rows=8, tile_vectors=2, parallel=0)
    (strips,) = (stmt for stmt in nest.body if isinstance(stmt, For))
    (tiles,) = [loop for loop in loops(strips.body) if loop.var.endswith("d1o")]
    assert tiles.extent == 2
    assert not any(leaf.guards for leaf in tiles.inside.leaves if not hasattr(leaf, "far"))


def test_stages_that_are_used_once_and_cheap_ones_are_inlined() -> None:
    workload = corners(18, 64)
    part = part_of(stencils_of(workload))
    assert part is not None
    stored = [[view.operations for view in one.producers] for one in part.variants]
    assert [5, 5] in stored  # the squares of the differences: all else is used once


def test_all_stages_may_be_inlined_if_that_repeats_few_operations() -> None:
    part = part_of(stencils_of(blur(32, 64)))
    assert part is not None
    assert sorted(part.inlined) == [(), ("s0",)]


def test_one_stage_with_neighbours_in_several_rows_has_tiles() -> None:
    workload = notation("Y[y,x] = X[y,x] + X[y+2,x]", {"y": 9, "x": 33}, X="f32[11,33]")
    names = [sketch.name for sketch in space_for(workload.normalised(), target()).sketches]
    assert "stencils" in names
    assert "rows" in names


@pytest.mark.parametrize(
    "text",
    [
        "T[y,x] = X[y,x] * 2; Y[y,x] = T[y,x] * T[0,x]",  # a row of every tile
        "T[y,x] = X[y,x] * 2; Y[y,x] = T[x,y] - T[y,x]",  # along the other axis
        "m[y] max= X[y,x]; Y[y,x] = X[y,x] - m[y]",  # a reduction over a whole row
        "T[y,x] = exp(X[y,x]); Y[y,x] = T[y,x] + 1",  # no neighbours
    ],
)
def test_other_programs_are_no_stencils(text: str) -> None:
    workload = notation(text, X="f32[64,64]").normalised()
    assert not any(part_of(sketch) for sketch in space_for(workload, target()).sketches)


def images(rows: int, columns: int, *, crop: int = 0, copies: bool = False) -> Workload:
    """Two outputs of one blurred image: differences along rows, and along columns or, with a
    `crop`, of more distant elements. With `copies`, the blurred image is an output too."""
    image = placeholder("X", (rows + 2, columns + 2))
    blurred = compute(
        "b",
        (rows + 2, columns + 1),
        lambda y, x: maximum(image[y, x], 0.0) * image[y, x] + image[y, x + 1] * image[y, x + 1],
    )
    down = compute("u", (rows, columns), lambda y, x: blurred[y + 1, x] - blurred[y, x])
    right = compute(
        "v",
        (rows - crop, columns - crop),
        lambda y, x: blurred[y + crop, x + 1] - blurred[y, x + crop],
    )
    outputs = (down, right, blurred) if copies else (down, right)
    return Workload.of(*outputs, inputs=[image]).normalised()


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("crop", [0, 1, 2])
def test_outputs_of_common_stages_are_one_group(crop: int, copies: bool) -> None:
    workload = images(19, 45, crop=crop, copies=copies)
    for machine in (target(1), target(2, 512, 32)):
        sketch = space_for(workload, machine).sketches[0]
        part = part_of(sketch)
        assert part is not None
        assert len(sketch.parts) == 1
        assert len(part.group.results) == len(workload.outputs)
        for setting in settings(sketch, 12, crop):
            check_meaning(workload, lower(workload, sketch.trace(setting)))


@pytest.mark.parametrize("columns", [8, 9, 15, 16, 17, 31, 33, 41])
@pytest.mark.parametrize("rows", [3, 4, 9, 17])
def test_outputs_of_every_extent_mean_the_same(rows: int, columns: int) -> None:
    for crop in range(3):
        workload = images(rows, columns, crop=crop)
        for sketch in space_for(workload, target()).sketches:
            for setting in settings(sketch, 3, rows):
                check_meaning(workload, lower(workload, sketch.trace(setting)))


def test_two_outputs_in_tiles(golden: Golden) -> None:
    workload = images(10, 37, crop=1)
    nest = nest_with(workload, tile_rows=4, tile_vectors=2, rows_at_once=2)
    assert to_text(nest) == golden
    check_meaning(workload, nest)


@pytest.mark.parametrize(
    "text",
    [
        "T[y,x] = X[y,x] * 2; U[y,x] = X[x,y] - X[y,x]",  # along the other axis
        "T[y] = X[y,0] + X[y,1]; U[y,x] = X[y,x] * 2",  # another number of axes
    ],
)
def test_other_outputs_are_computed_apart(text: str) -> None:
    workload = notation(text, X="f32[64,64]").normalised()
    for sketch in space_for(workload, target()).sketches:
        part = part_of(sketch)
        assert part is None or not part.group.more_results


def details(rows: int, columns: int, *, shares: bool = True) -> Workload:
    """An image less the image of half the size, or the same for two images."""
    image = placeholder("X", (rows + 4, columns + 6))
    other = image if shares else placeholder("Z", (rows + 4, columns + 6))
    half = compute(
        "h",
        (rows // 2 + 2, columns // 2 + 3),
        lambda y, x: maximum(image[2 * y, 2 * x], image[2 * y, 2 * x + 1]) * image[2 * y, 2 * x],
    )

    def doubled(y: Index, x: Index) -> Expr:
        near, far = half[y // 2 + y % 2, x // 2 + 1], half[y // 2 + 1, x // 2 + 2 * (x % 2)]
        return near * 0.75 + far * 0.25

    out = compute("Y", (rows, columns), lambda y, x: other[y, x] - doubled(y, x))
    return Workload.of(out).normalised()


@pytest.mark.parametrize("columns", [18, 33, 64])
@pytest.mark.parametrize("rows", [6, 7, 16])
def test_stages_of_two_scales_that_read_one_image_are_a_group(rows: int, columns: int) -> None:
    workload = details(rows, columns)
    for machine in (target(1), target(2, 512, 32)):
        joined, *others = space_for(workload, machine).sketches
        part = part_of(joined)
        assert part is not None
        assert len(part.stages) == 2
        assert len(joined.parts) == 1
        for sketch in (joined, *others):
            for setting in settings(sketch, 6, rows):
                check_meaning(workload, lower(workload, sketch.trace(setting)))
    if rows % 2 == 0:  # else the rows are no quotients, and the stages are stencils in any case
        assert any(len(sketch.parts) == 2 for sketch in others)


def test_stages_of_two_scales_without_common_data_are_computed_apart() -> None:
    for sketch in space_for(details(16, 64, shares=False), target()).sketches:
        assert len(sketch.parts) == 2


def test_an_output_that_other_stages_read_is_a_copy_in_tiles() -> None:
    image = placeholder("X", (20, 35))
    a = compute("a", (20, 33), lambda y, x: image[y, x] + image[y, x + 2])
    b = compute("b", (18, 33), lambda y, x: a[y, x] + a[y + 2, x])
    workload = Workload.of(a, b, inputs=[image]).normalised()
    first, *others = space_for(workload, target()).sketches
    assert isinstance(first, ProgramSketch)
    assert [type(step) for step in first.rewrites] == [CopyOutput]
    for sketch in (first, *others):
        check_meaning(workload, lower(workload, sketch.trace(sketch.default())))


def test_zeros_around_the_image_mean_the_same() -> None:
    image = placeholder("X", (13, 37))
    a = compute("a", (13, 37), lambda y, x: image[y, x] + padded(image, y, x - 1))
    b = compute("b", (13, 37), lambda y, x: padded(a, y - 1, x) + padded(a, y + 1, x + 1))
    workload = Workload.of(b, inputs=[image]).normalised()
    sketch = stencils_of(workload)
    for setting in settings(sketch, 12, 1):
        check_meaning(workload, lower(workload, sketch.trace(setting)))


def test_tiles_stay_in_the_private_caches() -> None:
    workload, machine = corners(200, 600), target()
    sketch = stencils_of(workload, machine)
    part = part_of(sketch)
    assert part is not None
    some = drawn(sketch, 300)
    v = part.values(some)
    for n in np.flatnonzero(sketch.feasible(some)):
        regions = part.tiles.regions(v.inline[n], v.tile_rows[n], v.tile_vectors[n])
        assert 2 * regions.buffer_bytes <= machine.own_cache_bytes


def test_a_default_tile_repeats_few_operations() -> None:
    """Halos along two axes multiply, so that tiles have more rows than those with one."""
    image = placeholder("X", (100, 100, 16))

    def smooth(at: Callable[[int], Expr]) -> Expr:
        return at(0) + at(4) + (at(1) + at(3)) * 4.0 + at(2) * 6.0

    across = compute("a", (100, 96, 16), lambda y, x, z: smooth(lambda n: image[y, x + n, z]))
    down = compute("Y", (96, 96, 16), lambda y, x, z: smooth(lambda n: across[y + n, x, z]))
    r, t = reduce_axis(4, "r"), reduce_axis(4, "t")
    wide = placeholder("W", (400, 400, 16))
    first = compute(
        "f",
        (100, 100, 16),
        lambda y, x, z: sum_over(wide[4 * y + r, 4 * x + t, z], axis=(r, t)),
    )
    both = compute("b", (100, 96, 16), lambda y, x, z: smooth(lambda n: first[y, x + n, z]))
    far = compute("Z", (96, 96, 16), lambda y, x, z: smooth(lambda n: both[y + n, x, z]))
    for out, least in ((down, 8), (far, 16)):
        sketches = space_for(Workload.of(out).normalised(), target()).sketches
        part = part_of(next(sketch for sketch in sketches if sketch.name == "stencils"))
        assert part is not None
        v = part.chosen(part.default())
        assert v.tile_rows == least
        assert part.tiles.regions(v.inline, v.tile_rows, v.tile_vectors).recomputed <= 1.5


def test_a_group_beyond_the_caches_is_split() -> None:
    workload, machine = corners(200, 600), target()
    small = replace(machine, caches=(replace(machine.caches[0], bytes=8192),))
    whole, less = (part_of(space_for(workload, one).sketches[0]) for one in (machine, small))
    assert whole is not None
    assert less is None or len(less.stages) < len(whole.stages)


@pytest.mark.parametrize("columns", [300, 318, 520, 638, 1100])
def test_shorter_last_tiles_are_not_counted_as_full_ones(columns: int) -> None:
    """Halving an image is a group for every width, not only where large tiles divide it."""
    image = placeholder("X", (130, 2 * columns + 2))

    def weighted(at: Callable[[int], Expr]) -> Expr:
        return at(0) + (at(1) + at(2)) * 3.0 + at(3)

    down = compute("d", (64, 2 * columns + 2), lambda y, x: weighted(lambda n: image[2 * y + n, x]))
    out = compute("Y", (64, columns), lambda y, x: weighted(lambda n: down[y, 2 * x + n]))
    workload = Workload.of(out, inputs=[image]).normalised()
    part = part_of(stencils_of(workload, target(1, 512, 32)))
    assert part is not None
    assert len(part.group.stages) == 2


POOLED = notation(
    "P[c,h,w] max= X[c,2*h+i,2*w+j] + B[c]; Y[c,h,w] = P[c,h,w] * tanh(P[c,h,w])",
    {"h": 20, "w": 33, "i": 2, "j": 2},
    X="f32[3,40,66]",
    B="f32[3]",
)


@pytest.mark.parametrize("program", ["pooled", *range(40)])
def test_every_setting_of_every_program_can_be_predicted(program: str | int) -> None:
    rng = random.Random(f"counts {program}")
    workload = POOLED if program == "pooled" else stencil_program(rng)
    for sketch in space_for(workload, SMALL).sketches:
        tried = np.asarray([sketch.default(), *drawn(sketch, 6)])
        for part, own in zip(sketch.parts, sketch.split_settings(tried), strict=True):
            found = counts(part, own[part.feasible(own)])
            assert all(np.isfinite(column).all() for column in found.values())
