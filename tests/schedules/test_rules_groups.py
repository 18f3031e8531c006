"""Which stages are computed together: rules by themselves, and the covers made of their answers."""

from __future__ import annotations

import random

import pytest

from tests.support.schedule_fuzz.workloads import random_workload
from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import notation
from tilewright.schedules.algebra.scalar import loads
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.sketches import rules, space_for
from tilewright.schedules.sketches.fused.elementwise import ElementwiseSketch
from tilewright.schedules.sketches.fused.rows import RowSketch, row_group
from tilewright.schedules.sketches.groups import FusionGroup, Stages, leading_axes, stages_of
from tilewright.schedules.sketches.inlining import stages_inlined
from tilewright.schedules.sketches.rules import (
    ALONE,
    DOUBTS,
    FUSING,
    Cover,
    _groups,
    columns,
    covers,
    epilogue,
    row,
    rows,
)
from tilewright.schedules.workload.workload import Workload

ROWS = "m[i] max= X[i,j]; e[i,j] = exp(X[i,j] - m[i]); t[i] += e[i,j]; Y[i,j] = e[i,j] / t[i]"
COLUMNS = "m[j] max= X[i,j]; e[i,j] = exp(X[i,j] - m[j]); t[j] += e[i,j]; Y[i,j] = e[i,j] / t[j]"
FEW_RESULTS = "P[i,j] += A[i,k] * B[j,k]; Y[i,j] = max(P[i,j] + b[j], 0)"


def stages_of_text(text: str, threads: int = 2, **tensors: str) -> Stages:
    return stages(notation(text, None, **tensors), threads)


def stages(workload: Workload, threads: int = 2) -> Stages:
    workload = workload.stored()
    return stages_of(workload, stages_inlined(workload), target(threads))


def names_of(cover: Cover) -> list[tuple[str, ...]]:
    return [tuple(part.name for part in parts) for parts in cover]


def test_a_group_takes_in_what_only_its_members_need() -> None:
    found = stages_of_text(ROWS, X="f32[9,43]")
    *before, last = found.left
    group = row_group(found.before(before), found.views[last])
    assert group is not None
    assert (group.producer_names, group.shared_axes, group.repeats) == (tuple(before), 1, 9)
    assert group.stages[-1] is group.last is found.views[last]


def test_what_others_need_stays_apart() -> None:
    found = stages_of_text(
        "s[i] += X[i,j]; Y[i,j] = X[i,j] - s[i]; Z[i,j] = X[i,j] * s[i]", X="f32[9,43]"
    )
    *before, last = found.left
    assert row_group(found.before(before), found.views[last]) is None


def test_axes_are_shared_as_far_as_all_reads_agree() -> None:
    found = stages_of_text("s[b,i] += X[b,i,j]; Y[b,i] = s[b,i] - s[b,0]", X="f32[3,9,43]")
    total, last = found.left
    assert leading_axes(total, found.views[last]) == 1


@pytest.mark.parametrize(("threads", "in_doubt"), [(2, False), (8, True)])
def test_rows_that_are_fewer_than_the_threads_are_in_doubt(threads: int, in_doubt: bool) -> None:
    found = stages_of_text(ROWS, threads, X="f32[4,4096]")
    *before, last = found.left
    fit = rows(found.views[last], found.before(before))
    assert fit is not None
    assert (fit.alternative is not None) == in_doubt
    together, *apart = [names_of(cover) for cover in covers(found)]
    assert together == [("rows",)]
    assert apart == ([[("rows",)] * 4] if in_doubt else [])


@pytest.mark.parametrize(
    ("text", "shape", "is_group"),
    [
        ("T[i] = exp(X[i]); Y[i] = T[i] * T[i]", "99", False),
        ("T[i,j] = exp(X[i,j]); Y[i,j] = T[i,j] * T[i,j]", "9,11", True),
        ("T[i] = exp(X[i]); Y[i] = 2 * T[i]; s[i] += Y[i] * W[i,k]", "99", True),
    ],
)
def test_a_row_is_more_than_one_element(text: str, shape: str, is_group: bool) -> None:
    tensors = {"X": f"f32[{shape}]"} | ({"W": "f32[99,40]"} if "W" in text else {})
    workload = notation(text, None, **tensors).stored()
    found = stages_of(workload, (), target(2))
    *before, last = found.left
    group = row_group(found.before(before), found.views[last])
    assert (group is not None) == is_group


