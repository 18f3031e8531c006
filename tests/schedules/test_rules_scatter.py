"""Sketches of scatters: what their loops look like, what threads divide, and that every setting
means what the expression does."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.golden_text import Golden
from tests.support.schedule_fuzz.patterns import scattered_terms
from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import program_counts
from tilewright.costmodel.prior import Prior
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.analysis.stages import view_stage
from tilewright.schedules.sketches.scatter import sketch as scatters
from tilewright.schedules.sketches.scatter.roles import scatter_roles
from tilewright.schedules.sketches.scatter.trace import ALONE, COLUMNS, OUTER, TABLES
from tilewright.schedules.space import Sketch
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.machine.least_work import least_work

SCATTERS: dict[str, Workload] = {
    "a histogram": notation("H[v] += where(I[n] == v, 1, 0)", {"v": 37}, I="i32[61]"),
    "bytes": notation("H[v] max= where(I[n] == v, X[n], -inf)", {"v": 37}, I="u8[61]", X="f32[61]"),
    "segments of rows": notation(
        "Y[v,d] += where(I[n] == v, X[n,d], 0.0)", {"v": 9}, I="i64[13]", X="f32[13,37]"
    ),
    "an embedding's gradient": notation(
        "Y[v,d] += f32(I[b,n] == v) * X[b,n,d]", {"v": 9}, I="i32[3,7]", X="f32[3,7,17]"
    ),
    "one-hot vectors": notation(
        "H[n,v] = where(I[n] == v, 1.0, 0.0); Y[v,d] += H[n,v] * X[n,d]",
        {"v": 9}, I="i32[13]", X="f32[13,17]",
    ),
    "batches": notation(
        "Y[b,v] += where(I[b,n] == v, X[b,n], 0.0)", {"v": 9}, I="i32[5,13]", X="f32[5,13]"
    ),
    "a column each": notation(
        "Y[v,d] min= where(I[n,d] == v, X[n,d], 2147483647)", {"v": 9}, I="i32[13,3]", X="i32[13,3]"
    ),
    "two positions": notation(
        "Y[u,v] += where(I[n] == v && J[n] == u, X[n], 0.0)", {"v": 3, "u": 7},
        I="i32[17]", J="i32[17]", X="f32[17]",
    ),
    "integers under a condition": notation(
        "Y[v,d] += where(n >= 2 && n != 5, where(I[n - 2] == v, X[n,d], 0.0), 0.0)",
        {"v": 9, "n": 13}, I="i32[11]", X="f32[13,17]",
    ),
    "diagonals": notation(
        "Y[b,v] += where(b <= n, where(I[n - b] == v, X[n], 0.0), 0.0)",
        {"v": 17, "n": 13, "b": 3}, I="i32[13]", X="f32[13]",
    ),
    "other sums": notation(
        "Y[v,d] += where(I[n] == v, X[n,k] * W[k,d], 0.0)",
        {"v": 9}, I="i32[13]", X="f32[13,2]", W="f32[2,9]",
    ),
}  # fmt: skip


def scatter_of(workload: Workload, threads: int = 1) -> Sketch:
    sketches = space_for(workload.normalised(), replace(target(), threads=threads)).sketches
    return next(sketch for sketch in sketches if sketch.name.endswith("scatter"))


def settings_of(sketch: Sketch) -> list[tuple[int, ...]]:
    every = np.array(list(product(*(range(len(knob.values)) for knob in sketch.knobs))))
    return [tuple(map(int, one)) for one in every[sketch.feasible(every)]]


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_setting_means_the_same(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatters, "LEAST_TERMS", 1)
    workload = SCATTERS[name].normalised()
    sketch = scatter_of(workload, threads)
    assert sketch.feasible(np.asarray([sketch.default()]))[0]
    for setting in settings_of(sketch):
        nest = lower(workload, sketch.trace(setting))
        assert any(loop.kind is LoopKind.SELECTED for loop in loops(nest.body))
        check_meaning(workload, nest)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]))
@settings(max_examples=60, deadline=None)
def test_every_setting_of_any_program_means_the_same(seed: int, threads: int) -> None:
    rng = Random(seed)
    try:
        workload = scattered_terms(rng).normalised()
    except WorkloadError:
        return  # types that differ
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scatters, "LEAST_TERMS", 1)
        space = space_for(workload, replace(target(), threads=threads))
        assert not any(dropped.name.endswith("scatter") for dropped in space.dropped)
        for sketch in space.sketches:
            if sketch.name.endswith("scatter"):
                setting = rng.choice(settings_of(sketch))
                check_meaning(workload, lower(workload, sketch.trace(setting)))


@pytest.mark.parametrize("extent", [1, 2, 3, 7, 13, 17])
def test_extents_that_vectors_do_not_divide(extent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatters, "LEAST_TERMS", 1)
    terms = extent + 1
    workload = notation(
        "Y[v,d] += where(I[n] == v, X[n,d], 0.0)", {"v": 5}, I=f"i32[{terms}]",
        X=f"f32[{terms},{extent}]",
    ).normalised()  # fmt: skip
    sketch = scatter_of(workload, 2)
    for setting in settings_of(sketch):
        check_meaning(workload, lower(workload, sketch.trace(setting)))


def test_threads_divide_what_there_is(golden: Golden) -> None:
    def divisions(text: str, threads: int, **tensors: str) -> tuple[int, ...]:
        sketch = scatter_of(notation(text, {"v": 99}, **tensors), threads)
        found = [knob.values for knob in sketch.knobs if knob.name == "threads_divide"]
        return found[0] if found else ()

    one, rows = "H[v] += where(I[n] == v, 1, 0)", "Y[v,d] += where(I[n] == v, X[n,d], 0.0)"
    each = "Y[b,v] += where(I[b,n] == v, 1, 0)"
    assert divisions(one, 2, I="i32[9999]") == (ALONE, TABLES)
    assert divisions(one, 1, I="i32[9999]") == ()
    assert divisions(one, 2, I="i32[999]") == ()  # a parallel region takes longer
    assert divisions(each, 2, I="i32[8,9999]") == (ALONE, OUTER, TABLES)
    assert divisions(rows, 2, I="i32[9999]", X="f32[9999,64]") == (ALONE, COLUMNS, TABLES)
    sketch = scatter_of(notation(one, {"v": 99}, I="i32[9999]"), 2)
    setting = tuple(len(knob.values) - 1 for knob in sketch.knobs)
    assert to_text(sketch.lowered(setting)[1]) == golden


def test_comparisons_remain_and_are_first_for_few_outputs() -> None:
    def names(outputs: int) -> list[str]:
        workload = notation("H[v] += where(I[n] == v, 1, 0)", {"v": outputs}, I="i32[9999]")
        return [sketch.name for sketch in space_for(workload.normalised(), target()).sketches]

    lanes = target().lanes(DType.I32)
    assert names(2 * lanes)[-1] == "scatter"
    assert names(2 * lanes)[0] != "scatter"
    assert names(1000)[0] == "scatter"
    assert len(names(1000)) > 1


@pytest.mark.parametrize(("outputs", "scatters_first"), [(8, False), (5000, True)])
def test_the_prior_prefers_comparisons_for_few_outputs(outputs: int, scatters_first: bool) -> None:
    workload = notation("H[v] += where(I[n] == v, 1, 0)", {"v": outputs}, I="i32[99999]")
    space = space_for(workload.normalised(), replace(target(), threads=1))
    prior = Prior(space)
    best: dict[bool, float] = {}
    rng = np.random.default_rng(0)
    for number, sketch in enumerate(space.sketches):
        sizes = [len(knob.values) for knob in sketch.knobs]
        drawn = rng.integers(0, sizes, (20000, len(sizes)))
        secs = prior.log2_secs(number, drawn[sketch.feasible(drawn)]).min()
        kind = sketch.name == "scatter"
        best[kind] = min(best.get(kind, np.inf), float(secs))
    assert (best[True] < best[False]) == scatters_first


def test_a_stage_that_reads_a_scatter_is_a_group_of_its_own() -> None:
    workload = notation(
        "H[v] += where(I[n] == v, 1.0, 0.0); P[v] = H[v] / 61", {"v": 37}, I="i32[61]"
    ).normalised()
    names = [part.name for part in space_for(workload, target()).sketches[0].parts]
    assert names[0] == "scatter"
    assert len(names) == 2


def test_the_least_work_has_one_output_for_each_term() -> None:
    few, many = (
        notation("Y[v] += where(I[n] == v, X[n], 0.0)", {"v": v}, I="i32[999]", X="f32[999]")
        for v in (2, 2000)
    )
    assert least_work(few.normalised()).slots == least_work(many.normalised()).slots


@pytest.mark.parametrize(
    "text",
    [
        "Y[v] += where(I[n] <= v, X[n], 0.0)",
        "Y[v] += where(I[v] == v, X[n], 0.0)",
        "Y[v] += where(I[n] == v, X[n], 1.0)",
        "Y[v] += X[n] * f32(I[v])",
    ],
)
def test_other_reductions_are_no_scatters(text: str) -> None:
    workload = notation(text, {"v": 9}, I="i32[9]", X="f32[9]").normalised()
    assert scatter_roles(view_stage(workload, "s0")) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_loads_stores_and_tasks_are_counted(threads: int) -> None:
    workload = notation(
        "Y[v,d] += where(I[n] == v, X[n,d], 0.0)", {"v": 50}, I="i32[9999]", X="f32[9999,64]"
    ).normalised()
    machine = replace(target(), threads=threads)
    sketch = scatter_of(workload, threads)
    vectors = 64 // machine.lanes(DType.F32)
    for setting in settings_of(sketch):
        counts = program_counts(sketch, np.asarray([setting]))
        values = {knob.name: knob.values[n] for knob, n in zip(sketch.knobs, setting, strict=True)}
        divided = values.get("threads_divide", ALONE)
        tables = threads if divided == TABLES else 0
        # Outputs are initialised, or tables are, and then combined one by one.
        others = vectors * 50 * (2 * tables or 1)
        assert counts["vector_stores"][0] == pytest.approx(9999 * vectors + others, rel=1e-3)
        loads = 2 * 9999 * vectors + 9999 * (2 if divided == COLUMNS else 1)
        assert counts["vector_loads"][0] == pytest.approx(loads + vectors * 50 * tables, rel=1e-3)
        assert counts["regions"][0] == {ALONE: 0, COLUMNS: 1, TABLES: 2}[divided]
        assert counts["scalar_accesses"][0] == 0
