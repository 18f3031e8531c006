"""Views of stages: the loops and reads that rules examine. Names of operators are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import assert_never

from ...algebra.affine import (
    Affine,
    Datum,
    FloorDiv,
    Interval,
    Mod,
    affine,
    interval,
    simplify,
    var,
)
from ...algebra.comparisons import Cond
from ...algebra.scalar import (
    All,
    Binary,
    Components,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    calls_of,
    children,
    loads,
    replace_reads,
    rewrite,
    walk,
)
from ...dtypes import DType
from ...lowering.lower import plain_nest
from ...lowering.tuples import TupleGroup, tuple_groups
from ...nest.finding import chain_to, ranges_of, writes_of
from ...nest.loop_ir import Nest, StoreElement, Update
from ...primitives import Inline, Solve, Split
from ...primitives.places import find_loop
from ...trace import Trace
from ...workload.tensors import Elementwise, Reduction, Scan, Stage, TupleReduction
from ...workload.workload import Workload
from .neighbours import element_step, is_near
from .phases import phase_steps

SHORT_AXIS = 8
"""Minimum number of iterations, or of vectors along a longer axis, for which vectorising along an
axis is profitable. Shorter axes fill neither a vector nor a block to transpose, and do not amortise
a separate loop."""


Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each tensor."""


@dataclass(frozen=True, slots=True)
class StageLoop:
    """A loop of a stage. `dim` is its output dimension, or -1 for a reduction loop."""

    name: str
    extent: int
    reduce: bool
    dim: int = -1


@dataclass(frozen=True, slots=True)
class StageRead:
    """A read of one tensor."""

    tensor: str
    index: tuple[Affine, ...]
    """The index of each dimension, in terms of the stage's loops."""
    dtype: DType
    shape: tuple[int, ...]
    conditional: bool
    """Whether a condition encloses the read."""
    padded: bool
    """Whether a condition keeps the index in bounds. If the condition is false, the read yields
    padding."""

    @property
    def bytes(self) -> int:
        """Size of the whole tensor in bytes."""
        return prod(self.shape) * self.dtype.bytes

    def uses(self, loop: str) -> bool:
        return any(loop in i.vars() for i in self.index)

    def element_stride(self, loop: str) -> int | None:
        """Return the distance in elements between neighbours along `loop`, or None if it is not
        constant."""
        return element_step(self.shape, self.index, loop)

    def own_dim(self, loop: str, fixed: frozenset[str] = frozenset()) -> int | None:
        """Return the dimension with the index `loop` + constant, or None if there is no such
        dimension or another index depends on `loop` too. Loops in `fixed` count as constants."""
        using = [d for d, i in enumerate(self.index) if loop in i.vars()]
        if len(using) != 1:
            return None
        index = self.index[using[0]]
        others = index.vars() - {loop}
        plain = index.is_linear_in(loop) and index.coefficient(loop) == 1
        return using[0] if plain and others <= fixed else None


