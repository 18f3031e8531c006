"""Index notation: `C[i,j] += A[i,k] * B[k,j]`, with inferred ranges.

A read outside a tensor gives zero. Statements are built with `tilewright.schedules.frontend.expr`,
so that notation and Python have the same meaning. `docs/workload.md` has the grammar, the functions
and the rules of inference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from ..algebra import values
from ..algebra.affine import Affine
from ..algebra.index_text import affine_of
from ..algebra.text_parser import (
    AssignmentOp,
    AssignmentTree,
    Call,
    Infix,
    Name,
    Number,
    Prefix,
    Ref,
    Tree,
    parse_program,
    references,
    syntax_error,
)  # fmt: skip
from ..errors import WorkloadError
from ..workload.checks import check_extent, check_name, check_shape
from ..workload.tensors import Tensor
from ..workload.workload import Workload
from . import expr
from .expr_core import Index, Operand, ReduceAxis
from .notation_eval import CONSTANTS, POSITIONS, SCAN_FUNCTIONS, Evaluator, is_data
from .notation_ranges import TensorUse, infer_extents
from .reading import TensorExpr

TensorSpecs: TypeAlias = Mapping[str, tuple[str, Sequence[int]]] | Sequence[Tensor]
"""Declared tensors in argument order: a mapping from name to (dtype, shape), or `Tensor` values."""

_SPEC = re.compile(
    r"\s*(?P<name>\w+)\s*[=:]\s*(?P<const>const\s+)?(?P<dtype>\w+)\s*(?:\[(?P<shape>[^\]]*)\]\s*)?",
    re.ASCII,
)


def parse_tensor_spec(text: str) -> Tensor:
    """Parse a tensor such as `A=f32[512,512]`, or a constant input: `B=const f32[512,512]`."""
    match = _SPEC.fullmatch(text) if len(text) <= 400 else None
    if match is None:
        raise WorkloadError(
            "a tensor is written NAME=dtype[extent,...], such as A=f32[512,512],"
            f" got {text[:60]!r}",
            code="bad_syntax",
        )
    name = match["name"]
    check_name(name, "a tensor")
    shape: list[int] = []
    inside = match["shape"] or ""
    for part in inside.split(",") if inside.strip() else []:
        if not re.fullmatch(r"\s*\d{1,20}\s*", part, re.ASCII):
            raise WorkloadError(
                f"tensor {name!r}: an extent is a positive integer, got {part.strip()[:40]!r}",
                code="bad_extent",
            )
        shape.append(int(part))
    check_shape(name, tuple(shape))
    return Tensor(name, tuple(shape), values.dtype_named(match["dtype"]), bool(match["const"]))


def from_notation(
    text: str, tensors: TensorSpecs, ranges: Mapping[str, int] | None = None, name: str = ""
) -> Workload:
    """Return the workload that `text` computes from `tensors`.

    Its outputs are the computed tensors that no statement reads. `ranges` has the extents of index
    variables that are not inferred from shapes. A tensor that is both declared and computed has the
    declared shape and type. Raise WorkloadError with the position in the text if it is not valid.
    """
    program = _Program(text, _declared(tensors), dict(ranges or {}))
    workload = program.run()
    return workload.named(name or " ".join(text.split())[:200])


def _declared(tensors: TensorSpecs) -> dict[str, Tensor]:
    if isinstance(tensors, Mapping):
        given = [
            Tensor(name, tuple(shape), values.dtype_named(dtype))
            for name, (dtype, shape) in tensors.items()
        ]
    else:
        given = list(tensors)
    declared: dict[str, Tensor] = {}
    for tensor in given:
        check_name(tensor.name, "a tensor")
        check_shape(tensor.name, tensor.shape)
        if tensor.name in declared:
            raise WorkloadError(f"tensor {tensor.name!r} is declared twice", code="duplicate")
        declared[tensor.name] = tensor
    return declared


@dataclass(frozen=True, slots=True)
class _Names:
    """The index names of a right side, with their first uses: `free` ones, and ones `bound` by a
    function that reduces over them. `inside` are the names that are bound at this place."""

    free: dict[str, Tree]
    bound: dict[str, Tree]
    inside: frozenset[str] = frozenset()

    def add(self, name: str, tree: Tree) -> None:
        (self.bound if name in self.inside else self.free).setdefault(name, tree)

    def binding(self, name: str) -> _Names:
        return replace(self, inside=self.inside | {name})


class _Program:
    """The statements of a text, in order. Each statement computes one tensor from inputs and
    earlier tensors."""

    def __init__(self, text: str, declared: dict[str, Tensor], ranges: dict[str, int]) -> None:
        self._text = text
        self._ranges = ranges
        self._statements = parse_program(text)
        written = {s.target.name for s in self._statements}
        self._stated = {n: t for n, t in declared.items() if n in written}
        self._inputs = {
            n: expr.placeholder(n, t.shape, t.dtype, t.constant)
            for n, t in declared.items()
            if n not in written
        }
        self._tensors: dict[str, TensorExpr] = dict(self._inputs)
        self._read: set[str] = set()
        self._used_ranges: set[str] = set()
        for name, extent in ranges.items():
            check_extent(extent, f"range {name!r}")

    def run(self) -> Workload:
        self._check_declared()
        computed: list[TensorExpr] = []
        for statement in self._statements:
            tensor = self._compute(statement)
            self._tensors[tensor.name] = tensor
            computed.append(tensor)
        unknown = self._ranges.keys() - self._used_ranges
        if unknown:
            raise WorkloadError(
                f"a range is given for {sorted(unknown)[0]!r}, which is not an index in the text",
                code="unknown_axis",
            )
        outputs = [t for t in computed if t.name not in self._read]
        return Workload.of(*outputs, inputs=list(self._inputs.values()))

    def _check_declared(self) -> None:
        """Raise WorkloadError if a tensor is read that is neither declared nor written."""
        written = {s.target.name for s in self._statements}
        reads = [r for s in self._statements for r in references(s.value)]
        missing = {r.name: r for r in reversed(reads) if r.name not in {*written, *self._inputs}}
        if not missing:
            return
        first = min(missing.values(), key=lambda r: r.pos)
        needed = sorted(missing.values(), key=lambda r: r.pos)
        specs = " ".join(
            f"--tensor {r.name}=f32[{','.join(['EXTENT'] * len(r.args))}]" for r in needed
        )
        declared = f"; declared: {', '.join(self._inputs)}" if self._inputs else ""
        raise self._error(
            first,
            f"the type and shape of {', '.join(r.name for r in needed)} are not known{declared};"
            f" give them with {specs}",
            "unknown_tensor",
        )

    def _error(self, tree: Tree, message: str, code: str) -> WorkloadError:
        return syntax_error(self._text, tree.pos, message, code)

    def _compute(self, statement: AssignmentTree) -> TensorExpr:
        target = statement.target
        if target.name in self._tensors:
            raise self._error(
                target, f"{target.name} is written twice; each tensor has one statement",
                "duplicate",
            )  # fmt: skip
        left = self._left_names(target)
        used: dict[str, Tree] = {}
        bound: dict[str, Tree] = {}
        reads: list[TensorUse] = []
        self._survey(statement.value, target, _Names(used, bound), reads)
        for name in bound.keys() & set(left):
            message = f"{name!r} is an index of {target.name}, argmax and argmin reduce over it"
            raise self._error(bound[name], message, "bad_reduction")
        extents = self._extents(statement, left, bound | used, reads)
        inner = [n for n in used if n not in left]
        self._check_inner(statement, {n: used[n] for n in inner})
        axes = [(n or "one", extents[n] if n else 1) for n in left]
        reduced = {n: expr.reduce_axis(extents[n], n) for n in inner}
        within = {n: expr.reduce_axis(extents[n], n) for n in bound if n not in reduced}

        def element(*indices: Index) -> Operand:
            scope: dict[str, Index] = dict(zip((n for n, _ in axes), indices, strict=True))
            names = {**scope, **within, **reduced}
            value = Evaluator(self._text, self._tensors, names).value(statement.value)
            return _combined(statement.operator, value, tuple(reduced.values()))

        stated = self._stated.get(target.name)
        return expr.compute_labelled(target.name, axes, element, stated.dtype if stated else None)

    def _check_inner(self, statement: AssignmentTree, inner: Mapping[str, Tree]) -> None:
        """Raise WorkloadError if the operator reduces without an index to reduce over, or does not
        reduce although there is one. `inner` maps each index that is not on the left side to its
        first use."""
        target = statement.target
        match statement.operator:
            case AssignmentOp.STORE:
                for name, place in inner.items():
                    raise self._error(
                        place,
                        f"{name!r} is not an index of {target.name}; reduce over it with"
                        " +=, max=, min= or *=",
                        "unknown_axis",
                    )
            case AssignmentOp.SUM | AssignmentOp.PROD | AssignmentOp.MAX | AssignmentOp.MIN:
                if not inner:
                    raise self._error(
                        target, f"nothing to reduce: every index is one of {target.name}; write =",
                        "bad_reduction",
                    )  # fmt: skip
            case _:
                assert_never(statement.operator)

    def _left_names(self, target: Ref) -> list[str]:
        """Return the index names of the left side. The name is "" for a literal 0, an axis of
        extent 1."""
        names: list[str] = []
        for index in target.args:
            if isinstance(index, Name) and index.name in self._tensors:
                raise self._error(index, f"{index.name} is a tensor, no index name", "bad_index")
            if isinstance(index, Name) and index.name not in names:
                names.append(index.name)
            elif isinstance(index, Number) and index.value == 0:
                names.append("")
            else:
                raise self._error(
                    index, f"the left side has distinct index names (or 0): {target.name}[i, j]",
                    "bad_index",
                )  # fmt: skip
        if names.count("") > 1:
            raise self._error(target, "only one index may be 0", "bad_index")
        return names

    def _survey(self, tree: Tree, target: Ref, names: _Names, reads: list[TensorUse]) -> None:
        """Add each index name of `tree` to `names` in order of appearance, and each read to
        `reads`."""
        match tree:
            case Number():
                return
            case Name(name):
                found = self._tensors.get(name)
                if found is not None and found.shape:
                    raise self._error(tree, f"tensor {name} needs indices: {name}[...]", "bad_rank")
                if found is not None:
                    self._read.add(name)
                elif name not in CONSTANTS:
                    names.add(name, tree)
            case Ref(name, args):
                self._check_read(tree, target)
                self._read.add(name)
                # The range of data is not known: it says nothing about the ranges of indices.
                indices = tuple(
                    Affine((), 0) if is_data(a, self._tensors) else affine_of(a, self._text)
                    for a in args
                )
                reads.append(TensorUse(tree, self._tensors[name].shape, indices))
                for a in args:
                    self._survey(a, target, names, reads)
            case Call(name, args):
                if name in POSITIONS and len(args) > 1 and isinstance(args[1], Name):
                    names = names.binding(args[1].name)
                for a in args[:2] if name in (*SCAN_FUNCTIONS, *POSITIONS) else args:
                    self._survey(a, target, names, reads)
            case Prefix(_, x):
                self._survey(x, target, names, reads)
            case Infix(_, a, b):
                self._survey(a, target, names, reads)
                self._survey(b, target, names, reads)

    def _check_read(self, tree: Ref, target: Ref) -> None:
        if tree.name == target.name:
            raise self._error(tree, f"{tree.name} is read where it is computed", "unknown_tensor")
        found = self._tensors.get(tree.name)
        if found is None:
            names = ", ".join(self._tensors) or "none"
            raise self._error(
                tree, f"unknown tensor {tree.name!r}; declared or computed before: {names}",
                "unknown_tensor",
            )  # fmt: skip
        if len(tree.args) != len(found.shape):
            raise self._error(
                tree,
                f"{tree.name} has {len(found.shape)} dimensions {list(found.shape)},"
                f" got {len(tree.args)} indices",
                "bad_rank",
            )

    def _extents(
        self,
        statement: AssignmentTree,
        left: list[str],
        used: dict[str, Tree],
        reads: list[TensorUse],
    ) -> dict[str, int]:
        target = statement.target
        stated = self._stated.get(target.name)
        if stated is not None:
            if len(stated.shape) != len(left):
                raise self._error(
                    target,
                    f"{target.name} is declared with {len(stated.shape)} dimensions,"
                    f" got {len(left)} indices",
                    "bad_rank",
                )
            indices = tuple(Affine((), 0) if not n else affine_of(a, self._text)
                            for n, a in zip(left, target.args, strict=True))  # fmt: skip
            reads = [TensorUse(target, stated.shape, indices), *reads]
        places = {n: a for n, a in zip(left, target.args, strict=True) if n} | used
        self._used_ranges |= self._ranges.keys() & places.keys()
        given = {n: e for n, e in self._ranges.items() if n in places}
        extents = infer_extents(self._text, places, reads, given)
        if stated is not None:
            found = tuple(extents[n] if n else 1 for n in left)
            if found != stated.shape:
                raise self._error(
                    target, f"{target.name} is declared as {list(stated.shape)}, it is"
                    f" {list(found)}", "bad_shape",
                )  # fmt: skip
        return extents


def _combined(operator: AssignmentOp, value: Operand, axes: tuple[ReduceAxis, ...]) -> Operand:
    """Return `value`, reduced over `axes` if `operator` reduces."""
    match operator:
        case AssignmentOp.STORE:
            return value
        case AssignmentOp.SUM:
            return expr.sum(value, axes)
        case AssignmentOp.PROD:
            return expr.prod(value, axes)
        case AssignmentOp.MAX:
            return expr.max(value, axes)
        case AssignmentOp.MIN:
            return expr.min(value, axes)
        case _:
            assert_never(operator)
