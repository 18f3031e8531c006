"""Sums of products as `torch.einsum`, in every order of contracting their factors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from tilewright.schedules.workload.tensors import Stage

from ..forms.einsum import EinsumForm, einsum_form
from ..variants import Call, PeerVariant, ready


def torch_einsum_variants(stage: Stage, value_of: Callable[[str], Call]) -> Iterator[PeerVariant]:
    """Yield the `einsum` of all factors. If there are three or more factors, also yield variants
    that contract two of them first."""
    import torch

    form = einsum_form(stage)
    if form is None:
        return
    values = [value_of(name) for name in form.tensors]
    subscripts = form.subscripts
    yield ready("einsum", lambda: torch.einsum(subscripts, *(value() for value in values)))
    if len(values) == 2:
        yield from _vector_products(form, values)
        return
    for pair in combinations(range(len(values)), 2):
        rest = [n for n in range(len(values)) if n not in pair]
        needed = set(form.output).union(*(form.factors[n] for n in rest))
        # In the order of a product's result: first the larger factor's dimensions, in memory order.
        large, small = sorted((form.factors[n] for n in pair), key=len, reverse=True)
        between = "".join(letter for letter in dict.fromkeys(large + small) if letter in needed)
        first = f"{form.factors[pair[0]]},{form.factors[pair[1]]}->{between}"
        others = [form.factors[n] for n in rest]
        then = f"{','.join([between, *others])}->{form.output}"
        in_turn = partial(_in_turn, values, pair, rest, first, then)
        yield ready(f"einsum {first}, einsum {then}", in_turn)
        if len(rest) == 1 and set(others[0]) <= set(between):
            yield ready(f"einsum {first}, mul_, sum", partial(
                _multiplied, values, pair, rest[0], first, (between, others[0], form.output)
            ))  # fmt: skip


def _in_turn(
    values: Sequence[Call], pair: tuple[int, int], rest: Sequence[int], first: str, then: str
) -> Any:
    import torch

    between = torch.einsum(first, *(values[n]() for n in pair))
    return torch.einsum(then, between, *(values[n]() for n in rest))


def _multiplied(
    values: Sequence[Call], pair: tuple[int, int], last: int, first: str, letters: Sequence[str]
) -> Any:
    """Return the product of three factors, summed over the axes that are not in the output. Two
    factors are multiplied first, and their product is multiplied in place by the last factor."""
    import torch

    between, factor, output = letters
    whole = torch.einsum(first, *(values[n]() for n in pair))
    order = sorted(range(len(factor)), key=lambda n: between.index(factor[n]))
    x = values[last]().permute(order)
    at: Any = tuple(slice(None) if letter in factor else None for letter in between)
    whole.mul_(x[at])
    dims = [n for n, letter in enumerate(between) if letter not in output]
    total = whole.sum(dim=dims) if dims else whole
    kept = [letter for letter in between if letter in output]
    return total.permute([kept.index(letter) for letter in output])


def _vector_products(form: EinsumForm, values: Sequence[Call]) -> Iterator[PeerVariant]:
    """Yield `vecdot` and `bmm` of the rows of both factors. Yield nothing unless the axes of each
    factor are the output's axes, followed by the summed axes, so that rows are contiguous."""
    import torch

    summed = "".join(letter for letter in form.factors[0] if letter not in form.output)
    if {*form.factors} != {form.output + summed} or not form.output or not summed:
        return
    a, b = values

    def rows(value: Call) -> Any:
        return value().reshape((*value().shape[: len(form.output)], -1))

    yield ready("vecdot", lambda: torch.linalg.vecdot(rows(a), rows(b)))
    yield ready("torch.bmm of rows", lambda: torch.bmm(
        rows(a).flatten(0, -2)[:, None], rows(b).flatten(0, -2)[:, :, None]
    ).view(rows(a).shape[:-1]))  # fmt: skip
