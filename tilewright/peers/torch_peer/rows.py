"""PyTorch's functions of whole tensors (softmax, norms, activations), recognised by their values.

Consecutive stages (`StageRun`) are compared with every function here whose arguments fit their
shapes. A function that returns the same values becomes one of the calls that are timed for PyTorch
(`PeerVariant`), no matter how the expressions of the stages are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from math import prod
from typing import Any

from ..variants import PeerVariant, ready

Value = Callable[[], Any]
Operand = tuple[Value, tuple[int, ...]]
Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageRun:
    """Consecutive stages. `operands` has each tensor that they read, with its shape. `shape` is the
    shape of the result. `reduced` has, per reducing stage, the sorted extents of the reduced axes.
    If the `result` is known, many variants are first compared on a part of it."""

    operands: Sequence[Operand]
    shape: tuple[int, ...]
    constants: Sequence[float]
    reduced: Sequence[tuple[int, ...]]
    result: Any = None

    @property
    def eps(self) -> list[float]:
        """The constants of the expression that may be the epsilon of a root or quotient."""
        return sorted({c for c in self.constants if 0 < c < 0.1}) or [0.0]


def row_variants(run: StageRun) -> list[PeerVariant]:
    """Return calls of functions on the tensors that `run` reads, if the function's result has the
    shape of the run's result."""
    sizes = [prod(each) for _, each in run.operands]
    if not sizes or max(sizes) == 1:
        return []
    place = sizes.index(max(sizes))
    x, whole = run.operands[place]
    others = [each for n, each in enumerate(run.operands) if n != place]
    found: list[PeerVariant] = []
    if not others:
        found += _reduced(x, whole, run)
        if run.shape == whole:
            found += [*_along(x, whole, run), *_activations(x, run)]
    if run.shape == whole:
        found += [
            *_layer_norms(x, whole, others, run),
            *_channel_norms(x, whole, others, run),
        ]
    if len(others) == 1:
        found += _distances(x, whole, others[0], run)
    return found


def _dims_reduced(whole: tuple[int, ...], run: StageRun) -> list[Dims]:
    """Return the sets of dimensions that have the extents of a reducing stage."""
    found = {
        dims
        for extents in run.reduced
        for dims in combinations(range(len(whole)), len(extents))
        if tuple(sorted(whole[d] for d in dims)) == extents
    }
    return sorted(found)


def _along(x: Value, whole: tuple[int, ...], run: StageRun) -> Iterator[PeerVariant]:
    import torch

    y = torch.empty(run.shape, dtype=x().dtype)
    for dims in _dims_reduced(whole, run):
        if len(dims) > 1:
            continue
        (dim,) = dims
        for name in ("softmax", "log_softmax", "cumsum"):
            function = getattr(torch, name)
            yield ready(f"torch.{name} along {dim}", lambda f=function, d=dim: f(x(), d))
        softmax = torch._softmax
        yield ready(
            f"torch.softmax along {dim}, with out",
            lambda f=softmax, d=dim: f(x(), d, False, out=y),
        )
        for eps in run.eps:
            normalize = partial(torch.nn.functional.normalize, dim=dim, eps=eps)
            yield ready(f"normalize({eps:g}) along {dim}", lambda f=normalize: f(x()))


def _activations(x: Value, run: StageRun) -> Iterator[PeerVariant]:
    """Yield calls of elementwise functions. Constants of the expression may be their parameters."""
    import torch

    if run.reduced:
        return
    functions = torch.nn.functional
    for name in ("relu", "gelu", "silu", "mish", "hardswish", "hardsigmoid", "relu6", "softplus",
                 "elu", "selu", "celu", "softsign", "logsigmoid", "sigmoid", "tanh"):  # fmt: skip
        function = getattr(functions, name)
        yield ready(name, lambda f=function: f(x()))
    tanh = partial(functions.gelu, approximate="tanh")
    yield ready("gelu by tanh", lambda: tanh(x()))
    for slope in sorted({c for c in run.constants if 0 < abs(c) < 1}):
        for name in ("leaky_relu", "elu"):
            function = getattr(functions, name)
            yield ready(f"{name}({slope:g})", lambda f=function, s=slope: f(x(), s))


def _reduced(x: Value, whole: tuple[int, ...], run: StageRun) -> Iterator[PeerVariant]:
    import torch

    norm = torch.linalg.vector_norm
    functions = [
        ("sum", torch.sum),
        ("mean", torch.mean),
        ("amax", torch.amax),
        ("amin", torch.amin),
        ("logsumexp", torch.logsumexp),
        ("linalg.vector_norm", norm),
        ("linalg.vector_norm(1)", partial(norm, ord=1)),
        ("linalg.vector_norm(inf)", partial(norm, ord=float("inf"))),
        *((f"{f.__name__}({n})", partial(f, correction=n))
          for f in (torch.var, torch.std) for n in (0, 1)),
    ]  # fmt: skip
    for dims in _dims_reduced(whole, run):
        kept = [n for n in range(len(whole)) if n not in dims]
        if tuple(whole[n] for n in kept) != run.shape:
            continue
        y = torch.empty(run.shape, dtype=x().dtype)
        for name, function in functions:
            call = partial(function, dim=dims, out=y)
            yield ready(f"torch.{name} along {dims}", lambda f=call: f(x()))
        yield from _as_products(x, whole, dims, kept, y)
        if len(dims) == 2 and len(kept) <= 2:
            call = partial(_adaptive, (*kept, *dims), run.shape)
            yield ready(f"adaptive_avg_pool2d along {dims}", lambda f=call: f(x()))


