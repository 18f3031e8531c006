"""Losses and similarities of M rows: one number for the batch, or one per row."""

from __future__ import annotations

from ..frontend.array.arrays import LazyArray, TensorArray, where
from ..frontend.array.functions import take_along_axis
from ..frontend.expr import maximum, minimum, placeholder
from ..frontend.functions import exp, log, sqrt
from .registry import FLOATS, Draft, Operator, Param, Sizes, Types

_LEAST_NORM = 1e-8


def _operands(p: Sizes, t: Types) -> tuple[TensorArray, TensorArray]:
    """Return the predictions A and the targets B."""
    shape = (p["M"], p["N"])
    return placeholder("A", shape, t.data), placeholder("B", shape, t.data)


def _loss(p: Sizes, y: LazyArray, inputs: tuple[TensorArray, ...], flops: int) -> Draft:
    """Return `y` with `flops` operations per element of the operands."""
    return Draft(y.named("Y"), inputs, flops * p["M"] * p["N"])


def _cross_entropy(p: Sizes, t: Types) -> Draft:
    """Build the mean of log(sum(exp(A[i]))) - A[i, target[i]]. A target outside 0..N-1 selects the
    number 0."""
    a = placeholder("A", (p["M"], p["N"]), t.data)
    target = placeholder("target", (p["M"],), "i32")
    top = a.max(-1, keepdims=True)
    chosen = take_along_axis(a, target[:, None], axis=1)[:, 0]
    y = (log(exp(a - top).sum(-1)) + top[:, 0] - chosen).mean()
    return _loss(p, y, (a, target), 5)


def _mse_loss(p: Sizes, t: Types) -> Draft:
    a, b = _operands(p, t)
    d = a - b
    return _loss(p, (d * d).mean(), (a, b), 3)


def _kl_div(p: Sizes, t: Types) -> Draft:
    """Build sum(B * (log(B) - A)) / M for logarithms A of probabilities. A term with B = 0 is 0."""
    a, b = _operands(p, t)
    terms = where(b > 0, b * (log(b) - a), 0)
    return _loss(p, terms.sum() / p["M"], (a, b), 4)


def _huber_loss(p: Sizes, t: Types) -> Draft:
    """Build the mean of d*d/2 for differences up to 1 and |d| - 1/2 for greater ones, which is
    m*(|d| - m/2) with m = min(|d|, 1)."""
    a, b = _operands(p, t)
    d = abs(a - b)
    m = minimum(d, 1)
    return _loss(p, (m * (d - 0.5 * m)).mean(), (a, b), 7)


def _hinge_loss(p: Sizes, t: Types) -> Draft:
    a, b = _operands(p, t)
    return _loss(p, maximum(1 - a * b, 0).mean(), (a, b), 4)


def _cosine_similarity(p: Sizes, t: Types) -> Draft:
    a, b = _operands(p, t)
    norms = [maximum(sqrt((x * x).sum(-1)), _LEAST_NORM) for x in (a, b)]
    return _loss(p, (a * b).sum(-1) / (norms[0] * norms[1]), (a, b), 6)


_MN = (Param("M"), Param("N"))
_BOTH = "A[M,N] B[M,N] Y[1]"

OPERATORS = (
    Operator("cross_entropy", "mean of -log(softmax(A)[target])", "A[M,N] target[M] Y[1]", "5*M*N",
             _MN, FLOATS, _cross_entropy),
    Operator("mse_loss", "mean of (A - B)^2", _BOTH, "3*M*N", _MN, FLOATS, _mse_loss),
    Operator("kl_div", "divergence of the logarithms A from the probabilities B, mean of the rows",
             _BOTH, "4*M*N", _MN, FLOATS, _kl_div),
    Operator("huber_loss", "mean of (A - B)^2/2, linear beyond differences of 1", _BOTH, "7*M*N",
             _MN, FLOATS, _huber_loss),
    Operator("hinge_loss", "mean of max(1 - A*B, 0)", _BOTH, "4*M*N", _MN, FLOATS, _hinge_loss),
    Operator("cosine_similarity", "cosine of the angle of each pair of rows",
             "A[M,N] B[M,N] Y[M]", "6*M*N", _MN, FLOATS, _cosine_similarity),
)  # fmt: skip
