"""Reading through: a sum reads a tensor itself, not a copy of it with zeros around or between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.affine import Affine, Cond, FloorDiv, Ge0, Var
from ..algebra.congruence import congruence_of
from ..algebra.scalar import All, Const, Load, Reducer, Scalar, Select, loads, substitute
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import ScheduleError
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class ReadThrough(Rewrite):
    """Let the sums that read the copy `stage` of a tensor read the tensor itself.

        U[u] = X[u/2] if u is even else 0;  Y[y] += U[y + r] * W[r]
    ->  Y[y] += (X[(y + r)/2] if y + r is even and inside U else 0) * W[r]

    The zeros that the copy has around the tensor (padding) or between its elements (a transposed
    convolution over an input with inserted zeros) become conditions of the terms of the sums.
    Kernels may then leave these terms out. The rewrite is legal for a stage that copies elements of
    one tensor or zeros, is no output, and is read by sums only.
    """

    label: ClassVar[str] = "through"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload without the copy, in normal form.

        Raise ScheduleError if there is no such stage, or if it is needed.
        """
        copy = self.stage_of(workload)
        if not is_copy_with_zeros(copy, workload) or copy.name in workload.outputs:
            raise ScheduleError(self, f"{self.stage!r} does not copy a tensor into an intermediate")
        readers = workload.consumers(copy.name)
        if not all(reader.reduces_by(Reducer.SUM) for reader in readers):
            raise ScheduleError(self, f"not only sums read {self.stage!r}")
        names = {reader.name for reader in readers}
        stages = tuple(
            replace(old, body=_reading_through(old.body, copy)) if old.name in names else old
            for old in workload.stages
            if old is not copy
        )
        return replace(workload, stages=stages).normalised()


def is_copy_with_zeros(stage: Stage, workload: Workload) -> bool:
    """Return whether every element of `stage` is an element of a tensor of the same type, or a zero
    that an index condition chooses."""
    match stage.body:
        case Load() as load:
            pass
        case Select(All(), Load() as load, Const() as other) if other.is_plus_zero:
            pass
        case _:
            return False
    same = workload.tensors[load.tensor].dtype is stage.tensor.dtype
    return stage.is_elementwise and same


def _reading_through(body: Scalar, copy: Stage) -> Scalar:
    """Return `body` with reads of the tensor that `copy` copies, in place of reads of `copy`."""

    def leaf(node: Scalar) -> Scalar | None:
        match node:
            case Select(All(conds), Load(copy.name) as load, Const(0) as other):
                inner = _element(copy, load)
                return _guarded((*conds, *_conditions(inner)), inner, other)
            case Load(copy.name):
                inner = _element(copy, node)
                return _guarded(_conditions(inner), inner, Const(0, node.dtype))
            case _:
                return None

    return rewrite_scalar(body, leaf)


def _element(copy: Stage, load: Load) -> Scalar:
    """Return the element of `copy` that `load` reads."""
    axes = (axis.name for axis in copy.axes)
    return substitute(copy.body, dict(zip(axes, load.index, strict=True)))


def _conditions(element: Scalar) -> tuple[Cond, ...]:
    return (
        element.cond.conds if isinstance(element, Select) and isinstance(element.cond, All) else ()
    )


def _guarded(conds: tuple[Cond, ...], element: Scalar, other: Scalar) -> Scalar:
    """Return the load in `element` if `conds` hold, else `other`.

    Limits of a divided index are stated in the same way in all notations: if n divides i, the
    limits `i >= 1` and `i >= n` are equal, and so are `i < n*m - 1` and `i < n*m`. The chosen
    limits are those of the quotient.
    """
    (load,) = loads(element)
    if not conds:
        return load
    exact = [
        quotient
        for index in load.index
        if (quotient := _Quotient.of(index)) is not None and quotient.is_exact(conds)
    ]
    for quotient in exact:
        conds = tuple(quotient.limit(c) for c in conds)
    return Select(All(conds), load, other)


@dataclass(frozen=True, slots=True)
class _Quotient:
    """The index `index` = `dividend` // `divisor`."""

    index: Affine
    dividend: Affine
    divisor: int

    @classmethod
    def of(cls, index: Affine) -> _Quotient | None:
        """Return `index` as a quotient of a plain sum of variables, or None if it is none."""
        quotients = [(atom, c) for atom, c in index.terms if isinstance(atom, FloorDiv)]
        if len(quotients) != 1 or quotients[0][1] != 1:
            return None
        quotient = quotients[0][0]
        rest = index - Affine(((quotient, 1),), 0)
        dividend = quotient.numerator + rest * quotient.divisor
        plain = all(isinstance(atom, Var) for atom, _ in dividend.terms)
        return cls(index, dividend, quotient.divisor) if plain else None

    def is_exact(self, conds: tuple[Cond, ...]) -> bool:
        """Return whether one of `conds` states that the divisor divides the dividend."""
        for cond in conds:
            found = congruence_of(cond)
            if found is None or found.modulus != self.divisor:
                continue
            for other in (found.index - self.dividend, found.index + self.dividend):
                if all(c % self.divisor == 0 for c in (other.const, *(c for _, c in other.terms))):
                    return True
        return False

    def limit(self, cond: Cond) -> Cond:
        """Return `cond`, as a limit of the quotient if it is a limit of the dividend."""
        if not isinstance(cond, Ge0):
            return cond
        if cond.index.terms == self.dividend.terms:  # dividend + more >= 0
            return Ge0(self.index + (cond.index.const - self.dividend.const) // self.divisor)
        if cond.index.terms == (-self.dividend).terms:  # more - dividend >= 0
            return Ge0(-self.index + (cond.index.const + self.dividend.const) // self.divisor)
        return cond