def _adaptive(order: Dims, shape: tuple[int, ...], data: Any) -> Any:
    import torch

    turned = data.permute(order)
    image = turned if turned.ndim == 4 else turned[None]
    return torch.nn.functional.adaptive_avg_pool2d(image, 1).reshape(shape)


def _as_products(
    x: Value, whole: tuple[int, ...], dims: Dims, kept: Sequence[int], y: Any
) -> Iterator[PeerVariant]:
    """Yield variants that compute a sum as a product with ones. Also yield variants that compute a
    norm as the root of the product of each row with itself."""
    import torch

    said, count = f"along {dims}", prod(whole[d] for d in dims)
    if len(whole) == 2:
        ones = torch.ones(count, dtype=y.dtype)
        yield ready(f"torch.mv with ones {said}", lambda: torch.mv(
            x() if dims == (1,) else x().t(), ones, out=y
        ))  # fmt: skip
    if dims == tuple(range(len(kept), len(whole))):
        rows = partial(_rows, x, count)
        yield ready(f"vecdot {said}, sqrt_", lambda: torch.linalg.vecdot(
            rows(), rows(), out=y.view(-1)
        ).sqrt_().view(y.shape))  # fmt: skip
        yield ready(f"torch.bmm {said}, sqrt_", lambda: torch.bmm(
            rows()[:, None], rows()[:, :, None]
        ).sqrt_().view(y.shape))  # fmt: skip


def _rows(x: Value, count: int) -> Any:
    return x().reshape(-1, count)


def _layer_norms(
    x: Value, whole: tuple[int, ...], others: Sequence[Operand], run: StageRun
) -> Iterator[PeerVariant]:
    """Yield calls of layer norm and root mean square norm over any dimensions, with scale and
    offset."""
    import torch

    functions = torch.nn.functional
    for dims in _dims_reduced(whole, run):
        width = tuple(whole[d] for d in dims)
        if len(others) > 2 or any(each != width for _, each in others):
            continue
        kept = [n for n in range(len(whole)) if n not in dims]
        order = [*kept, *dims]
        back = [order.index(n) for n in range(len(whole))]
        said = "" if order == sorted(order) else f" along {dims}"

        def placed(function: Any, order: Any = order, back: Any = back) -> Any:
            return function(x().permute(order)).permute(back)

        for eps in run.eps:
            for suffix, (scale, offset) in _parameters(others):
                call = partial(_normed, functions.layer_norm, width, (scale, offset), eps)
                yield ready(f"layer_norm({eps:g}){said}{suffix}", partial(placed, call))
                native = partial(_normed, _first(torch.native_layer_norm), width,
                                 (scale, offset), eps)  # fmt: skip
                yield ready(f"native_layer_norm({eps:g}){said}{suffix}", partial(placed, native))
            if len(others) < 2:
                scale = others[0][0] if others else None
                call = partial(_normed, functions.rms_norm, width, (scale,), eps)
                yield ready(f"rms_norm({eps:g}){said}", partial(placed, call))


def _normed(
    function: Any, width: tuple[int, ...], more: Sequence[Value | None], eps: float, data: Any
) -> Any:
    return function(data, width, *(each and each() for each in more), eps)


def _first(function: Any) -> Any:
    """Return `function` with only the first of its results."""
    return lambda *args: function(*args)[0]


def _parameters(others: Sequence[Operand]) -> Iterator[tuple[str, tuple[Value | None, ...]]]:
    """Yield scale and offset in every order, with a description."""
    for order in permutations(range(len(others))):
        found = [*(others[n][0] for n in order), None, None][:2]
        yield "" if list(order) == sorted(order) else ", operands exchanged", tuple(found)


