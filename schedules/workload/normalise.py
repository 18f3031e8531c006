"""The normal form of a computation, which is equal for all notations of the computation.

Names and orders in the normal form do not depend on the names in the source:

1. Stages are normalised in topological order. The spatial axes of a stage are named d0, d1, ... by
position. A scan along an axis of one position is an elementwise stage.

2. Operands of commutative operations are sorted by their text. In this text, inputs are named i0,
i1, ..., and a stage is named by the digest of its own canonical text.

3. Reduction axes are sorted by a text of the body in which one axis is named `@` and all others
`?`. All orders of axes with equal texts are tried. The lexicographically smallest text of the stage
is selected. The axes of a reduction of tuples keep their order.

4. Stages are numbered s0, s1, ... in post-order from the outputs. Stages with equal text are
merged. Stages that no output needs are removed.

If more than `_MAX_ORDERS` orders of equal axes exist, only the first ones are tried. Two notations
of a computation may then have different keys. This causes a database miss, but never a wrong
answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, islice, permutations, product
from typing import Generic, assert_never

from ..algebra.affine import Interval, interval, var
from ..algebra.conditions import normal_cond
from ..algebra.scalar import (
    COMMUTATIVE,
    All,
    Binary,
    Cast,
    Compare,
    CompareOp,
    Components,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    loads,
    rename_tensors,
    substitute,
    with_data,
)  # fmt: skip
from .computation import C, Computation
from .settle import settled_body
from .tensors import (
    Axis,
    Elementwise,
    Reduction,
    Scan,
    Stage,
    StageKind,
    Tensor,
    TupleReduction,
)
from .validate import stage_ranges

_MAX_ORDERS = 24
_MARKED, _ANONYMOUS = "@", "?"


@dataclass(frozen=True, slots=True)
class NormalForm(Generic[C]):
    """A computation in normal form, and the canonical names of its tensors and axes.

    `tensors` maps original names to canonical names; `axes` maps (tensor, axis) to canonical axes.
    """

    computation: C
    tensors: Mapping[str, str]
    axes: Mapping[tuple[str, str], str]


def normalised(computation: C) -> C:
    """Return the normal form of a valid computation."""
    return normal_form(computation).computation


def normal_form(computation: C) -> NormalForm[C]:
    """Return the normal form with the mapping of names."""
    names = {t.name: f"i{n}" for n, t in enumerate(computation.inputs)}
    axes: dict[tuple[str, str], str] = {}
    canonical: dict[str, Stage] = {}
    shapes = {f"i{n}": t.shape for n, t in enumerate(computation.inputs)}
    needed = _needed(computation)
    for stage in computation.stages:
        if stage.name not in needed:
            continue
        found = _canonical_stage(stage, names)
        axes |= {(stage.name, old): new for old, new in found.axes.items()}
        digest = _digest(found, computation, stage.name, shapes)
        names[stage.name], shapes[digest] = digest, stage.tensor.shape
        canonical[digest] = replace(found.stage, tensor=replace(stage.tensor, name=digest))
    order = _from_outputs([names[n] for n in computation.outputs], canonical)
    final = {digest: f"s{n}" for n, digest in enumerate(order)}
    form = replace(
        computation,
        inputs=tuple(
            Tensor(f"i{n}", t.shape, t.dtype, t.constant) for n, t in enumerate(computation.inputs)
        ),
        stages=tuple(_renamed(canonical[d], final) for d in order),
        outputs=tuple(final[names[n]] for n in computation.outputs),
        name="",
        declared_flops=None,
        declared_min_bytes=None,
    )
    return NormalForm(form, {old: final.get(new, new) for old, new in names.items()}, axes)


def _needed(computation: Computation) -> set[str]:
    """Return the names of the stages on which an output depends."""
    needed = set(computation.outputs)
    for stage in reversed(computation.stages):
        if stage.name in needed:
            needed.update(ld.tensor for ld in loads(stage.body))
    return needed


@dataclass(frozen=True, slots=True)
class _Canonical:
    stage: Stage
    text: str
    axes: Mapping[str, str]


def _canonical_stage(stage: Stage, names: Mapping[str, str]) -> _Canonical:
    """Return `stage` with canonical axes and operand order. Its reads use the canonical `names` of
    tensors."""
    stage = _ordered_combination(_without_trivial_scan(stage))
    reduced = frozenset(a.name for a in stage.reduce_axes)
    body = rename_tensors(settled_body(stage.body, stage_ranges(stage), reduced), names)
    spatial = {a.name: f"d{n}" for n, a in enumerate(stage.axes)}
    axes = tuple(Axis(f"d{n}", a.extent) for n, a in enumerate(stage.axes))
    best: _Canonical | None = None
    orders = (
        [stage.reduce_axes]  # tuples are combined in the order of the axes
        if isinstance(stage.kind, TupleReduction)
        else _reduction_orders(body, spatial, stage.reduce_axes)
    )
    for order in orders:
        renamed = spatial | {a.name: f"r{n}" for n, a in enumerate(order)}
        reduce_axes = tuple(Axis(f"r{n}", a.extent) for n, a in enumerate(order))
        moved = substitute(body, {old: var(new) for old, new in renamed.items()})
        ranges = {a.name: Interval(0, a.extent - 1) for a in (*axes, *reduce_axes)}
        ordered, text = _ordered(
            settled_body(moved, ranges, frozenset(a.name for a in reduce_axes))
        )
        if best is None or text < best.text:
            found = replace(stage, axes=axes, body=ordered).reducing_over(reduce_axes)
            best = _Canonical(found, text, renamed)
    assert best is not None
    return best


def _without_trivial_scan(stage: Stage) -> Stage:
    """Return `stage`, as an elementwise stage if it scans along an axis of one position."""
    if isinstance(stage.kind, Scan) and stage.axes[stage.kind.dim].extent == 1:
        return replace(stage, kind=Elementwise())
    return stage


def _ordered_combination(stage: Stage) -> Stage:
    """Return `stage` with the commutative operands of a combination of tuples sorted by text."""
    if not isinstance(stage.kind, TupleReduction):
        return stage
    combine = tuple(_ordered(settled_body(c, {}, frozenset()))[0] for c in stage.kind.combine)
    return replace(stage, kind=replace(stage.kind, combine=combine))


def _digest(
    found: _Canonical, computation: Computation, name: str, shapes: Mapping[str, tuple[int, ...]]
) -> str:
    """Return a name derived from the content of a stage. The content of an output includes its
    position, so that two outputs are never merged. `shapes` are those of the tensors it reads."""
    stage = found.stage
    position = computation.outputs.index(name) if name in computation.outputs else -1
    extents = [[a.extent for a in axes] for axes in (stage.axes, stage.reduce_axes)]
    text = f"{position}|{stage.tensor.dtype}|{_kind_text(stage.kind)}|{extents}|{found.text}"
    limits = _limits_of_data(stage, shapes)
    text += f"|{limits}" if limits else ""
    return "s" + hashlib.sha256(text.encode()).hexdigest()


def _limits_of_data(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    """Return the extents of data in the indices of `stage`, which the text of its body does not
    state. They are omitted if the index takes all positions of its dimension, which then determines
    the extent; so does every index that is one integer."""
    ranges = stage_ranges(stage)
    found = list[int]()
    for load in loads(stage.body):
        for index, extent in zip(load.index, shapes[load.tensor], strict=True):
            data = index.data()
            if data and (len(data) > 1 or interval(index, ranges) != Interval(0, extent - 1)):
                found += [datum.extent for datum in data]
    return found


def _kind_text(kind: StageKind) -> str:
    """Return the text of a stage kind in the digest of a stage. Changing the text may change
    keys."""
    match kind:
        case Elementwise():
            return "None"
        case Reduction(reducer):
            return str(reducer)
        case Scan(reducer, dim, reverse):
            return f"scan {reducer} {dim} {reverse}"
        case TupleReduction(_, identities, combine, position, commutative):
            texts = [_ordered(node)[1] for node in (*identities, *combine)]
            return f"tuple {position} {commutative} {' '.join(texts)}"
        case _:
            assert_never(kind)


def _reduction_orders(
    body: Scalar, spatial: Mapping[str, str], axes: tuple[Axis, ...]
) -> Iterable[tuple[Axis, ...]]:
    """Return the orders of the reduction axes to try. There is only one if the body uses every axis
    differently."""
    if len(axes) < 2:
        return [axes]
    keyed = sorted(
        ((_use(body, spatial, axis, axes), n) for n, axis in enumerate(axes)), key=lambda k: k[0]
    )
    tied = [[axes[n] for _, n in group] for _, group in groupby(keyed, key=lambda k: k[0])]
    orders = product(*(permutations(group) for group in tied))
    return (tuple(a for group in order for a in group) for order in islice(orders, _MAX_ORDERS))


def _use(
    body: Scalar, spatial: Mapping[str, str], axis: Axis, axes: tuple[Axis, ...]
) -> tuple[int, str, int]:
    """Return a sort key for `axis` that does not depend on its name and position in `axes`."""
    names = dict(spatial) | {a.name: _MARKED if a is axis else _ANONYMOUS for a in axes}
    _, text = _ordered(substitute(body, {old: var(new) for old, new in names.items()}))
    return text.find(_MARKED), text, axis.extent


def _ordered(node: Scalar) -> tuple[Scalar, str]:
    """Return `node` with commutative operands sorted by text and conditions in normal form, and the
    text of the result."""
    match node:
        case Const():
            if node.dtype.is_float:  # 1 as 1.0, as in a document that is read back
                node = Const(float(node.value), node.dtype)
            return node, f"{node.value!r}:{node.dtype}"
        case Load():
            ordered = with_data(node, lambda value: _ordered(value)[0])
            return ordered, f"{ordered.tensor}[{','.join(map(str, ordered.index))}]"
        case IndexValue():
            return node, f"<{node.index}>:{node.dtype}"
        case Unary():
            x, text = _ordered(node.x)
            return Unary(node.op, x), f"{node.op}({text})"
        case Cast():
            x, text = _ordered(node.x)
            return Cast(x, node.dtype), f"{node.dtype}({text})"
        case Binary() | Compare():
            return _ordered_pair(node)
        case All():
            conds = sorted({normal_cond(c) for c in node.conds}, key=str)
            return All(tuple(conds)), f"all({','.join(map(str, conds))})"
        case Select():
            cond, c = _ordered(node.cond)
            on_true, t = _ordered(node.on_true)
            on_false, f = _ordered(node.on_false)
            return Select(cond, on_true, on_false), f"select({c},{t},{f})"
        case Components():
            values, texts = zip(*map(_ordered, node.values), strict=True)
            return Components(values), f"({','.join(texts)})"
        case _:
            assert_never(node)


def _ordered_pair(node: Binary | Compare) -> tuple[Scalar, str]:
    a, a_text = _ordered(node.a)
    b, b_text = _ordered(node.b)
    commutes = node.op in COMMUTATIVE or node.op in (CompareOp.EQ, CompareOp.NE)
    if commutes and b_text < a_text:
        a, b, a_text, b_text = b, a, b_text, a_text
    text = f"{node.op}({a_text},{b_text})"
    return replace(node, a=a, b=b), text


def _from_outputs(outputs: list[str], stages: Mapping[str, Stage]) -> list[str]:
    """Return the digests of all stages in post-order from the outputs."""
    order: list[str] = []
    pending = [(d, False) for d in reversed(outputs)]
    seen: set[str] = set()
    while pending:
        digest, visited = pending.pop()
        if visited:
            order.append(digest)
        elif digest not in seen:
            seen.add(digest)
            pending.append((digest, True))
            reads = [ld.tensor for ld in loads(stages[digest].body) if ld.tensor in stages]
            pending.extend((d, False) for d in reversed(reads))
    return order


def _renamed(stage: Stage, final: Mapping[str, str]) -> Stage:
    body = rename_tensors(stage.body, final)
    return replace(stage, tensor=replace(stage.tensor, name=final[stage.name]), body=body)