def test_columns_are_in_doubt() -> None:
    found = stages_of_text(COLUMNS, X="f32[9,43]")
    *before, last = found.left
    fit = columns(found.views[last], found.before(before))
    assert fit is not None
    assert fit.fused_stages == tuple(before)
    assert [len(cover) for cover in covers(found)] == [1, 4]


def test_products_with_few_results_are_offered_apart_as_inner_products_alone() -> None:
    found = stages_of_text(FEW_RESULTS, A="f32[4,1024]", B="f32[1024,1024]", b="f32[1024]")
    *before, last = found.left
    fit = epilogue(found.views[last], found.before(before))
    assert fit is not None
    assert fit.alternative is rules.FEW_RESULTS
    assert [names_of(cover) for cover in covers(found)] == [
        [("tile",)],
        [("inner_product",), ("rows",)],
    ]


@pytest.mark.parametrize(
    ("epilogue_text", "is_offered"),
    [
        ("max(P[i,j], 0)", False),
        ("tanh(P[i,j])", False),
        ("tanh(P[i,j]) * tanh(P[i,j])", False),  # computed once
        ("tanh(exp(P[i,j]))", True),
        ("tanh(P[i,j]) + exp(P[i,j])", True),
    ],
)
def test_products_with_long_epilogues_are_also_offered_apart(
    epilogue_text: str, is_offered: bool
) -> None:
    text = f"P[i,j] += A[i,k] * B[k,j]; Y[i,j] = {epilogue_text}"
    found = stages_of_text(text, A="f32[128,96]", B="f32[96,160]")
    together, *apart = [names_of(cover) for cover in covers(found)]
    assert together == [("tile",)]
    assert apart == ([[("tile",), ("rows",)]] if is_offered else [])


@pytest.mark.parametrize("seed", range(12))
def test_every_cover_has_every_stage_once(seed: int) -> None:
    found = stages(random_workload(random.Random(seed)))
    for doubt in (None, *DOUBTS):
        fits = _groups(found, doubt)
        inside = [name for fit in fits for name in fit.fused_stages]
        assert len(set(inside)) == len(inside)
        assert len(fits) + len(inside) == len(found.left)
        assert all(fit.parts for fit in fits)


@pytest.mark.parametrize("seed", range(6))
def test_a_rule_answers_alike_whoever_was_asked_before(seed: int) -> None:
    found = stages(random_workload(random.Random(seed)))
    *before, last = found.left
    view, left = found.views[last], found.before(before)
    asked = [rule(view, left) for rule in (*FUSING, *ALONE)]
    again = [rule(view, left) for rule in reversed((*FUSING, *ALONE))]
    assert asked == again[::-1]


@pytest.mark.parametrize(
    ("text", "kind", "knobs"),
    [
        ("Y[i,j] = X[i,j] * 2", ElementwiseSketch, "vectors parallel nontemporal_stores"),
        (
            "Y[i] += X[i,j]",
            RowSketch,
            "vectors parallel split_reduction reduction_chunk nontemporal_stores",
        ),
        (
            ROWS,
            RowSketch,
            "vectors parallel split_reduction interleave_rows reduction_chunk software_pipelining"
            " nontemporal_stores",
        ),
    ],
)
def test_rows_have_the_knobs_of_what_they_are(text: str, kind: type, knobs: str) -> None:
    found = stages_of_text(text, X="f32[9,43]")
    *before, last = found.left
    fit = (rows if text is ROWS else row)(found.views[last], found.before(before))
    assert fit is not None
    (part,) = fit.parts
    assert isinstance(part, kind)
    assert [knob.name for knob in part.knobs] == knobs.split()


