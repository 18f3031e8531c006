"""Normalisations of rows and of images, with 1e-5 added to the variance or the mean square."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..errors import WorkloadError
from ..frontend.array.arrays import ArrayExpr, LazyArray, TensorArray
from ..frontend.expr import maximum, placeholder
from ..frontend.functions import rsqrt, sqrt
from .registry import FLOATS, Draft, Operator, Param, Sizes, Types
from .windows import LAYOUTS, Layout, image_params

_EPS = 1e-5
_LEAST_NORM = 1e-12


def _standardised(x: ArrayExpr, axes: int | tuple[int, ...]) -> LazyArray:
    """Return `x` with mean 0 and variance 1 over `axes`. The variance is computed after the mean to
    avoid cancellation."""
    d = x - x.mean(axes, keepdims=True)
    return d * rsqrt((d * d).mean(axes, keepdims=True) + _EPS)


def _layernorm(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["M"], p["N"]), t.data)
    gamma, beta = (placeholder(name, (p["N"],), t.weight) for name in ("gamma", "beta"))
    y = (_standardised(a, -1) * gamma + beta).named("Y")
    return Draft(y, (a, gamma, beta), 8 * y.tensor.elements)


def _rms_norm(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["M"], p["N"]), t.data)
    gamma = placeholder("gamma", (p["N"],), t.weight)
    y = (a * rsqrt((a * a).mean(-1, keepdims=True) + _EPS) * gamma).named("Y")
    return Draft(y, (a, gamma), 4 * y.tensor.elements)


def _l2_norm(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["M"], p["N"]), t.data)
    y = a / maximum(sqrt((a * a).sum(-1, keepdims=True)), _LEAST_NORM)
    return Draft(y.named("Y"), (a,), 3 * a.tensor.elements)


def _images(p: Sizes, t: Types, layout: Layout) -> TensorArray:
    return placeholder("X", layout.image(p["N"], [p["H"], p["W"]], p["C"]), t.data)


def _channels(p: Sizes, t: Types, *names: str) -> tuple[TensorArray, ...]:
    return tuple(placeholder(name, (p["C"],), t.weight) for name in names)


def _along_channels(vector: TensorArray, layout: Layout) -> LazyArray:
    """Return `vector`, with one element per channel, in a shape that broadcasts to images."""
    after = 3 - layout.channel % 4  # dimensions of an image after its channels
    return vector[(slice(None), *(None for _ in range(after)))]


def _batch_norm(p: Sizes, t: Types, layout: Layout) -> Draft:
    x = _images(p, t, layout)
    inputs = _channels(p, t, "mean", "var", "gamma", "beta")
    mean, var, gamma, beta = (_along_channels(v, layout) for v in inputs)
    y = ((x - mean) * rsqrt(var + _EPS) * gamma + beta).named("Y")
    return Draft(y, (x, *inputs), 4 * y.tensor.elements)


def _batch_norm_train(p: Sizes, t: Types, layout: Layout) -> Draft:
    x = _images(p, t, layout)
    n, spatial, _ = layout.parts(range(x.ndim))
    return _scaled(p, t, layout, x, _standardised(x, (n, *spatial)))


def _group_norm(p: Sizes, t: Types, layout: Layout) -> Draft:
    groups = p["groups"]
    if p["C"] % groups:
        raise WorkloadError(f"groups={groups} must divide C={p['C']}", code="bad_extent")
    x = _images(p, t, layout)
    at = layout.channel % x.ndim
    apart = x.reshape(*x.shape[:at], groups, p["C"] // groups, *x.shape[at + 1 :])
    axes = tuple(dim for dim in range(1, apart.ndim) if dim != at)
    return _scaled(p, t, layout, x, _standardised(apart, axes).reshape(x.shape))


def _instance_norm(p: Sizes, t: Types, layout: Layout) -> Draft:
    x = _images(p, t, layout)
    return _scaled(p, t, layout, x, _standardised(x, layout.parts(range(x.ndim))[1]))


def _scaled(p: Sizes, t: Types, layout: Layout, x: TensorArray, standard: LazyArray) -> Draft:
    """Return `standard * gamma + beta` with one factor and one summand per channel."""
    gamma, beta = _channels(p, t, "gamma", "beta")
    y = standard * _along_channels(gamma, layout) + _along_channels(beta, layout)
    return Draft(y.named("Y"), (x, gamma, beta), 8 * x.tensor.elements)


_MN = (Param("M"), Param("N"))


def _of_images(layout: Layout) -> Iterator[Operator]:
    shape, suffix = layout.text("HW", "C"), layout.suffix("HW")
    params = (*image_params("HW"), Param("C"))
    groups = Param("groups", doc="divides C")
    for name, summary, vectors, count, more, build in (
        ("batch_norm", "batch normalisation by given statistics",
         "mean[C] var[C] gamma[C] beta[C]", 4, (), _batch_norm),
        ("batch_norm_train", "batch normalisation by the statistics of the batch",
         "gamma[C] beta[C]", 8, (), _batch_norm_train),
        ("group_norm", "normalisation of each group of channels of an image",
         "gamma[C] beta[C]", 8, (groups,), _group_norm),
        ("instance_norm", "normalisation of each channel of an image",
         "gamma[C] beta[C]", 8, (), _instance_norm),
    ):  # fmt: skip
        yield Operator(
            f"{name}_{suffix}", f"{summary}, eps 1e-5", f"X[{shape}] {vectors} Y[{shape}]",
            f"{count}*N*H*W*C", (*params, *more), FLOATS, partial(build, layout=layout),
        )  # fmt: skip


OPERATORS = (
    Operator("layernorm_mn", "layer normalisation of each row, eps 1e-5",
             "A[M,N] gamma[N] beta[N] Y[M,N]", "8*M*N", _MN, FLOATS, _layernorm),
    Operator("rms_norm_mn", "each row divided by its root mean square, eps 1e-5",
             "A[M,N] gamma[N] Y[M,N]", "4*M*N", _MN, FLOATS, _rms_norm),
    Operator("l2_norm_mn", "each row divided by its Euclidean norm, or by 1e-12 if that is greater",
             "A[M,N] Y[M,N]", "3*M*N", _MN, FLOATS, _l2_norm),
    *(op for layout in LAYOUTS for op in _of_images(layout)),
)  # fmt: skip
