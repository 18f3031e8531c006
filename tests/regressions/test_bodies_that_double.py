"""Chains of stages that use the one before several times: a copy for each use would be 2**n."""

from __future__ import annotations

import pytest

from tests.support.synthetic_sketch import synthetic_target
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.scalar import Load, Unary, UnaryOp, depth_of, walk
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.limits import MAX_INLINED_DEPTH, MAX_STAGES
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.primitives import Inline
from tilewright.schedules.reference.exactness import ValueRange, value_ranges
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.analysis.stages import view_stages
from tilewright.schedules.sketches.inlining import stages_inlined
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.flops import useful_flops
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.search.prior_ranking import rank_for_default


def texts(body: str, stages: int) -> str:
    """S0 from A, and each stage from the one before, `P` in `body`."""
    each = (f"S{n}[i] = " + body.replace("P", f"S{n - 1}" if n else "A") for n in range(stages))
    return ";".join(each)


def chain(body: str, stages: int = MAX_STAGES) -> Workload:
    return from_notation(texts(body, stages), {"A": ("f32", (96,))})


@pytest.mark.parametrize(
    "body", ["P[i]*P[i]", "P[i]+P[(i+1)%96]", "tanh(P[i])", "P[i]+1.5", "where(i<5, P[i], 2.0)"]
)
def test_a_chain_as_long_as_the_limits_allow_has_a_default(body: str) -> None:
    workload = chain(body).normalised()
    views = view_stages(workload, stages_inlined(workload))
    assert max(sum(1 for _ in walk(view.value)) for view in views.values()) < MAX_INLINED_DEPTH
    space = space_for(workload, synthetic_target())
    trace = space.trace(rank_for_default(space).default)
    assert trace.apply(plain_nest(workload)).body


@pytest.mark.parametrize("body", ["P[i]*P[i]", "where(i<90, P[i]*P[(i+1)%96], 0.0)"])
def test_the_arithmetic_of_a_long_chain_is_counted(body: str) -> None:
    workload = from_notation(
        texts(body, 62) + "; T[j] += S61[i]*B[i,j]",
        {"A": ("f32", (96,)), "B": ("f32", (96, 8))},
    )
    assert 0 < useful_flops(workload) <= workload.flops


@pytest.mark.parametrize("body", ["P[i]*P[i]", "P[i]+P[i]", "P[i]*P[i]-P[i]"])
def test_ranges_of_a_long_chain_end_at_infinity(body: str) -> None:
    ranges = value_ranges(chain(body), {"A": ValueRange(-4, 4, 0)})
    assert ranges.tensors["S63"].magnitude > 1e19
    assert ranges.bounded == (body == "P[i]+P[i]")


def test_short_chains_are_still_computed_in_one_place() -> None:
    assert len(stages_inlined(chain("P[i]*P[i]", 6))) == 5
    assert len(stages_inlined(chain("P[i]+1.5", 20))) == 19


def test_inlining_by_hand_ends_where_an_expression_would_grow_too_large() -> None:
    nest = plain_nest(chain("P[i]*P[i]").normalised())
    with pytest.raises(ScheduleError, match="operations in"):
        Trace(tuple(Inline(f"s{n}") for n in range(MAX_STAGES - 1))).apply(nest)


def test_inlining_by_hand_ends_where_an_expression_would_grow_too_deep() -> None:
    nest = plain_nest(chain("sqrt(sqrt(sqrt(P[i])))").normalised())
    with pytest.raises(ScheduleError, match=f"levels, at most .* in {MAX_INLINED_DEPTH}"):
        Trace(tuple(Inline(f"s{n}") for n in range(MAX_STAGES - 1))).apply(nest)


def test_depth_counts_levels() -> None:
    leaf = Load("A", (var("i"),), DType.F32)
    assert depth_of(leaf) == 1
    assert depth_of(Unary(UnaryOp.NEG, Unary(UnaryOp.NEG, leaf))) == 3