@dataclass(frozen=True)
class StageView:
    """A stage as rules examine it, after some axes are split."""

    name: str
    phase_steps: tuple[Split | Solve, ...]
    """The steps applied to reduction axes: splits, and `Solve`, which replaces a loop that has one
    iteration per phase by its value (see `phases.py`)."""
    axis_splits: tuple[Split, ...]
    """The splits of output axes. They are applied after `phase_steps`."""
    spatial: tuple[StageLoop, ...]
    """The loops of output axes, outermost first."""
    reduce: tuple[StageLoop, ...]
    """The reduction loops, outermost first."""
    reads: tuple[StageRead, ...]
    guards: tuple[Cond, ...]
    value: Scalar
    dtype: DType
    shape: tuple[int, ...]
    reducer: Reducer | None
    """The operation of the reduction, or None for a stage of another kind."""
    scan: Scan | None = None
    """The scan if the stage is one. `value` and `reads` are those of the body."""
    tuples: TupleGroup | None = None
    """The reduction of tuples of which the stage computes a component. `value` has the combinations
    of all components, with a constant in place of old elements."""

    @property
    def is_reduction(self) -> bool:
        return self.reducer is not None

    @property
    def is_ordered(self) -> bool:
        """Whether values are combined in order: a scan or a reduction of tuples. Rules for other
        kinds of stages do not apply."""
        return self.scan is not None or self.tuples is not None

    @property
    def points(self) -> int:
        return self.outputs * prod(loop.extent for loop in self.reduce)

    @property
    def outputs(self) -> int:
        return prod(loop.extent for loop in self.spatial)

    @cached_property
    def reuse(self) -> float:
        """Average number of uses per element read: about 1 for pure reductions."""
        return self.points / max(sum(prod(read.shape) for read in self.reads), 1)

    @property
    def stored_loops(self) -> tuple[StageLoop, ...]:
        """`spatial` in the order of the dimensions of the result."""
        if any(loop.dim < 0 for loop in self.spatial):
            return self.spatial  # only stages without loops of one iteration are reordered
        return tuple(sorted(self.spatial, key=lambda loop: loop.dim))

    def depends_on(self, loop: str) -> bool:
        """Return whether the value contains the number of the iteration of `loop`."""
        numbers = (node for node in walk(self.value) if isinstance(node, IndexValue))
        return any(loop in number.index.vars() for number in numbers)

    def ends(self, loop: str) -> bool:
        """Return whether a guard of the stage depends on `loop`."""
        return any(loop in guard.index.vars() for guard in self.guards)

    @cached_property
    def operations(self) -> int:
        """Operations of one evaluation, with the reduction. Common subexpressions count once."""
        ops = len({n for n in walk(self.value) if isinstance(n, Binary | Unary)})
        return ops + (1 if self.is_reduction or self.scan else 0)

    @property
    def reads_only(self) -> bool:
        """Whether the value depends on tensor elements only, not on conditions or indices."""
        return not any(isinstance(node, All | IndexValue) for node in walk(self.value))


def view_stage(
    workload: Workload, name: str, inlined: tuple[str, ...] = (), *, unsplit: int = 0
) -> StageView:
    """Return the view of the stage of `workload` (in normal form) that computes tensor `name`,
    after the stages `inlined` are inlined. The first `unsplit` output axes are not split."""
    return _view(workload, name, _with_inlined(workload, inlined), unsplit)


def view_stages(workload: Workload, inlined: tuple[str, ...]) -> dict[str, StageView]:
    """Return the view of every stage that is not in `inlined`, by name in program order. The stages
    in `inlined` are inlined."""
    nest = _with_inlined(workload, inlined)
    names = (stage.name for stage in workload.stages if stage.name not in inlined)
    return {name: _view(workload, name, nest) for name in names}


def _with_inlined(workload: Workload, inlined: tuple[str, ...]) -> Nest:
    return Trace(tuple(Inline(other) for other in inlined)).apply(plain_nest(workload))


def _view(workload: Workload, name: str, nest: Nest, unsplit: int = 0) -> StageView:
    stage = workload.stage(name)
    group = tuple_groups(workload.stages).get(name)
    shapes = {tensor: found.shape for tensor, found in workload.tensors.items()}
    whole = {loop.var for loop in chain_to(nest.body, writes_of(nest.body, name)[0])[:unsplit]}
    phase_steps, axis_splits = ((), ()) if group else _preparation(nest, name, shapes)
    axis_splits = () if isinstance(stage.kind, Scan) else _splits_of_others(axis_splits, whole)
    nest = Trace((*phase_steps, *axis_splits)).apply(nest)
    (leaf,) = writes_of(nest.body, name)
    chain = chain_to(nest.body, leaf)
    ranges = ranges_of(chain)
    reducer, scan, body = _kind_of(stage, leaf.value)
    if group:
        reducer, body = None, _all_components(group, nest)
    value = _with_indices(body, partial(simplify, ranges=ranges))
    found = tuple(
        StageLoop(loop.var, loop.extent, loop.reduce, _dim_of(leaf.index, loop.var))
        for loop in chain
    )
    return StageView(
        name=name,
        phase_steps=phase_steps,
        axis_splits=axis_splits,
        spatial=tuple(loop for loop in found if not loop.reduce),
        reduce=tuple(loop for loop in found if loop.reduce),
        reads=_reads(value, workload, ranges),
        guards=leaf.guards,
        value=value,
        dtype=stage.tensor.dtype,
        shape=stage.tensor.shape,
        reducer=reducer,
        scan=scan,
        tuples=group,
    )


