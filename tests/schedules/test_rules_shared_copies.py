"""Batches that read almost the same elements, as the phases of a transposed convolution do, share
one copy of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.counts.program import program
from benchmarks.counts.recount import recount
from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules import operators
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Allocate, For, Nest, Stmt
from tilewright.schedules.primitives import CacheRead
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import Sketch, SpacePart
from tilewright.schedules.workload.workload import Workload


def depthwise(**sizes: int) -> Workload:
    base = {"N": 2, "H": 4, "W": 11, "CI": 3, "CO": 3, "groups": 3, "K": 4, "stride": 2, "pad": 1}
    return operators.build("conv2d_transpose_nchw", base | sizes).normalised()


STEPPED: dict[str, Workload] = {
    "a channel per group": depthwise(),
    "phases of unequal length": depthwise(CI=4, CO=10, groups=2, K=3),
    "three phases": depthwise(CI=4, CO=10, groups=2, K=5, stride=3),
    "channels last": operators.build(
        "conv2d_transpose_nhwc", H=5, W=6, CI=7, CO=17, K=3, stride=2, pad=1
    ).normalised(),
    "with an epilogue": operators.build(
        "conv2d_transpose_nhwc", {"H": 5, "W": 6, "CI": 7, "CO": 17, "K": 3, "stride": 2},
        epilogue="bias+relu",
    ).normalised(),
    "a line": operators.build(
        "conv1d_transpose_ncl", L=40, CI=5, CO=9, K=4, stride=2, pad=1
    ).normalised(),
    "groups inside phases": operators.build(
        "conv1d_transpose_nlc", L=40, CI=3, CO=15, groups=3, K=5, stride=3, dilation=2, pad=1
    ).normalised(),
    "an image for several groups of filters": from_notation(
        "Y[g,h,w,o] += X[h+r,w+q,c] * W[g,r,q,c,o]",
        {"X": ("f32", (6, 9, 5)), "W": ("f32", (3, 3, 3, 5, 17))}, {"h": 4, "w": 7},
    ).normalised(),
}  # fmt: skip


def sharing(workload: Workload) -> tuple[Sketch, TileSketch]:
    """The first sketch whose batches can share copies, and its tiles."""
    for sketch in space_for(workload, target()).sketches:
        part = sketch.parts[0]
        if isinstance(part, TileSketch) and part.sharing_batches:
            return sketch, part
    raise AssertionError("no batches share copies")


def once_copied(sketch: Sketch | SpacePart, count: int) -> list[tuple[int, ...]]:
    """The first `count` feasible settings drawn in which batches share copies."""
    (at,) = [n for n, k in enumerate(sketch.knobs) if k.name in ("copy_rows", "0.copy_rows")]
    settings = drawn(sketch, 40_000)
    of_value = np.asarray(sketch.knobs[at].values)[settings[:, at]]
    found = settings[sketch.feasible(settings) & (of_value == 2)][:count]
    assert len(found) == count
    return [tuple(int(n) for n in setting) for setting in found]


@pytest.mark.parametrize("name", STEPPED)
def test_settings_that_share_copies_are_right(name: str) -> None:
    workload = STEPPED[name]
    sketch, _ = sharing(workload)
    for setting in once_copied(sketch, 4):
        check_meaning(workload, lower(workload, sketch.trace(setting)))


@pytest.mark.parametrize("name", STEPPED)
def test_feasible_settings_that_share_copies_are_legal(name: str) -> None:
    """Threads divide batches outside of those that share copies, whatever the order of axes."""
    sketch, _ = sharing(STEPPED[name])
    for setting in once_copied(sketch, 15):
        sketch.lowered(setting)


def test_packing_in_the_first_tile_is_for_one_batch() -> None:
    workload = from_notation(
        "Y[g,h,w,o] += X[h+r+g,w+q,c] * W[g,r,q,c,o]",
        {"X": ("f32", (16, 6, 33)), "W": ("f32", (5, 3, 3, 33, 3))}, {"h": 9, "w": 4},
    ).normalised()  # fmt: skip
    _, part = sharing(workload)
    at = {knob.name: n for n, knob in enumerate(part.knobs)}
    found = np.asarray(once_copied(part, 100))
    assert not part.knobs[at["fuse_packing"]].values[found[:, at["fuse_packing"]].max()]


def test_a_copy_for_all_batches_is_smaller_than_separate_copies() -> None:
    """Blocks of a few rows of `A` overlap between batches, all rows together overlap."""
    workload = from_notation(
        "Y[b,i,j] += A[i+16*b,k] * B[b,k,j]",
        {"A": ("f32", (176, 9)), "B": ("f32", (8, 9, 17))}, {"i": 64},
    ).normalised()  # fmt: skip
    _, part = sharing(workload)
    at = [knob.name for knob in part.knobs].index("row_blocks")
    blocks = {part.knobs[at].values[setting[at]] for setting in once_copied(part, 200)}
    # A block of n rows is copied 8 times, or once with 7 * 16 more rows.
    assert {1, 2} <= blocks <= {1, 2, 3}


def test_a_plan_knows_all_elements_that_an_epilogue_writes_and_reads() -> None:
    bias = from_notation(
        "S[h,w,o] += where((h+1-r) % 2 == 0, X[(h+1-r)//2,w,c], 0) * W[r,c,o];"
        " Y[h,w,o] = max(S[h,w,o] + B[h,o], 0.0)",
        {"X": ("f32", (6, 9, 5)), "W": ("f32", (4, 5, 17)), "B": ("f32", (12, 17))},
        {"h": 12, "w": 9},
    ).normalised()
    fused = [STEPPED["with an epilogue"], bias]
    for workload in fused:
        sketch = space_for(workload, target()).sketches[0]
        (part,) = sketch.parts
        plan = part.plan(np.asarray([part.default()]))
        whole = [np.asarray([axis.extent]) for axis in plan.outline.axes]
        for access in plan.accesses:
            shape = part.workload.tensors[access.buffer].shape
            if access.is_output or access.buffer == workload.inputs[-1].name:
                reached = [access.reached(d, whole, walked=False)[0] for d in range(len(shape))]
                # The last rows of some phases are beyond the output.
                pairs = zip(reached, shape, strict=True)
                assert all(side <= found < side + 2 for found, side in pairs), access.buffer


def times_copied(nest: Nest, buffer: str) -> int:
    """How often the loops around the copy `buffer` iterate."""

    def around(items: tuple[Stmt, ...], times: int) -> Iterator[int]:
        for item in items:
            if isinstance(item, For) and item.var.startswith(f"{buffer}."):
                yield times
            elif isinstance(item, For):
                yield from around(item.body, times * item.extent)
            elif isinstance(item, Allocate):
                yield from around(item.body, times)

    return next(around(nest.body, 1))


def test_an_image_is_copied_once_for_all_phases() -> None:
    workload = STEPPED["a channel per group"]
    sketch, part = sharing(workload)
    assert [loop.extent for loop in part.sharing_batches] == [2, 2]
    names = [knob.name.removeprefix("0.") for knob in sketch.knobs]
    (at, blocks) = names.index("copy_rows"), names.index("row_blocks")
    setting = next(s for s in once_copied(sketch, 200) if s[blocks] == 0)
    each = (*setting[:at], sketch.knobs[at].values.index(1), *setting[at + 1 :])
    (image,) = {
        step.name
        for step in sketch.trace(setting).steps
        if isinstance(step, CacheRead) and step.tensor == workload.inputs[0].name
    }
    copies = [times_copied(sketch.lowered(one)[1], image) for one in (setting, each)]
    assert copies[1] == 4 * copies[0]


@pytest.mark.parametrize(("taps", "stride"), [(4, 2), (3, 2), (5, 3)])
def test_shared_copies_are_counted_as_often_as_they_are_made(taps: int, stride: int) -> None:
    workload = operators.build(
        "conv2d_transpose_nhwc", H=6, W=6, CI=7, CO=17, K=taps, stride=stride, pad=1
    ).normalised()
    sketch, part = sharing(workload)
    stages = frozenset(stage.name for stage in workload.stages)
    for setting in once_copied(sketch, 12):
        nest = lower(workload, sketch.trace(setting))
        real = recount(program(nest, stages, nest.body))
        said = counts(part, np.asarray([setting]))
        # Shorter phases inside a block make it shorter: the model knows their mean only.
        assert said["tasks"][0] == pytest.approx(real["tasks"], rel=0.2)
        # Several of more than two phases may begin at the same element.
        assert said["packed_bytes"][0] >= 0.95 * real["packed_bytes"]
        if stride == 2:
            assert said["packed_bytes"][0] == pytest.approx(real["packed_bytes"], rel=0.05)


def test_batches_with_operands_of_their_own_share_nothing() -> None:
    product = from_notation(
        "Y[b,i,j] += A[b,i,k] * B[b,k,j]",
        {"A": ("f32", (4, 6, 8)), "B": ("f32", (4, 8, 17))},
    ).normalised()
    for sketch in space_for(product, target()).sketches:
        for part in sketch.parts:
            if isinstance(part, TileSketch):
                assert not part.sharing_batches
                (copies,) = [k.values for k in part.knobs if k.name == "copy_rows"]
                assert copies == (0, 1)
