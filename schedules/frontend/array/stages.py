"""Decide which array expressions are tensors of their own, and build the stages of these tensors.

An array expression is computed inside the expressions that read it, except in these cases, in which
it is a tensor:

1. It is an output or a reduction.
2. One element takes a division or a function, and would be computed several times: in several
   stages, or for several elements of a larger array.
3. It is used several times and has more than `MAX_COPIED_NODES` operations, or an expression that
   contains it would exceed a limit.
4. It is read at indices that are data.

An output that only reorders or selects elements of a reduction is that reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ...algebra.affine import var
from ...errors import WorkloadError
from ...limits import MAX_COPIED_NODES, MAX_NESTED_ARRAYS
from ..expr_core import Expr, Index, as_index
from ..reading import TensorExpr
from ..references import LoopVar
from ..staging import build_stages
from .node import ORIGIN, Node, Places, stand_in

_NUMBERS = count()
"""Marks of the names that are made up. The names of a workload do not depend on them."""


def made_up_name(label: str) -> str:
    """Return a name with a mark, which a workload replaces by `label` or by `label` and a
    number."""
    return f"{label}@{next(_NUMBERS)}"


def tensors_of(outputs: Sequence[Node], name: str | None = None) -> list[TensorExpr]:
    """Return the tensors of `outputs`, which share the stages that several of them need. The last
    one is called `name`; other names are made up."""
    tensors = Tensors(outputs, name=name)
    return [tensors.stored(n) if n.source is None else n.source for n in outputs]


@dataclass(frozen=True)
class _Stored:
    """A tensor of an array, and the dimensions of the array that it has."""

    tensor: TensorExpr
    kept: tuple[int, ...]

    def element(self, index: Places) -> Expr:
        return self.tensor.element(tuple(index[dim] for dim in self.kept) or (ORIGIN,))


class Tensors:
    """The tensors of `outputs` and of the arrays that they read. The elements of `inner` can be
    read, too."""

    def __init__(
        self, outputs: Sequence[Node], inner: Sequence[Node] = (), name: str | None = None
    ) -> None:
        self._outputs = outputs
        self._name = name
        self._choice = _StageChoice(outputs, inner)
        self._stored: dict[Node, _Stored] = {}
        for node in self._choice.order:
            if node in self._choice.stages:
                self._stored[node] = self._store(node)

    def stored(self, node: Node) -> TensorExpr:
        return self._stored[node].tensor

    def read(self, node: Node, index: Places) -> Expr:
        """Return the element of `node` at `index`, computed from tensors."""
        stored = self._stored.get(node)
        if stored is not None:
            return stored.element(index)
        if node.source is not None:
            return node.source.element(index)
        return node.element(tuple(map(as_index, index)), self.read)

    def _store(self, node: Node) -> _Stored:
        """Return the tensor of `node`, whose operands are stored if they are stages."""
        whole = node in self._outputs
        kept = tuple(d for d in range(len(node.shape)) if whole or d not in node.inserted)
        axes = tuple(LoopVar(f"i{n}", node.shape[d], reduce=False) for n, d in enumerate(kept))
        index = [ORIGIN] * len(node.shape)
        for dim, v in zip(kept, axes, strict=True):
            index[dim] = Index(var(v.name), {v.name: v})
        value = node.element(tuple(index), self.read)
        # A tensor with a single value has one axis of extent 1.
        axes = axes or (LoopVar("one", 1, reduce=False),)
        label = "out" if whole else node.label
        name = self._name if whole and self._name else made_up_name(label)
        return _Stored(build_stages(name, axes, value), kept)


class _StageChoice:
    """The arrays that outputs need, operands first, and those of them that are stages."""

    def __init__(self, outputs: Sequence[Node], inner: Sequence[Node]) -> None:
        self.order = _ordered([*outputs, *inner])
        self._uses: dict[Node, list[Node]] = {n: [] for n in self.order}
        for node in self.order:
            for operand in node.operands:
                self._uses[operand].append(node)
        inside = {n for output in outputs for n in self._computed_inside(output)}
        self.stages = {
            n
            for n in self.order
            if n.source is None and (n in outputs or (n.reduced and n not in inside))
        }
        self.stages |= {n for user in self.order for n in user.looked_up if n.source is None}
        self._readers = self._reading_stages()
        self._costly: dict[Node, bool] = {}
        self._samples: dict[Node, Expr] = {}
        self._nesting: dict[Node, int] = {}
        for node in self.order:
            self._decide(node)

    def _computed_inside(self, output: Node) -> Iterator[Node]:
        """Yield the reduction whose elements `output` only reorders or selects, if nothing else
        reads it or an array between them."""
        node = output
        while node.rearranges and not node.reads_once and len(node.operands) == 1:
            (operand,) = node.operands
            if len(self._uses[operand]) > 1 or node.rereads(operand):
                return
            node = operand
        if node is not output and node.reduced and not node.is_scan:
            yield node

    def _reading_stages(self) -> dict[Node, frozenset[Node]]:
        """Return, for each array, the certain stages in which it is computed or read."""
        found: dict[Node, frozenset[Node]] = {}
        for node in reversed(self.order):
            readers: set[Node] = set()
            for user in self._uses[node]:
                readers |= {user} if user in self.stages else found[user]
            found[node] = frozenset(readers)
        return found

    def _decide(self, node: Node) -> None:
        """Decide whether `node` is a stage; its operands are decided."""
        self._sample(node)
        inner = [n for n in node.operands if n not in self.stages]
        self._costly[node] = node.costly or any(self._costly[n] for n in inner)
        if node.source is not None or node in self.stages:
            return
        copied = len(self._uses[node]) > 1 and self._samples[node].size > MAX_COPIED_NODES
        if copied or (self._costly[node] and self._is_repeated(node)):
            self.stages.add(node)

    def _is_repeated(self, node: Node) -> bool:
        """Return whether elements of `node` would be computed several times if it were no stage."""
        users = self._uses[node]
        if any(user.rereads(node) for user in users):
            return True
        # A single user is computed as often as the node, so that it is stored instead.
        return len(users) > 1 and len(self._readers[node]) > 1

    def _sample(self, node: Node) -> None:
        """Build some element of `node`. Make operands stages until it is within the limits."""
        axes = [LoopVar(f"i{n}", e, reduce=False) for n, e in enumerate(node.shape)]
        index = tuple(Index(var(v.name), {v.name: v}) for v in axes)
        while True:
            nesting = 1 + max((self._nested(n) for n in node.operands), default=0)
            try:
                if nesting > MAX_NESTED_ARRAYS:
                    raise WorkloadError("arrays are nested too deep", code="too_deep")
                self._samples[node] = node.element(index, lambda n, _: self._as_operand(n))
            except WorkloadError as error:
                inner = [n for n in node.operands if self._nested(n)]
                if error.code not in ("too_deep", "too_large") or not inner:
                    raise
                self.stages.add(max(inner, key=self._weight))
                continue
            self._nesting[node] = nesting
            return

    def _weight(self, node: Node) -> tuple[int, int, int]:
        sample = self._samples[node]
        return self._nested(node), sample.depth, sample.size

    def _nested(self, node: Node) -> int:
        """Return the number of arrays on the longest path into `node` that are no tensors."""
        return 0 if node in self.stages or node.source is not None else self._nesting[node]

    def _as_operand(self, node: Node) -> Expr:
        if self._nested(node):
            return self._samples[node]
        return stand_in(node.dtype)


def _ordered(roots: Sequence[Node]) -> list[Node]:
    """Return all arrays that `roots` need, each once, after its operands."""
    order: dict[Node, None] = {}
    pending = [(n, False) for n in reversed(roots)]
    while pending:
        node, visited = pending.pop()
        if node in order:
            continue
        if visited:
            order[node] = None
            continue
        pending.append((node, True))
        pending.extend((n, False) for n in reversed(node.operands))
    return list(order)
