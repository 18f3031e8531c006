"""Lanes a few elements apart, read with whole vectors: right, and never outside what is needed."""

from __future__ import annotations

import pytest

from tests.support.tuner.default_kernels import check_default_kernels
from tilewright.schedules.leaves import MAX_LANE_STRIDE
from tilewright.schedules.spelling import parse_workload
from tilewright.tuner.codegen.spread import Spread
from tilewright.tuner.machine.native_target import native_target


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize(
    "step", [s for s in range(-MAX_LANE_STRIDE, MAX_LANE_STRIDE + 1) if s not in (0, 1)]
)
def test_every_lane_is_taken_once_and_nothing_outside_is_read(step: int, lanes: int) -> None:
    spread = Spread.of(step, lanes)
    assert spread is not None
    data = {
        n: f"element {n}" for n in range(min(0, step * (lanes - 1)), 1 + max(0, step * (lanes - 1)))
    }
    found = {}
    for start, taken in zip(spread.starts, spread.lanes_of, strict=True):
        vector = [data[start + n] for n in range(lanes)]
        for element, lane in zip(vector, taken, strict=True):
            if lane is not None:
                assert lane not in found
                found[lane] = element
    assert found == {lane: data[step * lane] for lane in range(lanes)}


@pytest.mark.parametrize("step", [0, 1, MAX_LANE_STRIDE + 1, -MAX_LANE_STRIDE - 1])
def test_other_steps_are_not_taken_so(step: int) -> None:
    assert Spread.of(step, 8) is None


@pytest.mark.parametrize("lanes", [2, 8, 16])
@pytest.mark.parametrize("step", range(2, MAX_LANE_STRIDE + 1))
def test_phases_share_their_vectors(step: int, lanes: int) -> None:
    for phase in range(step):
        spread = Spread.shared(step, lanes, phase)
        assert spread.reach() == (-phase, step * lanes - phase - 1)
        assert spread.starts == tuple(n * lanes - phase for n in range(step))
        found = {
            lane: start + n
            for start, taken in zip(spread.starts, spread.lanes_of, strict=True)
            for n, lane in enumerate(taken)
            if lane is not None
        }
        assert found == {lane: step * lane for lane in range(lanes)}


EXPRESSIONS: list[tuple[str, str, dict[str, int | str]]] = [
    ("Y[i,j] = X[2*i,3*j+1]", "X=f32[8,70]", {"i": 4, "j": 23}),
    ("Y[i,j] = X[i,{last}-j]", "X=f32[3,{n}]", {"j": "{n}"}),
    ("Y[i,j] = X[i,2*j-1]", "X=f32[3,40]", {"j": 21}),
    ("Y[h,w] max= where(0<=2*h+r-1<19 and 0<=2*w+s-1<37, X[2*h+r-1,2*w+s-1], -inf)",
     "X=f32[19,37]", {"r": 3, "s": 3, "h": 10, "w": 19}),
    ("Y[i,j] += X[i,4*j+s]", "X=f64[3,80]", {"s": 4, "j": 20}),
    ("R[i]=A[2*i]*B[2*i]-A[2*i+1]*B[2*i+1]; I[i]=A[2*i]*B[2*i+1]+A[2*i+1]*B[2*i]",
     "A=f32[86] B=f32[86]", {"i": 43}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
@pytest.mark.parametrize("n", [31, 64])
def test_kernels_that_read_so_are_right(number: int, n: int) -> None:
    text, tensors, ranges = EXPRESSIONS[number]
    workload = parse_workload(
        "",
        expr=text.replace("{last}", str(n - 1)),
        tensors=tensors.replace("{n}", str(n)).split(),
        ranges=[f"{k}={str(v).replace('{n}', str(n))}" for k, v in ranges.items()],
    )
    check_default_kernels(workload, native_target(threads=1))
