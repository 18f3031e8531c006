"""Who checks the checker: mistakes planted blindly in right kernels, all of them caught.

`benchmarks/planted_miscompiles.py` does the same in every kernel there is, some 900 mistakes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from llvmlite import binding as llvm

from tests.support.planting import nests as planting_nests
from tests.support.planting import text as planting_text
from tests.support.planting import unusual
from tests.support.planting.bases import TARGET, Base, load_bases
from tests.support.planting.equivalents import ANY, EQUIVALENTS, why_equivalent
from tests.support.planting.examiner import ROUNDS, compare
from tests.support.planting.run import (
    COMPILER,
    SYMBOL,
    Judged,
    Mutant,
    Verdict,
    judge,
    plant,
    right_kernel,
)
from tests.support.planting.tuned import tuned_bases
from tests.support.planting.unusual import plant_unusual, unusual_bases
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.trace import Trace
from tilewright.tuner.codegen.abi import Needs
from tilewright.tuner.codegen.generate import generate
from tilewright.tuner.compiling.pool import CompilePool
from tilewright.tuner.judge.team_sizes import checked_team_sizes
from tilewright.tuner.machine.x86_levels import level_target
from tilewright.tuner.measure.checking.requests import checked_in_full, kernel_job

PLANTED_IN = ("matmul_parallel", "norm")
BASES = load_bases()

pytestmark = pytest.mark.skipif(
    not all(llvm.get_host_cpu_features().get(name) for name in TARGET.features),
    reason=f"the kernels are made for {TARGET.cpu}",
)


@pytest.fixture(scope="module")
def pool() -> Iterator[CompilePool]:
    with CompilePool(workers=2, compiler=COMPILER) as pool:
        yield pool


def test_every_planted_miscompile_is_caught_or_explained(pool: CompilePool) -> None:
    judged = [
        each
        for name in PLANTED_IN
        for each in judge(BASES[name], plant(BASES[name], seed=0, each=1), pool, seed=0)
    ]
    wrong = (Verdict.MISSED, Verdict.ALARM)
    assert [each.mutant.name for each in judged if each.verdict in wrong] == []
    assert sum(each.verdict in (Verdict.QUICK, Verdict.FULL) for each in judged) >= 80


def with_nests(base: Base, edits: Iterable[tuple[str, Nest]]) -> list[Mutant]:
    made = [(edit, generate(nest, base.target, SYMBOL)) for edit, nest in edits]
    return [Mutant(base.name, "", edit, m.text, m, "nest") for edit, m in made]


def judged_in(base: Base, mutants: list[Mutant], pool: CompilePool) -> list[Judged]:
    first, *judged = judge(base, mutants, pool, seed=0)
    assert first.verdict is Verdict.SAME, first.detail
    return judged


def test_what_keeps_an_exponential_finite_must_be_right(pool: CompilePool) -> None:
    """exp(x - m) / sum is the same for every m, as long as nothing overflows."""
    base = BASES["softmax"]
    edits = planting_nests.other_operation(base.nest)
    mutants = with_nests(base, [e for e in edits if "sub -> add" in e[0]])
    edits = planting_nests.drop_last_iteration(base.nest)
    mutants += with_nests(base, [e for e in edits if e[0].startswith("s0.r0i.rfo")])
    judged = judged_in(base, mutants, pool)
    assert [each.verdict for each in judged] == [Verdict.FULL] * 2


def test_threads_that_take_a_maximum_in_one_place_are_a_race(pool: CompilePool) -> None:
    """Poison is the maximum of itself and other poison: only noise shows who writes."""
    base = BASES["max_pool"]
    judged = judged_in(base, with_nests(base, planting_nests.parallel_inside(base.nest)), pool)
    assert len(judged) >= 2
    assert {each.verdict for each in judged} == {Verdict.QUICK}


def test_whole_cache_lines_need_not_begin_at_one(pool: CompilePool) -> None:
    base = BASES["matmul_even"]
    right = right_kernel(base)
    lies = [e for e in planting_text.align_lie(right.text) if "masked" not in e[0]][:2]
    mutants = [Mutant(base.name, "", e, text, right.made, "text") for e, text in lies]
    judged = judged_in(base, mutants, pool)
    assert [each.verdict for each in judged] == [Verdict.FULL] * 2


def test_what_a_maximum_starts_from_must_be_right(pool: CompilePool) -> None:
    """From zero, or without the negative numbers of some lanes, it is wrong only in rows that lie
    below zero altogether."""
    base = BASES["softmax_merged"]
    right = right_kernel(base)
    edits = planting_text.float_constant(right.text)
    lowest = "0xFFF0000000000000"
    texts = [text for edit, text in edits if lowest in edit.split(" => ")[0]]
    mutants = [Mutant(base.name, "", str(n), t, right.made, "text") for n, t in enumerate(texts)]
    judged = judged_in(base, mutants, pool)
    assert len(judged) >= 2
    assert {each.verdict for each in judged} <= {Verdict.QUICK, Verdict.FULL, Verdict.SAME}


@pytest.mark.parametrize("plant_in", [planting_text.past_the_end, planting_text.write_input])
def test_code_for_tensors_that_are_not_aligned_is_guarded_too(
    plant_in: Any, pool: CompilePool
) -> None:
    """Rows of whole pages are aligned wherever guards allow: other code runs elsewhere."""
    base = BASES["streamed"]
    right = right_kernel(base)
    assert "!nontemporal" in right.text
    edits = [e for e in plant_in(right.text) if "align 4 =>" in e[0]]
    mutants = [Mutant(base.name, "", edit, text, right.made, "text") for edit, text in edits]
    judged = judged_in(base, mutants, pool)
    # What follows in the same row is written afterwards, but for the last vector.
    assert MeasureStatus.OUT_OF_BOUNDS in {each.status for each in judged}


def test_the_same_seed_plants_the_same_mistakes() -> None:
    base = BASES["norm"]
    assert plant(base, 3, 1) == plant(base, 3, 1) != plant(base, 4, 1)


@pytest.mark.parametrize(
    "operator", [*planting_nests.OPERATORS, *planting_text.OPERATORS], ids=lambda f: f.__name__
)
def test_every_way_to_plant_a_mistake_finds_a_place(operator: Any) -> None:
    """An operator that nothing matches any more would leave a hole nobody sees."""
    on_nests = operator in planting_nests.OPERATORS
    for base in BASES.values():
        where = base.nest if on_nests else right_kernel(base).text
        for _, changed in operator(where):
            assert changed != where
            return
    pytest.fail(f"{operator.__name__} finds nothing to change")


def test_explanations_are_of_bases_and_operators_there_are() -> None:
    known = {f.__name__ for f in (*planting_nests.OPERATORS, *planting_text.OPERATORS)}
    assert {e.operator for e in EQUIVALENTS} <= known
    assert {e.base for e in EQUIVALENTS} <= {ANY, *BASES}
    assert all(e.reason and e.edit for e in EQUIVALENTS)
    assert why_equivalent("matmul_packed", "drop_store", "store") is None


SAMPLED = ("softmax_mn:M=64,N=1000 #0", "matmul:M=127,N=131,K=137 #0")


def test_a_sample_of_mistakes_at_sizes_people_tune(pool: CompilePool) -> None:
    any_machine = level_target("x86-64-v3")  # which of the mistakes are harmless is known for it
    bases = [b for b in tuned_bases(any_machine, 1, seed=0) if b.name.startswith(SAMPLED)]
    assert len(bases) == len(SAMPLED)
    judged: list[Judged] = []
    for base in bases:
        planted = plant(base, seed=0, each=1)
        some = random.Random(0).sample(planted, 8)
        judged += judge(base, some, pool, seed=0, examined=True)
    assert [j.mutant.name for j in judged if j.verdict in (Verdict.MISSED, Verdict.ALARM)] == []
    assert sum(j.verdict in (Verdict.QUICK, Verdict.FULL) for j in judged) >= 8


def test_a_sample_of_mistakes_that_rarely_show(pool: CompilePool) -> None:
    bases = list(unusual_bases(seed=0, threads=(2,)))
    planted = [(base, plant_unusual(base, what, seed=0, each=1)) for base, what in bases]
    found = {mutant.operator for _, mutants in planted for mutant in mutants}
    assert found == set(unusual.OPERATORS)  # each finds a place
    judged: list[Judged] = []
    for base, mutants in planted[::4]:
        judged += judge(base, mutants, pool, seed=0)
    assert [j.mutant.name for j in judged if j.verdict in (Verdict.MISSED, Verdict.ALARM)] == []
    assert sum(j.verdict in (Verdict.QUICK, Verdict.FULL) for j in judged) >= 12


def test_results_below_the_least_normal_number_have_no_relative_error() -> None:
    exact = np.array([1e-44, 0.5])
    right = np.array([1e-44, 0.5], np.float32)
    lost = np.array([0.0, 0.5], np.float32)
    assert compare([exact], [right], [lost]).reason == ROUNDS
    exact, right = np.array([1e-20, 0.5]), np.array([1e-20, 0.5], np.float32)
    assert compare([exact], [right], [lost]).reason is None


def test_one_element_that_cancels_is_no_reason_to_call_an_order_wrong() -> None:
    exact = np.linspace(1, 2, 1000)
    exact[7] = 1e-7
    right, other = exact.astype(np.float32), exact.astype(np.float32)
    right[8], other[7] = right[8] + 2e-6, other[7] + 1e-7
    assert compare([exact], [right], [other]).reason == ROUNDS
    odd = np.where(np.arange(1000) % 2, right, right * np.float32(1.00001))
    assert compare([exact], [right], [odd]).reason is None


def test_a_rewritten_kernel_is_held_against_its_rewritten_form() -> None:
    """And with every number of threads: what the runner is asked is what candidates get."""
    trace = Trace.from_json([])
    job = checked_in_full(kernel_job(SYMBOL, 3, Needs(64), trace))
    assert job["team_sizes"] == checked_team_sizes(3) == (1, 2, 3)
    assert job["every_entry"]
    assert job["repeats"] > 1
    assert job["rewrites"] == trace.to_json()