def test_a_group_of_one_stage_has_its_own_axes() -> None:
    found = stages_of_text("Y[i,j] = X[i,j] * 2", X="f32[9,43]")
    alone = FusionGroup(found.views[found.left[-1]], (), 1)
    assert (alone.producer_names, alone.repeats) == ((), 9)


@pytest.mark.parametrize(
    "shape", ["8,14,14,9", "4,28,28,96", "33,16,14", "28,8,33,2", "28,28,16,7"]
)
def test_one_walk_over_several_axes_is_shared_by_threads(shape: str) -> None:
    """Once pieces of such a walk could not be told apart, and loops were left as they are."""
    axes = ",".join("ijkl"[: shape.count(",") + 1])
    text = f"Y[{axes}] = max(A[{axes}] + B[{axes}], 0)"
    workload = notation(text, A=f"f32[{shape}]", B=f"f32[{shape}]")
    *_, sketch = space_for(workload, target(2)).sketches
    setting = list(sketch.default())
    assert sketch.name == "rows"
    nest = sketch.lowered(setting)[1]
    (shared,) = [x for x in loops(nest.body) if x.kind is LoopKind.PARALLEL]
    assert 4 <= shared.extent <= 8


REPEATED = "T[i,j] = X[j,i]; Y[i,j] = T[i,j] + T[i,j] * T[i,j] + T[i,j]"


@pytest.mark.parametrize(
    ("text", "inlined"),
    [
        (REPEATED, True),  # one element, however often it occurs
        ("T[i,j] = X[j,i] + X[i,j] + X[i,i]; Y[i,j] = T[i,j] + T[i+1,j] + T[i+2,j]", False),
        ("T[i,j] = exp(X[i,j]); Y[i,j] = T[i,j] * T[i,j]", True),
        ("T[i,j] = exp(X[i,j]); U[i,j] = T[i,j] * 2.0; Y[i,j] = U[i,j] + U[i+1,j]", False),
    ],
)
def test_uses_are_counted_by_elements(text: str, inlined: bool) -> None:
    bounds = {"i": 30} if "i+" in text else None
    workload = notation(text, bounds, X="f32[33,33]").stored()
    last = workload.stages[-1]
    names = {load.tensor for load in loads(last.body)}
    assert (names <= set(stages_inlined(workload))) == inlined


@pytest.mark.parametrize(
    ("text", "inlined"),
    [
        ("T[i,j] = X[j,i]; Y[i,j] = max(T[i,j], 0.0)", True),
        ("T[i,j] = X[j,i]; M[i] += T[i,j]", False),
        ("T[i,j] = X[j,i]; M[i] += T[i,j]; Y[i,j] = T[i,j] - M[i]", False),
        ("T[i,j] = X[j,i]; U[i,j] = T[i,j] * 2.0; M[i] += U[i,j]; Y[i,j] = U[i,j] - M[i]", None),
        ("T[i,j] = X[j,i]; Y[i,k] += T[i,j] * W[j,k]", False),
        ("T[i,j] = X[j,i]; Y[i,j] = where(j >= i, T[i,j], 0.0)", False),
    ],
)
def test_transpositions_are_not_computed_in_rows(text: str, inlined: bool | None) -> None:
    shapes = {"X": "f32[64,48]", **({"W": "f32[64,80]"} if "W" in text else {})}
    program = notation(text, None, **shapes)
    workload = program.stored()
    own = stages_inlined(workload)
    if inlined is not None:
        assert (workload.stages[0].name in own) == inlined
    found = stages(program)
    for cover in covers(found):
        for parts in cover:
            for part in parts:
                if isinstance(part, RowSketch):
                    strided = [
                        read
                        for view in part.group.stages
                        for read in view.reads
                        if view.spatial and (read.element_stride(view.spatial[-1].name) or 0) > 1
                    ]
                    assert not [r for r in strided if r.tensor == "i0"], text
