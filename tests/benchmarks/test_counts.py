"""The recounter of nests: every iteration run one by one."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.counts.drawing import drawn
from benchmarks.counts.instances import Placed, count, iterations, placed
from tilewright.schedules.algebra.comparisons import holds
from tilewright.schedules.nest.loop_ir import Allocate, For, LoopKind, PrefetchHint, Stmt, loops


def run(stmts: tuple[Stmt, ...], env: dict[str, int], ran: Counter[int]) -> None:
    """Count what runs of each leaf, by the leaf's identity: each lane is an iteration."""
    for stmt in stmts:
        if isinstance(stmt, For):
            for value in range(stmt.extent):
                inner = {**env, stmt.var: value}
                if not all(holds(bound, inner) for bound in stmt.bounds):
                    break
                ran[id(stmt)] += 1
                run(stmt.body, inner, ran)
        elif isinstance(stmt, Allocate):
            run(stmt.body, env, ran)
        elif isinstance(stmt, PrefetchHint) or all(holds(guard, env) for guard in stmt.guards):
            ran[id(stmt)] += 1


@pytest.mark.parametrize("family", ["products", "windows", "rows", "transposes"])
@pytest.mark.parametrize("number", range(2))
def test_counts_are_those_of_a_run(family: str, number: int) -> None:
    for part in drawn(family, f"run {number}"):
        ran: Counter[int] = Counter()
        run(part.statements, {}, ran)
        for place in placed(part.statements):
            assert elements(place) == ran[id(place.leaf)]
        for loop in loops(part.statements):
            around = next(p.loops for p in placed(part.statements) if p.within(loop))
            at = [each is loop for each in around].index(True)
            if loop.kind is not LoopKind.VECTORIZED:
                assert iterations(around[: at + 1]) == ran[id(loop)]


def elements(place: Placed) -> int:
    return count(place.loops, place.conds, [loop.var for loop in place.loops])
