"""Losses, one number for a batch, and attention."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from benchmarks.collection.row import Input, Row
from tilewright import operators

_M, _N = 2048, 4096
_A = Input("a", (_M, _N))
_B = Input("b", (_M, _N))
_SHAPE = {"M": _M, "N": _N}
_LEAST_NORM, _TRIPLET_EPS = 1e-8, 1e-6


def _distribution(name: str) -> Input:
    return Input(name, (8192, 1024), values="distribution")


def _cosine(a: Any, b: Any) -> Any:
    norms = [tw.maximum(tw.sqrt((x * x).sum(1)), _LEAST_NORM) for x in (a, b)]
    return (1 - (a * b).sum(1) / (norms[0] * norms[1])).mean()


def _distance(a: Any, b: Any) -> Any:
    d = a - b + _TRIPLET_EPS
    return tw.sqrt((d * d).sum(1))


_HEADS = (2, 8, 512, 64)
_CLASSES = (
    Input("a", (8192, 1024)),
    Input("target", (8192,), "i32", values="class", high=1024),
)

ROWS = (
    Row("mse_loss", (_A, _B), lambda F, a, b: F.mse_loss(a, b),
        lambda a, b: operators.mse_loss(**_SHAPE)),
    Row("cross_entropy", _CLASSES, lambda F, a, target: F.cross_entropy(a, target.long()),
        lambda a, target: operators.cross_entropy(M=8192, N=1024)),
    Row("huber_loss", (_A, _B), lambda F, a, b: F.smooth_l1_loss(a, b),
        lambda a, b: operators.huber_loss(**_SHAPE)),
    Row("cosine_similarity_loss", (_A, _B),
        lambda F, a, b: (1 - F.cosine_similarity(a, b, dim=1)).mean(), _cosine),
    Row("kl_div", (_distribution("p"), _distribution("q")),
        lambda F, p, q: F.kl_div(p.log(), q, reduction="batchmean"),
        lambda p, q: (q * (tw.log(q) - tw.log(p))).sum() / 8192),
    Row("triplet_margin", tuple(Input(x, (_M, _N)) for x in ("anchor", "positive", "negative")),
        lambda F, a, p, n: F.triplet_margin_loss(a, p, n, margin=1.0),
        lambda a, p, n: tw.maximum(_distance(a, p) - _distance(a, n) + 1, 0).mean()),
    Row("hinge_loss", (_A, Input("b", (_M, _N), values="sign")),
        lambda F, a, b: (1 - a * b).clamp(min=0).mean(),
        lambda a, b: operators.hinge_loss(**_SHAPE)),
    Row("scaled_dot_product_attention", tuple(Input(x, _HEADS) for x in "qkv"),
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda q, k, v: operators.scaled_dot_product_attention(B=2, H=8, S=512, D=64)),
)  # fmt: skip
