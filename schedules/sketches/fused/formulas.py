"""Count the operations of stages with unrolled formulas.

Such a stage selects one of several formulas by an index (see `transform.py`). If the axis of the
index is unrolled, each copy of the stage contains only its own formula. Copies share loads, and
values that later copies need stay in registers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from itertools import accumulate, product
from typing import NamedTuple

from ...algebra.affine import Affine
from ...algebra.comparisons import Cond, holds
from ...algebra.scalar import (
    All,
    Binary,
    Load,
    Scalar,
    Select,
    Unary,
    calls_of,
    children,
    vars_of,
    walk,
)
from ..analysis.stages import StageView

Setting = Mapping[str, int]
Values = Mapping[str, Sequence[int]]
"""Index values of the unrolled axes."""

Event = tuple[list[Hashable], Hashable | None]
"""The values that one copy of a stage reads, and the register that it writes."""


class FormulaCounts(NamedTuple):
    """Counts of all copies together, for one vector."""

    instructions: int
    """Instructions without math functions."""
    flops: int
    """Arithmetic operations."""
    math: int
    """Calls of math functions."""
    masked: int
    """Those of `instructions` that a guard or a mask controls."""
    loads: int
    live: int
    """Maximum number of live registers."""


def formula_counts(
    stages: Sequence[Formulas], turns: Sequence[Mapping[str, Values]], masked: Collection[str]
) -> FormulaCounts:
    """Return the counts of `stages`, which are executed one after the other in each of `turns`.

    A turn maps each stage to the index values of its unrolled axes. Each combination of index
    values is one copy of the stage. All stages but the last write to registers. Instructions of the
    stages in `masked` count as masked.
    """
    inside = {stage.view.name for stage in stages[:-1]}
    loaded: set[Hashable] = set()
    events: list[Event] = []
    evaluated: set[tuple[int, int, tuple[int, ...]]] = set()
    for copies in turns:
        for number, stage in enumerate(stages):
            values = copies[stage.view.name]
            decided = stage.choices(values.keys())
            for numbers in product(*values.values()):
                setting = dict(zip(values, numbers, strict=True))
                reads: list[Hashable] = []
                for n in stage.chosen(setting, decided):
                    node = stage.nodes[n]
                    if isinstance(node, Load):
                        reads.append(stage.place(n, setting, inside))
                        if node.tensor not in inside:
                            loaded.add(reads[-1])
                    elif isinstance(node, Unary | Binary):
                        used = tuple(setting[x] for x in stage.used[n] if x in setting)
                        evaluated.add((number, n, used))
                own = (stage.view.name, *(setting.get(x.name, 0) for x in stage.view.spatial))
                events.append((reads, own if stage.view.name in inside else None))
    calls = plain = under = 0
    for number, n, _ in evaluated:
        node = stages[number].nodes[n]
        some = calls_of(node)
        calls, plain = calls + some, plain + (some == 0)
        under += some == 0 and stages[number].view.name in masked
    return FormulaCounts(plain, len(evaluated), calls, under, len(loaded), _live(events))


class Formulas:
    """The expression nodes of a stage, by number.

    For each node, `used` has the axes on which it depends, and `inner` the numbers of its operands.
    """

    def __init__(self, view: StageView) -> None:
        self.view = view
        number: dict[Scalar, int] = {}
        for node in walk(view.value):
            number.setdefault(node, len(number))
        self.nodes = list(number)
        self.used = [tuple(sorted(vars_of(node))) for node in self.nodes]
        self.inner = [[number[child] for child in children(node)] for node in self.nodes]

    def choices(self, axes: Set[str]) -> dict[int, tuple[Cond, ...]]:
        """Return the conditions of each Select node that depends on `axes` only."""
        found = {}
        for n, node in enumerate(self.nodes):
            if isinstance(node, Select) and isinstance(node.cond, All):
                conds = node.cond.conds
                if all(cond.index.vars() <= axes for cond in conds):
                    found[n] = conds
        return found

    def chosen(self, setting: Setting, decided: Mapping[int, tuple[Cond, ...]]) -> list[int]:
        """Return the numbers of the nodes that the copy with index values `setting` evaluates."""
        found: dict[int, None] = {}
        left = [0]
        while left:
            n = left.pop()
            if n in decided:
                is_true = all(holds(cond, setting) for cond in decided[n])
                left.append(self.inner[n][-2 if is_true else -1])
            elif n not in found:
                found[n] = None
                left += self.inner[n]
        return list(found)

    def place(self, n: int, setting: Setting, registers: Collection[str]) -> Hashable:
        """Return the element or register that node `n` loads."""
        node = self.nodes[n]
        assert isinstance(node, Load)
        fixed = {name: Affine((), setting[name]) for name in self.used[n] if name in setting}
        index = [i.substitute(fixed) for i in node.index]
        if node.tensor in registers:
            return (node.tensor, *(0 if i.vars() else i.const for i in index))
        return (node.tensor, *index)


def _live(events: Sequence[Event]) -> int:
    """Return the maximum number of live values. A value lives from its load or write to its last
    use."""
    first: dict[Hashable, int] = {}
    last: dict[Hashable, int] = {}
    for at, (reads, written) in enumerate(events):
        for value in (*reads, *((written,) if written else ())):
            first.setdefault(value, at)
            last[value] = at
    alive = [0] * (len(events) + 1)
    for value, at in first.items():
        alive[at] += 1
        alive[last[value] + 1] -= 1
    return max(accumulate(alive))
