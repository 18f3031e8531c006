"""Elementwise kernels on arrays that begin anywhere in a cache line."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.paths import example_target
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.scalar import Binary, BinaryOp, Load
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import For, LoopKind, Nest, StoreElement
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile as compile_kernel
from tilewright.tuner.codegen.generate import generate
from tilewright.tuner.codegen.shifted import shift_of
from tilewright.tuner.machine.native_target import detect

Array = npt.NDArray[Any]

FLAT = ("Y[i,j] = max(X[i,j] + Z[i,j], 0.0)", "X=f32[{m},{n}]", "Z=f32[{m},{n}]")


def workload(expression: str, *tensors: str) -> Workload:
    return from_notation(expression, [parse_tensor_spec(t) for t in tensors]).normalised()


def flat(m: int, n: int) -> Workload:
    return workload(FLAT[0], *(t.format(m=m, n=n) for t in FLAT[1:]))


def placed(array: Array, skip: int) -> Array:
    """A copy whose first element is `skip` elements behind a cache line."""
    raw = np.zeros(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 64 + skip * array.itemsize
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def traces(work: Workload, target: Target) -> list[Trace]:
    """The default schedule of each sketch, and every value of each knob beside it."""
    found: list[Trace] = []
    for sketch in space_for(work, target).sketches:
        default = list(sketch.default())
        for j, knob in enumerate(sketch.knobs):
            for value in range(len(knob.values)):
                setting = [*default[:j], value, *default[j + 1 :]]
                if sketch.feasible(np.array([setting]))[0]:
                    found.append(sketch.trace(setting))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("m", "n"), [(64, 64), (37, 129), (1, 4099)])
def test_flat_kernels_are_right_wherever_their_arrays_begin(m: int, n: int, threads: int) -> None:
    work, target = flat(m, n), detect().with_threads(threads)
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((m, n)).astype(np.float32) for _ in range(2))
    for trace in traces(work, target)[:8]:
        kernel = compile_kernel(work, trace, target)
        for skips in [(k, k, k) for k in range(16)] + [(0, 5, 11), (3, 0, 0), (0, 0, 7)]:
            around = placed(np.full(m * n + 32, np.float32(7)), skips[2])
            y = around[16 : 16 + m * n].reshape(m, n)
            y[...] = np.nan
            kernel(placed(x, skips[0]), placed(z, skips[1]), out=y)
            np.testing.assert_array_equal(y, np.maximum(x + z, 0))
            assert (around[:16] == 7).all()
            assert (around[16 + m * n :] == 7).all()


def shifts(work: Workload) -> bool:
    target = detect().with_threads(1)
    nest = lower(work, space_for(work, target).trace(space_for(work, target).default()))
    return any(shift_of(nest, stmt) is not None for stmt in nest.body)  # type: ignore[arg-type]


def test_only_loops_over_the_same_element_of_every_array_are_shifted() -> None:
    assert shifts(flat(64, 64))
    assert shifts(workload("Y[i,j] = exp(X[i,j]) * 2.0", "X=f32[50,64]"))
    assert not shifts(workload("Y[i,j] = X[i,j] + b[j]", "X=f32[64,64]", "b=f32[64]"))
    assert not shifts(workload("Y[i,j] = X[j,i]", "X=f32[64,64]"))
    assert not shifts(workload("Y[i] = X[i+1]", "X=f32[4096]"))
    assert not shifts(workload("Y[i] = where(i < 100, X[i], 0.0)", "X=f32[4096]"))
    assert not shifts(workload("Y[i] = X[i] * f32(i)", "X=f32[4096]"))


def test_arrays_that_lie_alike_are_written_past_the_caches_wherever_they_begin() -> None:
    """Without a shift, an array that does not begin at a line is written in the plain way."""
    work, target = flat(2048, 2048), example_target("znver5")
    space = space_for(work, target)
    (sketch,) = space.sketches
    names = [knob.name for knob in sketch.knobs]
    setting = list(sketch.default())
    setting[names.index("nontemporal_stores")] = 1
    text = generate(lower(work, sketch.trace(setting)), target, "kernel").text
    assert "!nontemporal" in text
    whole = text[text.index("define i32 @kernel(") :]
    entry = whole[: whole.index("\n}")]
    assert "!nontemporal" not in entry  # the loop is in a function that gets shifted pointers
    assert entry.count("@kernel_flat1(") == 3


def test_a_loop_that_changes_its_output_in_place_is_not_shifted() -> None:
    y = Tensor("Y", (1024,), DType.F32)
    place = (var("i") * 16 + var("l"),)
    for source, shifts in (("X", True), ("Y", False)):
        doubled = Binary(BinaryOp.ADD, *2 * (Load(source, place, DType.F32),))
        lanes = For("l", 16, (StoreElement("Y", place, doubled),), LoopKind.VECTORIZED)
        loop = For("i", 64, (lanes,))
        nest = Nest((Tensor("X", (1024,), DType.F32),), (y,), (loop,))
        assert (shift_of(nest, loop) is not None) is shifts
