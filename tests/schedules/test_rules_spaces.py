"""Spaces of expressions in no library: always there, legal, wide, parallel, and nameless."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.support.schedules.spaces import ODD, drawn, target, workload
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import program_counts
from tilewright.costmodel.counts.table import COUNTS
from tilewright.costmodel.prior import Prior
from tilewright.schedules.algebra.scalar import Reducer
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.verify_bounds import unproven_accesses
from tilewright.schedules.nest.verify_nest import verify
from tilewright.schedules.sketches import rules, space_for
from tilewright.schedules.sketches.analysis.stages import StageView
from tilewright.schedules.sketches.groups import Rule, RuleMatch, Stages
from tilewright.schedules.target import Cache
from tilewright.schedules.trace import Trace

FEW_TASKS = {"dot product", "one row", "strided convolution", "grouped"}
"""Expressions so small that all columns of a default tile are one block, or one element."""

ONE_SCAN = {"running sums of one row"}
"""A single scan is computed by one thread."""


@pytest.mark.parametrize("name", ODD)
def test_the_default_is_legal_vectorised_and_parallel(name: str) -> None:
    space = space_for(workload(name), target())
    assert space.sketches
    for sketch in space.sketches:
        assert sketch.feasible(np.asarray([sketch.default()]))[0]
        nest = lower(space.workload, sketch.trace(sketch.default()))
        verify(nest)
        assert not unproven_accesses(nest)
        kinds = {loop.kind for loop in loops(nest.body)}
        assert LoopKind.VECTORIZED in kinds
        assert LoopKind.PARALLEL in kinds or name in FEW_TASKS | ONE_SCAN


@pytest.mark.parametrize("name", sorted(FEW_TASKS - {"dot product"}))
def test_where_the_default_has_one_task_other_settings_have_more(name: str) -> None:
    space = space_for(workload(name), target())
    found = set()
    for sketch in space.sketches:
        settings = drawn(sketch, 3000)
        for row in settings[sketch.feasible(settings)][:40]:
            nest = lower(space.workload, sketch.trace(tuple(int(i) for i in row)))
            found |= {loop.kind for loop in loops(nest.body)}
    assert LoopKind.PARALLEL in found


def test_a_stage_that_no_rule_fits_leaves_the_others_their_sketches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a new kind of stage does before it has a rule."""

    def without_maxima(rule: Rule) -> Rule:
        def fits(view: StageView, stages: Stages) -> RuleMatch | None:
            return None if view.reducer is Reducer.MAX else rule(view, stages)

        return fits

    for name in ("FUSING", "ALONE"):
        monkeypatch.setattr(rules, name, tuple(map(without_maxima, getattr(rules, name))))
    program = notation(
        "D[i,j] += A[i,k] * B[k,j]; M[i] max= D[i,j]", A="f32[48,40]", B="f32[40,64]"
    )
    space = space_for(program, target())
    names = {sketch.name for sketch in space.sketches}
    assert "tile+plain" in names
    assert "plain" not in names
    for sketch in space.sketches:
        settings = drawn(sketch)
        settings = settings[sketch.feasible(settings)][:3]
        assert np.isfinite(Prior(space).log2_secs(space.sketches.index(sketch), settings)).all()
        for setting in (sketch.default(), *(tuple(int(i) for i in row) for row in settings)):
            check_meaning(program, lower(space.workload, sketch.trace(setting)))


@pytest.mark.parametrize("name", ODD)
def test_feasible_settings_have_legal_traces(name: str) -> None:
    space = space_for(workload(name), target())
    for sketch in space.sketches:
        settings = drawn(sketch)
        settings = settings[sketch.feasible(settings)][:6]
        for row in settings:
            trace = sketch.trace(tuple(int(i) for i in row))
            assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace
            verify(lower(space.workload, trace))


@pytest.mark.parametrize("name", ODD)
def test_columns_are_all_there_and_finite(name: str) -> None:
    for threads in (1, 2):
        for sketch in space_for(workload(name), target(threads)).sketches:
            settings = drawn(sketch, 50)
            columns = program_counts(sketch, settings)
            assert columns.keys() == COUNTS.keys()
            for column in columns.values():
                assert np.shape(column) == (50,)
                assert np.isfinite(column).all()
            plan = sketch.parts[0].plan(sketch.split_settings(settings)[0])
            extents = plan.trips
            assert extents.shape == (50, len(plan.levels))
            assert (extents >= 1).all()


