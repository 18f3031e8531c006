"""Find phases: output positions with the same remainder modulo a stride, which use the same taps.

Consider an output axis x and a reduction axis r in a condition `(x + p - r) % n == 0`, as in a
transposed convolution with stride n. For each x, only every n-th r contributes. Both axes are split
by n. The inner part of x is called the phase. The inner part of r then has only one value per
phase, and the primitive `Solve` replaces its loop by this value. The result is an ordinary
convolution for each phase. The phase is an additional axis on which only the weights depend. For a
scatter with the condition `n*y + r == x + p`, `Solve` is applied to y first, which leaves the
condition above.

In a product with a block-diagonal matrix, `x // n == r // n`, r is split by n, and its outer part
is replaced by `x // n`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ...algebra.affine import FloorDiv, var
from ...algebra.congruence import Congruence, congruence_of
from ...algebra.scalar import index_conds
from ...errors import ScheduleError
from ...nest.finding import chain_to, writes_of
from ...nest.loop_ir import For, Nest, Update
from ...primitives import Solve, Split
from ...trace import Trace


def phase_steps(nest: Nest, name: str) -> tuple[Split | Solve, ...]:
    """Return the steps that remove all taps without contribution from the loops of stage `name`.
    The stage must be unscheduled."""
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
    """Yield, for each congruence in the conditions of stage `name`, steps that eliminate a
    reduction loop in it."""
    (leaf,) = writes_of(nest.body, name)
    chain = chain_to(nest.body, leaf)
    if not isinstance(leaf, Update):
        return
    by_name = {loop.var: loop for loop in chain}
    for cond in dict.fromkeys(index_conds(leaf.value)):
        congruence = congruence_of(cond)
        if congruence is None:
            continue
        if not congruence.index.vars() <= by_name.keys():
            continue
        used = [by_name[v] for v in sorted(congruence.index.vars())]
        taps = [loop for loop in used if loop.reduce]
        if congruence.modulus == 0:
            taps.sort(key=lambda tap: (abs(congruence.index.coefficient(tap.var)), tap.extent))
            yield from (steps for tap in reversed(taps) for steps in _of_equation(congruence, tap))
        elif len(taps) == 1:
            yield _solution(congruence, taps[0], [loop for loop in used if loop is not taps[0]])


def _of_equation(congruence: Congruence, tap: For) -> Iterator[tuple[Split | Solve, ...]]:
    """Yield steps that replace the loop `tap`, or the outer part of it that an equation contains,
    by its value."""
    if congruence.index.coefficient(tap.var):
        yield (Solve(tap.var),)
    quotients = (atom for atom, _ in congruence.index.terms if isinstance(atom, FloorDiv))
    for atom in quotients:
        is_even = atom.divisor < tap.extent and tap.extent % atom.divisor == 0
        if atom.numerator == var(tap.var) and is_even:
            yield Split(tap.var, atom.divisor), Solve(f"{tap.var}o")


def _solution(congruence: Congruence, tap: For, others: list[For]) -> tuple[Split | Solve, ...]:
    """Return splits after which only inner loops are in the congruence, and the Solve that replaces
    the inner loop of `tap` by its value."""
    n = congruence.modulus
    periods = [(loop, n // gcd(n, congruence.index.coefficient(loop.var))) for loop in others]
    splits = [Split(loop.var, period) for loop, period in periods if loop.extent > period]
    if tap.extent <= n:
        return (*splits, Solve(tap.var))
    return (*splits, Split(tap.var, n), Solve(f"{tap.var}i"))
