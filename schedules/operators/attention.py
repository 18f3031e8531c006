"""Attention: softmax of scaled scores times values, in one kernel."""

from __future__ import annotations

from math import sqrt

from ..algebra.scalar import Reducer
from ..frontend.expr import compute, max, placeholder, reduce_axis, select, sum
from ..frontend.expr_core import Expr, Index
from ..frontend.functions import exp
from .registry import FLOATS, Draft, Operator, Param, Sizes, Types


def _attention(p: Sizes, t: Types) -> Draft:
    """Build softmax(Q K' / sqrt(D)) V. If `causal`, query i sees the keys 0..i only; the others
    have the weight 0."""
    heads, queries, keys, depth = (p["B"], p["H"]), p["S"], p["T"] or p["S"], p["D"]
    q = placeholder("Q", (*heads, queries, depth), t.data)
    k = placeholder("K", (*heads, keys, depth), t.weight)
    v = placeholder("V", (*heads, keys, depth), t.weight)
    c, r = reduce_axis(depth, "c"), reduce_axis(keys, "r")
    rows = (*heads, queries)

    def seen(i: Index, j: Index, value: Expr, otherwise: float) -> Expr:
        return select(j <= i, value, otherwise) if p["causal"] else value

    scores = compute(
        "scores",
        (*rows, keys),
        lambda b, h, i, j: sum(q[b, h, i, c] * k[b, h, j, c], axis=c) * (1 / sqrt(depth)),
    )
    least = Reducer.MAX.identity(scores.dtype)
    top = compute("top", rows, lambda b, h, i: max(seen(i, r, scores[b, h, i, r], least), axis=r))
    e = compute(
        "e",
        scores.shape,
        lambda b, h, i, j: seen(i, j, exp(scores[b, h, i, j] - top[b, h, i]), 0),
    )
    total = compute("total", rows, lambda b, h, i: sum(e[b, h, i, r], axis=r))
    y = compute(
        "Y",
        q.shape,
        lambda b, h, i, d: sum(e[b, h, i, r] * v[b, h, r, d], axis=r) / total[b, h, i],
    )
    pairs = p["B"] * p["H"] * _pairs(queries, keys, causal=bool(p["causal"]))
    return Draft(y, (q, k, v), pairs * (4 * depth + 6))


def _pairs(queries: int, keys: int, *, causal: bool) -> int:
    """Return the number of keys that all queries see together."""
    if not causal:
        return queries * keys
    steps = queries if queries < keys else keys
    return steps * (steps + 1) // 2 + (queries - steps) * keys


OPERATORS = (
    Operator("scaled_dot_product_attention", "softmax(Q K' / sqrt(D)) V",
             "Q[B,H,S,D] K[B,H,T,D] V[B,H,T,D] Y[B,H,S,D]",
             "B*H*P*(4*D + 6), P: pairs of a query and a key that it sees",
             (Param("B", 1), Param("H"), Param("S"), Param("T", 0, 0, doc="keys; 0: as many as S"),
              Param("D"),
              Param("causal", 0, 0, maximum=1, doc="1: query i sees the keys 0..i only")),
             FLOATS, _attention),
)  # fmt: skip
