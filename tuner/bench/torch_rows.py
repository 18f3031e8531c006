"""PyTorch's functions of rows: softmax, norms and the like, found by what they give.

A run of stages over one tensor is compared with every function here, along every axis; one that
gives the same values is a way of computing it, however the run was spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

from .ways import Way

Value = Callable[[], Any]
_MOST_DIMS = 3


def row_ways(
    operands: Sequence[tuple[Value, tuple[int, ...]]],
    shape: tuple[int, ...],
    constants: Sequence[float],
) -> list[Way]:
    """Functions of `operands` (each with its shape) whose result has `shape`.

    `constants` are the numbers in the expression: one may be what keeps a root from zero.
    """
    ranks = [len(each) for _, each in operands]
    if not operands or max(ranks) == 0:
        return []
    x, whole = operands[ranks.index(max(ranks))]
    others = [value for value, each in operands if value is not x]
    if any(each != whole[-1:] for value, each in operands if value is not x):
        return []
    if not others:
        return [*_same_shape(x, whole, shape), *_reduced(x, whole, shape), *_norms(x, [], whole,
                shape, constants)]  # fmt: skip
    return list(_norms(x, others, whole, shape, constants))


def _same_shape(x: Value, whole: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Way]:
    import torch

    if shape != whole:
        return
    y = torch.empty(shape, dtype=x().dtype)
    for dim in range(len(whole)):
        for name in ("softmax", "log_softmax"):
            function = getattr(torch, name)
            yield _way(f"torch.{name} along {dim}", lambda f=function, d=dim: f(x(), d))
        softmax = torch._softmax
        yield _way(
            f"torch.softmax along {dim}, with out",
            lambda f=softmax, d=dim: f(x(), d, False, out=y),
        )


def _reduced(x: Value, whole: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Way]:
    import torch

    for count in range(1, min(len(whole), _MOST_DIMS) + 1):
        for dims in combinations(range(len(whole)), count):
            if tuple(n for i, n in enumerate(whole) if i not in dims) != shape:
                continue
            for name, function in (
                ("logsumexp", torch.logsumexp),
                ("mean", torch.mean),
                ("linalg.vector_norm", torch.linalg.vector_norm),
            ):
                yield _way(f"torch.{name} along {dims}", lambda f=function, d=dims: f(x(), dim=d))
            yield _way(
                f"torch.var along {dims}", lambda d=dims: torch.var(x(), dim=d, correction=0)
            )


def _norms(
    x: Value, others: Sequence[Value], whole: tuple[int, ...], shape: tuple[int, ...],
    constants: Sequence[float],
) -> Iterator[Way]:  # fmt: skip
    """Layer norm of the last axis with scale and offset, or root mean square norm."""
    import torch

    if shape != whole or len(others) > 2:
        return
    functions = torch.nn.functional
    width = whole[-1:]
    for eps in sorted({c for c in constants if 0 < c < 0.1}) or [0.0]:
        for order in permutations(others):
            scale, offset = [*order, None, None][:2]
            yield _way(
                f"layer_norm({eps:g}){_order(order, others)}",
                lambda s=scale, o=offset, e=eps: functions.layer_norm(
                    x(), width, s and s(), o and o(), e
                ),
            )
        if len(others) < 2:
            (scale,) = others or (None,)
            yield _way(
                f"rms_norm({eps:g})",
                lambda s=scale, e=eps: functions.rms_norm(x(), width, s and s(), e),
            )


def _order(order: Sequence[Value], others: Sequence[Value]) -> str:
    return "" if list(order) == list(others) else ", operands exchanged"


def _way(name: str, call: Any) -> Way:
    return Way(name, lambda: call)