def _all_components(group: TupleGroup, nest: Nest) -> Scalar:
    """Return the values of all leaves of a reduction of tuples, with a constant in place of the
    elements of its components."""
    own = {*group.tensors.values(), *(buffer.name for buffer in group.private_buffers)}

    def leaf(node: Scalar) -> Scalar | None:
        is_own = isinstance(node, Load) and node.tensor in own
        return Const(0, node.dtype) if is_own else None

    written = (write for name in sorted(own) for write in writes_of(nest.body, name))
    return Components(tuple(rewrite(write.value, leaf) for write in written))


def _kind_of(stage: Stage, value: Scalar) -> tuple[Reducer | None, Scan | None, Scalar]:
    """Return the reducer or the scan of `stage`, and its body. `value` is the value of its leaf,
    which for a scan combines the body with the previous element."""
    match stage.kind:
        case Elementwise():
            return None, None, value
        case Reduction(reducer):
            return reducer, None, value
        case Scan():
            assert isinstance(value, Binary)
            return None, stage.kind, value.b
        case TupleReduction():
            return None, None, value
        case _:
            assert_never(stage.kind)


def _dim_of(index: tuple[Affine, ...], loop: str) -> int:
    return next((d for d, i in enumerate(index) if loop in i.vars()), -1)


def _preparation(
    nest: Nest, name: str, shapes: Shapes
) -> tuple[tuple[Split | Solve, ...], tuple[Split, ...]]:
    """Return the steps on reduction axes, and the splits of output axes. The former are applied
    first."""
    solve: list[Split | Solve] = []
    split: list[Split] = []
    for find in (phase_steps, partial(_quotient_splits, shapes=shapes)):
        for step in find(nest, name):
            if isinstance(step, Split) and not find_loop(nest, step.loop, step).loop.reduce:
                split.append(step)
            else:
                solve.append(step)
            nest = step.apply(nest)
    return tuple(solve), tuple(split)


def _splits_of_others(splits: tuple[Split, ...], whole: set[str]) -> tuple[Split, ...]:
    """Return the splits of axes that are neither in `whole` nor parts of such an axis."""
    found: list[Split] = []
    gone = set(whole)
    for step in splits:
        if step.loop in gone:
            gone |= {f"{step.loop}o", f"{step.loop}i"}
        else:
            found.append(step)
    return tuple(found)


def _quotient_splits(nest: Nest, name: str, shapes: Shapes) -> tuple[Split, ...]:
    """Return splits of loops whose quotient and remainder index a read, as in grouped
    convolutions."""
    (leaf,) = writes_of(nest.body, name)
    chain = chain_to(nest.body, leaf)
    extents = {loop.var: loop.extent for loop in chain}
    lanes = "" if isinstance(leaf, Update) else _repeated_axis(leaf, shapes)
    steps: dict[str, Split] = {}
    for atom in _divisions(leaf):
        for loop in atom.numerator.vars() - {lanes}:
            if atom.numerator == var(loop) and extents[loop] % atom.divisor == 0:
                steps.setdefault(loop, Split(loop, atom.divisor))
    return tuple(steps.values())


def _divisions(leaf: StoreElement | Update) -> Iterator[FloorDiv | Mod]:
    """Return the quotients and remainders in the indices of the loads of `leaf`."""
    atoms = (atom for load in loads(leaf.value) for index in load.index for atom, _ in index.terms)
    return (atom for atom in atoms if isinstance(atom, FloorDiv | Mod))


