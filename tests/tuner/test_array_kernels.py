"""Array programs that are built and run."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.support.schedule_fuzz.check import random_setting, this_machine
from tilewright.schedules.sketches import space_for

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "bias and relu": (
        lambda x, b: tw.relu(x + b), lambda x, b: np.maximum(x + b, 0), ((4, 7, 9), (9,)),
    ),
    "matrix product with an epilogue": (
        lambda a, b, c: tw.relu(a @ b + c) * 2,
        lambda a, b, c: np.maximum(a @ b + c, 0) * 2,
        ((33, 17), (17, 40), (40,)),
    ),
    "attention": (
        lambda q, k: _softmax(tw.einsum("bihd,bjhd->bhij", q, k) * 0.25, tw.exp),
        lambda q, k: _softmax(np.einsum("bihd,bjhd->bhij", q, k) * 0.25, np.exp),
        ((2, 9, 3, 16), (2, 11, 3, 16)),
    ),
    "variance": (
        lambda x: ((x - x.mean((1, 2), keepdims=True)) * x).mean((1, 2)),
        lambda x: ((x - x.mean((1, 2), keepdims=True)) * x).mean((1, 2)),
        ((3, 10, 13),),
    ),
    "reflected stencil": (
        lambda x: _stencil(tw.pad(x, ((0, 0), (1, 1)), mode="reflect")),
        lambda x: _stencil(np.pad(x, ((0, 0), (1, 1)), mode="reflect")),
        ((6, 21),),
    ),
    "heads": (
        lambda x: tw.concat(tw.split(x.reshape(5, 4, 6).transpose(1, 0, 2), 2), 2).reshape(-1),
        lambda x: np.concatenate(np.split(x.reshape(5, 4, 6).transpose(1, 0, 2), 2), 2).reshape(-1),
        ((5, 24),),
    ),
    "choices": (
        lambda x, y: tw.where((x > 0) & ~(y < 0.5), tw.roll(x, 2, 1), tw.flip(y, 0)),
        lambda x, y: np.where((x > 0) & ~(y < 0.5), np.roll(x, 2, 1), np.flip(y, 0)),
        ((7, 19), (7, 19)),
    ),
}  # fmt: skip


def _softmax(x: Any, exp: Callable[[Any], Any]) -> Any:
    e = exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _stencil(x: Any) -> Any:
    return 0.25 * x[:, :-2] + 0.5 * x[:, 1:-1] + 0.25 * x[:, 2:]


@pytest.mark.parametrize("name", PROGRAMS)
def test_array_programs_run_as_kernels(name: str) -> None:
    ours, theirs, shapes = PROGRAMS[name]
    draw = np.random.default_rng(0)
    data = [draw.normal(size=shape).astype(np.float32) for shape in shapes]
    tensors = [tw.placeholder(f"x{n}", shape) for n, shape in enumerate(shapes)]
    workload = tw.Workload.of(ours(*tensors), inputs=tensors)
    kernel = tw.build(workload, database=":memory:")
    found: Any = kernel(*data)
    np.testing.assert_allclose(found, theirs(*data), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("seed", range(6))
def test_the_position_of_the_greatest_quotient_is_found(seed: int) -> None:
    """Vectors divide by the same number more quickly, with another rounding, but not where the
    quotient is compared with the greatest one."""
    draw = np.random.default_rng(seed)
    x0 = draw.normal(size=(40, 133)).astype(np.float32)
    s0 = (draw.random(40) + 0.5).astype(np.float32)
    x, s = tw.placeholder("x", x0.shape), tw.placeholder("s", s0.shape)
    share = tw.exp(x) / tw.exp(x).sum(1, keepdims=True)
    workload = tw.Workload.of(
        (x / s[:, None]).argmax(1), (x / 7.3).argmin(0), share.argmax(1), inputs=[x, s]
    )
    target = this_machine(1 + seed % 2)
    trace = random_setting(random.Random(seed), workload, target) if seed else None
    found: Any = tw.build(workload, target, trace=trace, database=":memory:")(x0, s0)
    for positions, values, axis in zip(
        found, (x0 / s0[:, None], -x0 / np.float32(7.3), x0), (1, 0, 1), strict=True
    ):
        # The softmax may round neighbours to one value.
        at = np.expand_dims(np.clip(positions, 0, values.shape[axis] - 1), axis)
        assert positions.max() < values.shape[axis]
        greatest = values.max(axis)
        np.testing.assert_allclose(
            np.take_along_axis(values, at, axis).squeeze(axis), greatest, rtol=1e-6
        )


@pytest.mark.parametrize("shape", [(20, 40), (40, 133)])
@pytest.mark.parametrize("way", ["argmax", "pair of maximum", "pair of choices", "of exp"])
def test_the_first_of_equal_quotients_is_found(way: str, shape: tuple[int, int]) -> None:
    """3 times the rounded reciprocal of the divisor is less than the rounded quotient."""
    axis = int(shape[1] == 133)
    draw = np.random.default_rng(4)
    x0 = np.where(draw.random(shape) < 0.5, 1, 3).astype(np.float32)
    s0 = np.asarray(1.515625, np.float32)
    x, s = tw.placeholder("x", shape), tw.placeholder("s", ())
    k = tw.compute("k", (shape[axis],), lambda n: tw.cast(n, "i32"))

    def better(a: Any, b: Any) -> Any:
        takes = b[0] > a[0]
        extreme = tw.select(takes, b[0], a[0]) if "choices" in way else tw.maximum(a[0], b[0])
        return extreme, tw.select(takes, b[1], a[1])

    if way.startswith("pair"):
        pair = (x / s, k if axis else k[:, None])
        found = tw.reduce_tuple(pair, (-float("inf"), 0), better, axis=axis)[1]
    else:
        found = ((tw.exp(x) if "exp" in way else x) / s).argmax(axis)
    workload = tw.Workload.of(found, inputs=[x, s])
    for sketch in space_for(workload, this_machine(1)).sketches:
        trace = sketch.trace(sketch.default())
        at: Any = tw.build(workload, this_machine(1), trace=trace, database=":memory:")(x0, s0)
        np.testing.assert_array_equal(at, x0.argmax(axis), err_msg=sketch.name)


def test_an_array_is_built_and_tuned_without_a_workload(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text("{}")
    x = tw.placeholder("x", (8, 16))
    y = tw.relu(x) @ tw.placeholder("w", (16, 4))
    assert repr(tw.build(y, database=":memory:")).endswith(
        "(x: f32[8,16], w: f32[16,4]) -> out: f32[8,4]>"
    )
    options: dict[str, Any] = {"measurer": f"simulated:{machine}", "database": ":memory:"}
    report = tw.tune(y.named("Y"), budget=tw.Budget(trials=2), **options)
    assert report.best is not None
    many = tw.tune_many([y, x.T], budget=tw.Budget(trials=2), **options)
    assert len(many.tasks) == 2