@pytest.mark.parametrize("name", ODD)
def test_no_rule_looks_at_names(name: str) -> None:
    text, tensors, ranges = ODD[name]
    letters = sorted(set(re.findall(r"\b[A-Za-z]\b", text)))
    swaps = {c: f"name_{n}_{'zyx'[n % 3]}" for n, c in enumerate(letters)}
    renamed_text = re.sub(r"\b[A-Za-z]\b", lambda name: swaps[name[0]], text)
    renamed = from_notation(
        renamed_text,
        {swaps.get(n, n): spec for n, spec in tensors.items()},
        {swaps.get(n, n): extent for n, extent in ranges.items()},
        name="matmul:M=1,N=1,K=1",
    )
    ours, theirs = space_for(workload(name), target()), space_for(renamed, target())
    assert [s.knobs for s in ours.sketches] == [s.knobs for s in theirs.sketches]
    for a, b in zip(ours.sketches, theirs.sketches, strict=True):
        assert a.default() == b.default()
        assert a.trace(a.default()) == b.trace(b.default())


def test_an_infeasible_setting_is_known_before_its_trace_is_written() -> None:
    (sketch, *_) = space_for(workload("scaled product"), target()).sketches
    settings = drawn(sketch, 2000)
    feasible = sketch.feasible(settings)
    assert feasible.any()
    assert not feasible.all()
    for row, whole in zip(settings[:300], feasible[:300], strict=True):
        if not whole:
            continue
        try:
            sketch.trace(tuple(int(i) for i in row))
        except ScheduleError as error:
            pytest.fail(f"{row} is feasible, and {error}")


def test_the_description_of_the_machine_shapes_the_space() -> None:
    product = workload("scaled product")
    narrow, wide = space_for(product, target(bits=128)), space_for(product, target(bits=512))
    few = space_for(product, target(registers=8))
    serial = space_for(product, target(threads=1))
    usual = space_for(product, target())
    tiny = replace(target(), caches=(Cache(1024, 2),))

    def values(space: object, knob: str) -> tuple[object, ...]:
        (*_, sketch) = space.sketches  # type: ignore[attr-defined]
        return next(k.values for k in sketch.knobs if k.name == knob)

    assert len(values(narrow, "tile_vectors")) > len(values(wide, "tile_vectors"))
    assert max(map(int, map(str, values(few, "tile_rows")))) < max(
        map(int, map(str, values(usual, "tile_rows")))
    )
    assert values(serial, "parallel") == (0,)
    assert len(values(usual, "parallel")) > 1
    settings = drawn(usual.sketches[0], 3000)
    small = space_for(product, tiny).sketches[0].feasible(settings)
    assert small.sum() < usual.sketches[0].feasible(settings).sum()


def test_tiles_need_not_divide() -> None:
    (*_, sketch) = space_for(workload("scaled product"), target(1)).sketches
    rows = next(k.values for k in sketch.knobs if k.name == "tile_rows")
    assert any(33 % int(r) for r in rows)


def test_one_thread_may_do_it_all() -> None:
    shapes = {"A": ("f32", (40, 40)), "B": ("f32", (40, 40))}
    product = from_notation("C[i,j] += A[i,k] * B[k,j]", shapes, {})
    sketch = space_for(product, target()).sketches[0]
    at = [knob.name for knob in sketch.knobs].index("parallel")
    settings = drawn(sketch, 20_000)
    settings = settings[sketch.feasible(settings)]
    serial = settings[settings[:, at] == 0]
    assert len(serial)
    for setting in serial[:5]:
        nest = lower(product, sketch.trace(tuple(int(i) for i in setting)))
        assert all(loop.kind is not LoopKind.PARALLEL for loop in loops(nest.body))
    found = program_counts(sketch, settings)
    shared = (settings[:, at] > 0) & (found["tasks"] > 1)
    assert np.array_equal(found["regions"] > 0, shared)