def _channel_norms(
    x: Value, whole: tuple[int, ...], others: Sequence[Operand], run: StageRun
) -> Iterator[PeerVariant]:
    """Yield calls of norms with a scale and an offset per channel: group, instance and batch norm.
    The channels are any dimension but the first, or two neighbouring ones: groups and their
    members."""
    rank = len(whole)
    for at in range(1, rank):
        for parts in (1, 2):
            channels = tuple(range(at, at + parts))
            if channels[-1] >= rank:
                continue
            shape = tuple(whole[d] for d in channels)
            if any(each not in (shape, (prod(shape),)) for _, each in others):
                continue
            rest = [n for n in range(1, rank) if n not in channels]
            order = [0, *channels, *rest]
            layout = _Layout(
                whole, tuple(order), (whole[0], prod(shape), *(whole[n] for n in rest))
            )
            flat = [_flattened(value) for value, _ in others]
            if parts == 1 and not run.reduced:
                yield from _batch_norms(x, layout, at, flat, run)
            elif len(others) <= 2:
                yield from _grouped_norms(x, layout, at, parts, flat, run)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The permutation of `whole` by `order`, folded to `shape`, [N, C, ...], and its inverse."""

    whole: tuple[int, ...]
    order: Dims
    shape: tuple[int, ...]

    def there(self, data: Any) -> Any:
        return data.permute(self.order).reshape(self.shape)

    def back(self, data: Any) -> Any:
        folded = data.reshape([self.whole[n] for n in self.order])
        return folded.permute([self.order.index(n) for n in range(len(self.order))])


def _flattened(value: Value) -> Value:
    return lambda: value().reshape(-1)


def _grouped_norms(
    x: Value, layout: _Layout, at: int, parts: int, others: Sequence[Value], run: StageRun
) -> Iterator[PeerVariant]:
    import torch

    functions = torch.nn.functional
    batch, channels, *rest = layout.shape
    pairs = [(value, ()) for value in others]
    for suffix, (scale, offset) in _parameters(pairs):
        for eps in run.eps:
            for extents in run.reduced:
                size = prod(extents) // max(1, prod(rest))
                if prod(extents) == batch * prod(rest) and parts == 1:
                    yield ready(
                        f"batch_norm({eps:g}) along {at}, of the batch{suffix}",
                        lambda s=scale, o=offset, e=eps: layout.back(functions.batch_norm(
                            layout.there(x()), None, None, s and s(), o and o(), True, 0.0, e
                        )),
                    )  # fmt: skip
                if size < 1 or channels % size or size * prod(rest) != prod(extents):
                    continue
                yield ready(
                    f"group_norm({channels // size}, {eps:g}) along {at}{suffix}",
                    lambda g=channels // size, s=scale, o=offset, e=eps: layout.back(
                        functions.group_norm(layout.there(x()), g, s and s(), o and o(), e)
                    ),
                )
                if size == 1 and rest:
                    yield ready(
                        f"instance_norm({eps:g}) along {at}{suffix}",
                        lambda s=scale, o=offset, e=eps: layout.back(functions.instance_norm(
                            layout.there(x()), None, None, s and s(), o and o(), True, 0.0, e
                        )),
                    )  # fmt: skip


def _batch_norms(
    x: Value, layout: _Layout, at: int, others: Sequence[Value], run: StageRun
) -> Iterator[PeerVariant]:
    """Yield calls of batch norm with given means and variances; a rectifier may follow."""
    import torch

    if not 2 <= len(others) <= 4:
        return
    function = torch.nn.functional.batch_norm
    part = tuple(slice(None) if n == at else slice(0, 2) for n in range(len(layout.whole)))
    few = _Layout(
        tuple(n if d == at else min(n, 2) for d, n in enumerate(layout.whole)), layout.order,
        tuple(n if d == 1 else min(n, 2) for d, n in enumerate(layout.shape)),
    )  # fmt: skip
    for eps in run.eps:
        for order in permutations(range(len(others))):
            values = [*(others[n] for n in order), None, None][:4]
            for rectified in (False, True):

                def norm(
                    data: Any, to: _Layout, v: Any = values, e: float = eps, r: bool = rectified
                ) -> Any:
                    mean, var, scale, offset = (each and each() for each in v)
                    y = function(to.there(data), mean, var, scale, offset, False, 0.0, e)
                    return to.back(y.relu_() if r else y)

                if run.result is not None:
                    found, given = norm(x()[part], few), run.result[part]
                    if not torch.allclose(found, given, rtol=1e-3, atol=1e-3, equal_nan=True):
                        continue
                yield ready(
                    f"batch_norm({eps:g}) along {at}, operands {order}"
                    + (", relu_" if rectified else ""),
                    lambda f=norm: f(x(), layout),
                )


def _distances(
    x: Value, whole: tuple[int, ...], other: Operand, run: StageRun
) -> Iterator[PeerVariant]:
    """Yield calls that compute the distances between all rows of two matrices."""
    import torch

    value, shape = other
    if len(whole) != 2 or len(shape) != 2 or whole[1] != shape[1]:
        return
    if list(run.reduced) != [whole[1:]]:
        return
    for a, b, result in ((x, value, (whole[0], shape[0])), (value, x, (shape[0], whole[0]))):
        if result == run.shape:
            for order in (1.0, 2.0):
                yield ready(
                    f"torch.cdist({order:g})"
                    + ("" if a is run.operands[0][0] else ", operands exchanged"),
                    lambda a=a, b=b, p=order: torch.cdist(a(), b(), p=p),
                )
