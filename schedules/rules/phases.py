"""Phases: where only every n-th tap counts, and which ones depends on the output's place.

An output axis x and a reduction axis r that meet in a condition `(x + p - r) % n == 0`, as in a
transposed convolution with stride n, are both split by n. The inner part of x is its phase; the
inner part of r is then one number a phase, and its loop goes (Solve). What is left is an ordinary
convolution for each phase, in which the phase is one more axis that only weights know of.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ..congruence import Congruence, congruence_of
from ..errors import ScheduleError
from ..loop_ir import For, Nest, Update
from ..primitives import Solve, Split
from ..primitives.nest_edit import chain_to, writes_of
from ..scalar import index_conds
from ..trace import Trace

MAX_PHASES = 64
"""Beyond this many phases of one axis there is little left to do in each."""


def phase_steps(nest: Nest, name: str) -> tuple[Split | Solve, ...]:
    """The steps that leave nothing but taps that count in the plain stage that computes `name`."""
    steps: tuple[Split | Solve, ...] = ()
    while True:
        for more in _candidates(nest, name):
            try:
                nest = Trace(more).apply(nest)
            except ScheduleError:
                continue
            steps = (*steps, *more)
            break
        else:
            return steps


def _candidates(nest: Nest, name: str) -> Iterator[tuple[Split | Solve, ...]]:
    """For each congruence and each reduction loop in it: what solves it, if anything does."""
    (leaf,) = writes_of(nest.body, name)
    chain = chain_to(nest.body, leaf)
    assert chain is not None
    if not isinstance(leaf, Update):
        return
    by_name = {loop.var: loop for loop in chain}
    for cond in dict.fromkeys(index_conds(leaf.value)):
        congruence = congruence_of(cond)
        if congruence is None or not 1 < congruence.modulus <= MAX_PHASES:
            continue
        if not congruence.index.vars() <= by_name.keys():
            continue
        used = [by_name[v] for v in sorted(congruence.index.vars())]
        for tap in used:
            others = [loop for loop in used if loop is not tap]
            if tap.reduce and not any(loop.reduce for loop in others):
                yield _solution(congruence, tap, others)


def _solution(congruence: Congruence, tap: For, others: list[For]) -> tuple[Split | Solve, ...]:
    """Splits that make the congruence one of inner loops, and the inner tap solved."""
    n = congruence.modulus
    periods = [(loop, n // gcd(n, congruence.index.coefficient(loop.var))) for loop in others]
    splits = [Split(loop.var, period) for loop, period in periods if loop.extent > period]
    if tap.extent <= n:
        return (*splits, Solve(tap.var))
    return (*splits, Split(tap.var, n), Solve(f"{tap.var}i"))
