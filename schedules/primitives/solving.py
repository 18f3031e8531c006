"""Solve: a reduction loop that a condition lets have one value only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import Affine, Cond, Interval, affine, prove, substitute_cond
from ..algebra.conditions import normal_cond, tidy
from ..algebra.congruence import collected, congruence_of, solved
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    index_conds,
    map_index,
    rewrite,
    vars_of,
)
from ..errors import ScheduleError
from ..nest.editing import divide_out
from ..nest.finding import chain_to, ranges_of
from ..nest.loop_ir import For, Nest, Stmt, Update
from .places import find_loop, replace_loop, require_serial
from .primitive import Primitive


@dataclass(frozen=True, slots=True)
class Solve(Primitive):
    """Replace a reduction loop by the one value its equation allows (equality elimination in the
    polyhedral literature).

        for r in 0..2:                                           ->    C[x] += A[x//2] * B[x%2]
            C[x] += (A[(x - r)//2] if (x - r)%2 == 0 else 0) * B[r]

    Of a transposed convolution whose output axis and taps are split by the stride, what is left
    are the taps of one phase. Legal for a serial reduction loop around one reduction, where a
    congruence `(.. + c*r + ..) % n == 0` with c prime to n and no more than n iterations, or an
    equation `.. + c*r + .. == 0`, guards every term: where it fails, the term is what the
    reduction begins with, or a product with a zero in a sum. Such a product is left out even if
    its other factor is infinite or NaN. Where the solution may lie outside the loop, conditions
    that keep it inside remain.
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """The nest without the loop. ScheduleError: no reduction, or no equation that decides."""
        place = find_loop(nest, self.loop, self)
        loop = place.loop
        require_serial(loop, self)
        if not loop.reduce:
            raise ScheduleError(self, f"loop {self.loop!r} is not of a reduction")
        leaf, chain = _only_update(loop, self)
        every = (*place.outer, *chain)
        ranges = ranges_of(every)
        cond, value, needed = self._solution(leaf, ranges)

        def moved(index: Affine) -> Affine:
            return collected(index.substitute({self.loop: value}))

        # Conditions take the equation's place where nothing else needs them.
        instead: tuple[Cond, ...] = ()
        if self.loop not in vars_of(_elsewhere(leaf.value, cond)):
            instead, needed = needed, ()
        body = map_index(_with_instead(leaf.value, cond, instead), moved)
        speaks = [self.loop in g.index.vars() for g in leaf.guards]
        kept = tuple(g for g, own in zip(leaf.guards, speaks, strict=True) if not own)
        changed = (
            normal_cond(type(g)(moved(g.index)))
            for g, own in zip(leaf.guards, speaks, strict=True)
            if own
        )
        reduced = {each.var: affine(0) for each in every if each.reduce}
        decided: list[Cond] = []
        for guard in (*needed, *changed):
            if leaf.first is None or prove(substitute_cond(guard, reduced), ranges):
                kept = (*kept, guard)
            else:  # what no iteration adds to is still to be initialised
                decided.append(guard)
        if decided:
            identity = Const(leaf.reducer.identity(leaf.value.dtype), leaf.value.dtype)
            body = Select(All(tuple(decided)), body, identity)
        first = None if leaf.first is None else _first(leaf.first, self.loop)
        new = replace(leaf, value=tidy(body, ranges), guards=kept, first=first)
        return replace_loop(nest, self.loop, divide_out(_around(loop, new), ranges))

    def _solution(
        self, leaf: Update, ranges: dict[str, Interval]
    ) -> tuple[Cond, Affine, tuple[Cond, ...]]:
        """The condition that decides the loop's value, that value, and the conditions it needs."""
        for cond in dict.fromkeys(index_conds(leaf.value)):
            congruence = congruence_of(cond)
            if congruence is None or self.loop not in congruence.index.vars():
                continue
            solution = solved(congruence, self.loop, ranges)
            if solution is not None and _is_identity_unless(leaf.value, cond, leaf.reducer):
                return cond, *solution
        raise ScheduleError(self, f"no equation that every term stands under decides {self.loop!r}")


def _only_update(loop: For, asked_by: object) -> tuple[Update, tuple[For, ...]]:
    """The one leaf inside `loop`, and the loops around it from `loop` on."""
    current: Stmt = loop
    while isinstance(current, For) and len(current.body) == 1:
        current = current.body[0]
    if not isinstance(current, Update):
        raise ScheduleError(asked_by, f"loop {loop.var!r} must hold one reduction and nothing else")
    chain = chain_to((loop,), current)
    assert chain is not None
    return current, chain


def _around(loop: For, leaf: Update) -> tuple[Stmt, ...]:
    """The body of `loop` with its one leaf replaced."""
    body = loop.body[0]
    return (replace(body, body=_around(body, leaf)),) if isinstance(body, For) else (leaf,)


def _is_identity_unless(value: Scalar, cond: Cond, reducer: Reducer) -> bool:
    """Whether `value` is what `reducer` begins with wherever `cond` fails."""
    match value:
        case Select(All(conds), on_true, on_false):
            otherwise = _begins(on_false, reducer) or _is_identity_unless(on_false, cond, reducer)
            inside = cond in conds or _is_identity_unless(on_true, cond, reducer)
            return otherwise and inside
        case Cast(x):
            # Zero and one are themselves in every type; the least value of one is not another's.
            return reducer in (Reducer.SUM, Reducer.PROD) and _is_identity_unless(x, cond, reducer)
    if reducer is not Reducer.SUM:
        return False
    match value:
        case Binary(BinaryOp.MUL, a, b):
            return _is_identity_unless(a, cond, reducer) or _is_identity_unless(b, cond, reducer)
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            return _is_identity_unless(a, cond, reducer) and _is_identity_unless(b, cond, reducer)
        case Unary(UnaryOp.NEG | UnaryOp.ABS, x):
            return _is_identity_unless(x, cond, reducer)
        case _:
            return False


def _begins(value: Scalar, reducer: Reducer) -> bool:
    return isinstance(value, Const) and value.value == reducer.identity(value.dtype)


def _with_instead(value: Scalar, cond: Cond, instead: tuple[Cond, ...]) -> Scalar:
    """`value` with the conditions `instead` in the place of `cond`."""

    def choice(node: Scalar) -> Scalar | None:
        if not isinstance(node, Select) or not isinstance(node.cond, All):
            return None
        if cond not in node.cond.conds:
            return None
        conds = (*(c for c in node.cond.conds if c != cond), *instead)
        on_true = _with_instead(node.on_true, cond, instead)
        on_false = _with_instead(node.on_false, cond, instead)
        return Select(All(conds), on_true, on_false) if conds else on_true

    return rewrite(value, choice)


def _elsewhere(value: Scalar, cond: Cond) -> Scalar:
    """`value` where `cond` fails."""

    def choice(node: Scalar) -> Scalar | None:
        if isinstance(node, Select) and isinstance(node.cond, All) and cond in node.cond.conds:
            return _elsewhere(node.on_false, cond)
        return None

    return rewrite(value, choice)


def _first(conds: tuple[Cond, ...], loop: str) -> tuple[Cond, ...]:
    """When an update is the first, told by the other loops: all of them at zero, as before."""
    at_start = (normal_cond(substitute_cond(c, {loop: affine(0)})) for c in conds)
    # One that never holds stays: then this update is never the first.
    return tuple(c for c in at_start if c.index.terms or not prove(c, {}))
