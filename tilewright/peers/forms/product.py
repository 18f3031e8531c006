"""Expresses a sum of products as a product of two matrices or stacks of matrices, as libraries take
it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.schedules.algebra.scalar import Load, Scalar
from tilewright.schedules.reference.contract import Contraction, recognise
from tilewright.schedules.workload.tensors import Axis, Stage

from .convolution import axis_of, convolution_form


def contraction_of(stage: Stage) -> Contraction | None:
    """Match `stage` as a sum of products for which libraries have a call, or return None. Products
    of a matrix and a vector also match."""
    plan = recognise(stage)
    if plan is not None:
        return plan
    plan = recognise(stage, gain=1)
    plain = plan is not None and _is_plain(plan.left) and _is_plain(plan.right)
    return plan if plain else None


def is_product(stage: Stage) -> bool:
    """Return whether `stage` is a convolution, or a product of matrices or of a matrix and a
    vector."""
    if not stage.tensor.dtype.is_float:
        return False
    if convolution_form(stage) is not None:
        return True
    plan = contraction_of(stage)
    return plan is not None and bool(plan.rows or plan.columns)


def _is_plain(factor: Scalar) -> bool:
    """Return whether `factor` is a read that indexes each dimension by another axis."""
    if not isinstance(factor, Load):
        return False
    return len({*map(axis_of, factor.index)} - {None}) == len(factor.index)


@dataclass(frozen=True, slots=True)
class ProductForm:
    """A contraction as a product of two matrices, or of two stacks of matrices."""

    left: Scalar
    right: Scalar
    left_axes: tuple[Axis, ...]
    right_axes: tuple[Axis, ...]
    left_shape: tuple[int, ...]
    right_shape: tuple[int, ...]
    folded: tuple[int, ...]
    """The extents of (batch..., rows..., columns...): the axes of the product before they are
    folded."""
    back: list[int]
    """Permutes the axes of `folded` to the stage's axes."""
    stage_shape: tuple[int, ...]

    @property
    def left_stacks(self) -> tuple[int, ...]:
        """The shape of the left stack with one dimension per batch axis. `left_shape` has one
        dimension for all of them."""
        return (*self._batch, *self.left_shape[-2:])

    @property
    def right_stacks(self) -> tuple[int, ...]:
        return (*self._batch, *self.right_shape[-2:])

    @property
    def _batch(self) -> tuple[int, ...]:
        shared = [a for a in self.left_axes if a in self.right_axes]
        count = len(self.folded) - len([a for a in self.left_axes if a not in shared])
        count -= len([a for a in self.right_axes if a not in shared])
        return self.folded[:count]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the product."""
        return (*self.left_shape[:-1], self.right_shape[-1])

    def unfolded(self, result: Any) -> Any:
        """Return the product in the shape and order of the stage's tensor."""
        return result.reshape(self.folded).permute(self.back).reshape(self.stage_shape)


def product_form(plan: Contraction) -> ProductForm | None:
    """Return the product of `plan`, or None if one product is not enough, for example if a factor
    is first summed separately. The factor with the later output axis is the right one, as libraries
    expect of weights."""

    def size(axes: tuple[Axis, ...]) -> int:
        return prod(a.extent for a in axes)

    names = [axis.name for axis in plan.stage.axes]
    exchanged = bool(plan.rows) and (
        not plan.columns or names.index(plan.rows[-1].name) > names.index(plan.columns[-1].name)
    )
    rows, columns = (plan.columns, plan.rows) if exchanged else (plan.rows, plan.columns)
    left, right = (plan.right, plan.left) if exchanged else (plan.left, plan.right)
    order = [a.name for a in (*plan.batch, *rows, *columns)]
    if plan.left_sums or plan.right_sums or plan.repeats > 1 or len(order) != len(names):
        return None
    lead = (size(plan.batch),) if plan.batch else ()
    return ProductForm(
        left,
        right,
        (*plan.batch, *rows, *plan.inner),
        (*plan.batch, *plan.inner, *columns),
        (*lead, size(rows), size(plan.inner)),
        (*lead, size(plan.inner), size(columns)),
        tuple(a.extent for a in (*plan.batch, *rows, *columns)),
        [order.index(name) for name in names],
        plan.stage.tensor.shape,
    )
