"""Sums of products of plain reads as subscripts of `einsum`, in every order of contracting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from string import ascii_letters
from typing import Any

from tilewright.schedules.algebra.affine import Var
from tilewright.schedules.algebra.scalar import Binary, BinaryOp, Load, Reducer, Scalar
from tilewright.schedules.workload.tensors import Stage

from .ways import Call, Way

_MOST_FACTORS = 5


@dataclass(frozen=True, slots=True)
class EinsumForm:
    """The sum of products of `tensors`, each with the letters of its dimensions in `factors`, as
    `output` has its."""

    tensors: tuple[str, ...]
    factors: tuple[str, ...]
    output: str

    @property
    def subscripts(self) -> str:
        return f"{','.join(self.factors)}->{self.output}"


def einsum_form(stage: Stage) -> EinsumForm | None:
    """`stage` as one, None if it is not a sum of products of two reads or more."""
    axes = [axis.name for axis in stage.all_axes]
    if not stage.reduces_by(Reducer.SUM) or not stage.tensor.dtype.is_float:
        return None
    found = list(_factors(stage.body))
    if not 2 <= len(found) <= _MOST_FACTORS or len(axes) > len(ascii_letters):
        return None
    letters = dict(zip(axes, ascii_letters, strict=False))
    factors = []
    for load in found:
        if not isinstance(load, Load) or load.dtype != stage.tensor.dtype:
            return None
        places = [index.terms[0] if len(index.terms) == 1 else None for index in load.index]
        names = [
            place[0].name
            for place, index in zip(places, load.index, strict=True)
            if place and isinstance(place[0], Var) and place[1] == 1 and not index.const
        ]
        if len(names) != len(load.index) or len(set(names)) != len(names):
            return None
        factors.append("".join(letters[name] for name in names))
    if set("".join(factors)) != set(letters.values()):
        return None
    output = "".join(letters[axis.name] for axis in stage.axes)
    tensors = tuple(load.tensor for load in found if isinstance(load, Load))
    return EinsumForm(tensors, tuple(factors), output)


def _factors(node: Scalar) -> Iterator[Scalar]:
    if isinstance(node, Binary) and node.op is BinaryOp.MUL:
        yield from _factors(node.a)
        yield from _factors(node.b)
    else:
        yield node


def torch_einsum_ways(stage: Stage, value_of: Callable[[str], Call]) -> Iterator[Way]:
    """By its subscripts; and of three factors or more, two of them first."""
    import torch

    form = einsum_form(stage)
    if form is None:
        return
    values = [value_of(name) for name in form.tensors]
    subscripts = form.subscripts
    yield _way("einsum", lambda: torch.einsum(subscripts, *(value() for value in values)))
    if len(values) == 2:
        yield from _vector_products(form, values)
        return
    for pair in combinations(range(len(values)), 2):
        rest = [n for n in range(len(values)) if n not in pair]
        needed = set(form.output).union(*(form.factors[n] for n in rest))
        # As a product leaves it: the dimensions of the larger factor first, as they lie.
        large, small = sorted((form.factors[n] for n in pair), key=len, reverse=True)
        between = "".join(letter for letter in dict.fromkeys(large + small) if letter in needed)
        first = f"{form.factors[pair[0]]},{form.factors[pair[1]]}->{between}"
        others = [form.factors[n] for n in rest]
        then = f"{','.join([between, *others])}->{form.output}"
        yield _way(f"einsum {first}, einsum {then}", partial(_in_turn, values, pair, rest, first,
                                                             then))  # fmt: skip
        if len(rest) == 1 and set(others[0]) <= set(between):
            yield _way(f"einsum {first}, mul_, sum", partial(
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
    """The product of two, times the last factor in place, summed over what the output lacks."""
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


def _vector_products(form: EinsumForm, values: Sequence[Call]) -> Iterator[Way]:
    """A row of one factor times a row of the other, each a line in memory."""
    import torch

    summed = "".join(letter for letter in form.factors[0] if letter not in form.output)
    if {*form.factors} != {form.output + summed} or not form.output or not summed:
        return
    a, b = values

    def rows(value: Call) -> Any:
        return value().reshape((*value().shape[: len(form.output)], -1))

    yield _way("vecdot", lambda: torch.linalg.vecdot(rows(a), rows(b)))
    yield _way("torch.bmm of rows", lambda: torch.bmm(
        rows(a).flatten(0, -2)[:, None], rows(b).flatten(0, -2)[:, :, None]
    ).view(rows(a).shape[:-1]))  # fmt: skip


def _way(name: str, call: Call) -> Way:
    return Way(name, lambda: call)
