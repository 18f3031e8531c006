"""Values under conditions: masks only where a tile needs them, and the same results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.support.schedule_fuzz.check import Pair, check_pair, random_setting, this_machine
from tests.support.schedule_fuzz.patterns import chosen_formulas
from tests.support.schedules.spaces import settings
from tests.support.schedules.workloads import notation
from tilewright.schedules import Workload
from tilewright.schedules.primitives import Split, Unroll, Vectorize
from tilewright.schedules.sketches import space_for
from tilewright.schedules.trace import Trace
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.codegen import unswitched
from tilewright.tuner.emit.kernel import llvm_text

SIZE = 40
CONDITIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "k <= i": lambda i, j, k: k <= i,
    "k <= i && k >= j": lambda i, j, k: (k <= i) & (k >= j),
    "k >= j": lambda i, j, k: k >= j,
    "k <= i + 3 && k >= i - 3": lambda i, j, k: (k <= i + 3) & (k >= i - 3),
    "k == j": lambda i, j, k: k == j,
    "(k + i) % 3 == 0 && k <= j": lambda i, j, k: ((k + i) % 3 == 0) & (k <= j),
}


def masked(condition: str) -> Workload:
    shape = f"f32[{SIZE},{SIZE}]"
    return notation(f"Y[i,j] += where({condition}, A[i,k] * B[k,j], 0.0)", A=shape, B=shape)


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_elements_outside_of_the_condition_are_not_used(condition: str, bits: int) -> None:
    workload, target = masked(condition), this_machine(1, bits)
    i, j, k = np.ogrid[:SIZE, :SIZE, :SIZE]
    used = np.broadcast_to(CONDITIONS[condition](i, j, k), (SIZE, SIZE, SIZE))
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (SIZE, SIZE)).astype(np.float32) for _ in "ab")
    a[~used.any(1)], b[~used.any(0).T] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = np.where(used, a[:, None, :] * b.T[None], 0).sum(2)
    for sketch in space_for(workload, target).sketches:
        for setting in (sketch.default(), *settings(sketch, 6, bits)):
            found = np.empty((SIZE, SIZE), np.float32)
            kernel = compile_to_call(workload, target=target, trace=sketch.trace(setting))
            kernel(a, b, out=found)
            assert np.array_equal(found, expected), f"{sketch.name} {setting}"


def test_steps_inside_of_the_condition_have_no_masks() -> None:
    workload, target = masked("k <= i && k >= j"), this_machine(1)
    sketch = next(x for x in space_for(workload, target).sketches if x.name == "tile")
    blocks = llvm_text(workload, sketch.trace(sketch.default()), target).split("\nthen")
    products = [block for block in blocks if "@llvm.fma" in block]
    assert any("select" not in block for block in products)
    assert any("select" in block for block in products)


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("size", [24, 38])
def test_parts_of_a_concatenation_are_computed_alone(size: int, bits: int) -> None:
    def transformed(x: Any, joined: Callable[..., Any]) -> Any:
        a, b, c, d = x[::2, ::2], x[::2, 1::2], x[1::2, ::2], x[1::2, 1::2]
        top, bottom = joined([a + b + c + d, a - b + c - d], 1), joined([a + b, c / d], 1)
        return joined([top, bottom], 0)

    x = tw.placeholder("x", (size, size))
    workload = tw.Workload.of(transformed(transformed(x, tw.concat), tw.concat))
    target = this_machine(1, bits)
    rng = np.random.default_rng(5)
    given = rng.integers(1, 5, (size, size)).astype(np.float32)
    given[-1, -1] = np.inf  # only its own parts may use it
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = transformed(transformed(given, np.concatenate), np.concatenate)
    for sketch in space_for(workload, target).sketches:
        for setting in (sketch.default(), *settings(sketch, 6, bits)):
            kernel = compile_to_call(workload, target=target, trace=sketch.trace(setting))
            found = np.empty((size, size), np.float32)
            kernel(given, out=found)
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=f"{sketch.name}")


SELECTED = ("exp", "tanh", "sigmoid", "exp", "tanh", "sigmoid")


@pytest.mark.parametrize("unrolled", [1, 8, 64])
def test_the_code_does_not_double_with_each_condition(
    unrolled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each condition between formulas may hold, fail or be undecided: three versions of all
    others."""
    values = (f"where(d < {100 * n + 5}, {f}(A[i,d]), {f}(B[i,d]))" for n, f in enumerate(SELECTED))
    workload = notation(f"Y[i,d] = {' + '.join(values)}", A="f32[8,1024]", B="f32[8,1024]")
    steps = (
        Split("s0.d1", 8 * unrolled), Split("s0.d1i", 8), Unroll("s0.d1io"), Vectorize("s0.d1ii"),
    )  # fmt: skip
    lines = [llvm_text(workload, Trace(steps), this_machine()).count("\n")]
    monkeypatch.setattr(unswitched, "MOST_FORMULAS", 0)
    lines.append(llvm_text(workload, Trace(steps), this_machine()).count("\n"))
    assert lines[0] < 3 * lines[1] + 8192


def drawn_formulas(seed: int) -> tuple[Workload, Trace]:
    rng = random.Random(seed)
    workload = chosen_formulas(rng)
    if seed % 2:
        unrolled = rng.choice((4, 16, 64))
        split = (Split("s0.d1", 8 * unrolled), Split("s0.d1i", 8))
        return workload, Trace((*split, Unroll("s0.d1io"), Vectorize("s0.d1ii")))
    threads, bits = rng.choice((1, 2)), rng.choice((128, 256, 512))
    return workload, random_setting(rng, workload, this_machine(threads, bits))


@pytest.mark.parametrize("seed", range(40))
def test_formulas_between_which_conditions_choose(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, trace = drawn_formulas(seed)
    check_pair(Pair("chosen", workload, trace, 1 + seed % 2, (256, 512)[seed // 2 % 2]))
    lines = [llvm_text(workload, trace, this_machine()).count("\n")]
    monkeypatch.setattr(unswitched, "MOST_FORMULAS", 0)
    lines.append(llvm_text(workload, trace, this_machine()).count("\n"))
    assert lines[0] < 3 * lines[1] + 8192
