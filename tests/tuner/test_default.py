"""The schedule chosen without measuring: every expression has one, and it is legal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.paths import example_target
from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.workloads import matmul, notation
from tests.support.synthetic_sketch import tiny_space
from tilewright.schedules.arrays import BoolArray, IntArray
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.lowering import storage
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.lowering.storage import plan_storage
from tilewright.schedules.operators import build
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.plain import PlainSketch
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.writer import TraceWriter
from tilewright.schedules.space import Candidate, Knob, ScheduleSpace
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.search.base import SearchGoal
from tilewright.tuner.search.default import default_trace
from tilewright.tuner.search.prior_ranking import MAX_DEFAULTS_TRIED, rank_for_default
from tilewright.tuner.search.strategies import make_strategy


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_a_default_that_its_own_primitive_refuses_gives_way_to_the_next(bits: int) -> None:
    # Lanes that a condition decides fill a tensor in parts, which no block of registers may read.
    workload = notation("S[i,j] max= X[i,k] + f64(Z[j%3,j])", X="f64[4,16]", Z="f32[3,33]")
    target = this_machine(1, bits)
    trace = default_trace(workload, target)
    plan_storage(lower(workload, trace))
    assert check_pair(Pair("default", workload, trace, 1, bits))


@dataclass(frozen=True)
class Refusing(PlainSketch):
    """A sketch of many settings, of which only the last ones are legal; the plain loops'."""

    legal: int = 0

    @property
    def knobs(self) -> tuple[Knob, ...]:
        one = (Knob("vectorise", (0,)), Knob("parallel", (0,)))
        return (*one, Knob("nothing", tuple(range(100))))

    def default(self) -> tuple[int, ...]:
        return (0, 0, 99)

    def feasible(self, settings: IntArray) -> BoolArray:
        return np.ones(len(np.atleast_2d(settings)), np.bool_)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        if setting[2] < self.legal:
            raise ScheduleError("this sketch", "cannot do that after all")


@pytest.mark.parametrize("legal", [0, 1, MAX_DEFAULTS_TRIED - 1, MAX_DEFAULTS_TRIED, 99])
def test_the_next_best_are_tried_and_then_the_sketch_s_own_default(legal: int) -> None:
    workload, target = matmul().normalised(), this_machine()
    sketch = ProgramSketch(workload, (), (Refusing(workload, target, ("s0",), legal),))
    space = ScheduleSpace(workload, target, (sketch,))
    look = rank_for_default(space)
    # All settings are equal to the prior, so the first codes come first.
    assert look.default == Candidate(0, (0, 0, legal if legal < MAX_DEFAULTS_TRIED else 99))
    assert look.default_trace == Trace(())


def test_the_default_of_every_sketch_is_legal() -> None:
    workload = notation("S[i,j] max= X[i,k] + f64(Z[j%3,j])", X="f64[4,16]", Z="f32[3,33]")
    for sketch in space_for(workload, this_machine()).sketches:
        plan_storage(lower(workload, sketch.trace(sketch.default())))


def test_a_search_begins_with_the_same_default() -> None:
    space = tiny_space()
    look = rank_for_default(space)
    assert space.trace(look.default) == look.default_trace


def test_a_workload_that_no_workspace_can_hold_is_refused_with_the_reason() -> None:
    text = "T[i,j] = exp(X[i]+Z[j]); Q[j] += T[i,j]; Y[i,j] = T[j,i] * Q[i]"
    workload = notation(text, X="f32[60000]", Z="f32[60000]")
    with pytest.raises(WorkloadError, match="the workspace of all stages needs 14400000064 bytes"):
        default_trace(workload, this_machine())


@pytest.mark.parametrize(
    "workload",
    [
        notation("C[i,j] += A[k,i] * B[k,j]", A="f32[384,384]", B="f32[384,512]"),
        build("conv2d_nchw", {"N": 1, "CI": 8, "H": 14, "W": 14, "CO": 16, "K": 3, "pad": 1}),
    ],
    ids=["transposed product", "convolution"],
)
def test_stages_that_need_no_workspace_are_never_refused(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every setting of the sketches copies an input, which must not be huge for that."""
    monkeypatch.setattr(storage, "MAX_WORKSPACE_BYTES", 0)
    plan_storage(lower(workload, default_trace(workload, this_machine())))


HUGE_BETWEEN = notation(
    "T[i,j] += A[i,k] * B[k,j]; C[i] += T[i,j] * T[j,i]", A="f32[65536,4]", B="f32[4,65536]"
)


@pytest.mark.parametrize("strategy", ["annealing", "evolution", "random"])
def test_stages_that_need_too_large_a_workspace_are_too_large(strategy: str) -> None:
    """Each value of T is read in two places far from each other, so T is stored as a whole."""
    space = space_for(HUGE_BETWEEN, example_target("znver5"))
    with pytest.raises(WorkloadError) as refused:
        make_strategy(strategy, space, SearchGoal(seed=0)).ask(4)
    assert refused.value.code == "too_large"
    found = re.fullmatch(
        r"the workspace of all stages needs (\d+) bytes, at most 8589934592 are allowed",
        str(refused.value),
    )
    assert found
    assert 65536**2 * 4 <= int(found[1]) < 65536**2 * 4 * 1.01