def _repeated_axis(leaf: StoreElement, shapes: Shapes) -> str:
    """Return the contiguous loop of `leaf` if its vectors can be built from vectors of elements,
    else "".

    This is possible if all reads that divide the loop repeat each element a few times in a row, or
    otherwise use few elements for many neighbours.
    """
    (name,) = (leaf.index[-1].vars() if leaf.index else ()) or ("",)
    divided = (
        load
        for load in loads(leaf.value)
        for index in load.index
        if not index.is_linear_in(name) and name in index.replace_data(_no_data).vars()
    )
    return name if all(is_near(shapes[x.tensor], x.index, name) for x in divided) else ""


def _no_data(datum: Datum) -> Affine:
    return affine(0)


def _with_indices(value: Scalar, change: Callable[[Affine], Affine]) -> Scalar:
    """Return `value` with `change` applied to every load index. Conditions are not changed because
    rules recognise padding and phases in them."""

    return replace_reads(value, lambda x: replace(x, index=tuple(map(change, x.index))))


def _reads(value: Scalar, workload: Workload, ranges: dict[str, Interval]) -> tuple[StageRead, ...]:
    """Return one read for each distinct load of `value`."""
    found: dict[tuple[str, tuple[Affine, ...]], StageRead] = {}

    def visit(node: Scalar, conditional: bool) -> None:
        if isinstance(node, Load):
            shape = workload.tensors[node.tensor].shape
            padded = conditional and not _is_inside(node.index, shape, ranges)
            read = StageRead(node.tensor, node.index, node.dtype, shape, conditional, padded)
            found.setdefault((node.tensor, node.index), read)
        inner = conditional or isinstance(node, Select)
        for child in children(node):
            visit(child, inner)

    visit(value, False)
    return tuple(found.values())


def with_reads(
    view: StageView, spatial: Sequence[StageLoop], reads: Sequence[StageRead]
) -> StageView:
    """Return `view` with the axes `spatial` and with its reads replaced by `reads`, in the same
    order. The loads of its value get the new indices."""
    moved = dict(zip(((r.tensor, r.index) for r in view.reads), reads, strict=True))

    def load(node: Load) -> Load:
        return replace(node, index=moved[node.tensor, node.index].index)

    value = replace_reads(view.value, load)
    return replace(view, spatial=tuple(spatial), reads=tuple(reads), value=value)


def _is_inside(
    index: tuple[Affine, ...], shape: tuple[int, ...], ranges: dict[str, Interval]
) -> bool:
    """Return whether `index` is in bounds for all values of the loops."""
    found = (interval(i, ranges) for i in index)
    return all(r.lo >= 0 and r.hi < extent for r, extent in zip(found, shape, strict=True))


def offsets(index: Affine, extents: dict[str, int]) -> set[int]:
    """Return the values of `index` in loops with these `extents`, minus its value in the first
    iteration."""
    found = {0}
    for name, extent in extents.items():
        step = index.coefficient(name)
        if step:
            found = {x + step * i for x in found for i in range(extent)}
    return found


def math_calls(value: Scalar) -> int:
    """Return the number of exp, tanh and similar functions in one evaluation of `value`."""
    return sum(map(calls_of, walk(value)))


def calls_once(value: Scalar) -> int:
    """Return `math_calls`, counting equal ones once, as generated code computes them."""
    return sum(map(calls_of, dict.fromkeys(walk(value))))


def once(reads: Sequence[StageRead]) -> tuple[StageRead, ...]:
    """Return the first read of each tensor."""
    found: dict[str, StageRead] = {}
    for read in reads:
        found.setdefault(read.tensor, read)
    return tuple(found.values())


def windows_of(view: StageView, tensor: str, inner: Mapping[str, int]) -> tuple[int, ...]:
    """Return the number of neighbouring elements of each dimension of `tensor` that all reads of a
    stage access together while the loops `inner` have these extents and all others one
    iteration."""
    ranges = {x.name: Interval(0, inner.get(x.name, 1) - 1) for x in (*view.spatial, *view.reduce)}
    indices = [read.index for read in view.reads if read.tensor == tensor]
    spans = ([interval(i, ranges) for i in dim] for dim in zip(*indices, strict=True))
    return tuple(max(x.hi for x in span) - min(x.lo for x in span) + 1 for span in spans)
