"""Tests of indices as conditions of selects, by which loops are limited."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.index_tests import (
    has_index_test,
    index_tests_first,
    is_test,
    without_tested_factors,
)
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    Load,
    Reducer,
    Scalar,
    Select,
    index_conds,
    substitute,
    walk,
)
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import require
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .rewrite import Rewrite

MOST_REPEATED = 100
"""Most nodes and conditions of a stored mask that is written again where it is read. If each mask
read the one before twice, each would be twice as large, and twenty of them would take minutes."""


@dataclass(frozen=True, slots=True)
class IndexTestsFirst(Rewrite):
    """Write the tests of indices in `stage` as conditions of selects around all other tests.

        Y[i,j] += (A[i,k] if (k <= i) & (M[i,k] > 0) else 0) * B[k,j]
    ->  Y[i,j] += ((A[i,k] if M[i,k] > 0 else 0) if k <= i else 0) * B[k,j]

        Y[i,j] += f32(k <= i) * A[i,k] * B[k,j]
    ->  Y[i,j] += (A[i,k] if k <= i else 0) * B[k,j]

    Such conditions limit loops (SkipBlocks, MaskResult), and guard reads. They may be bits, numbers
    that are factors of a sum's terms, negated, inside a test of data, or in a stage of their own.
    No value changes, except that products with a test that fails become implicit zeros, whose
    products with infinities and NaN may be skipped (docs/math.md). The rewrite is legal if there is
    such a test.
    """

    label: ClassVar[str] = "tests"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with another body of `stage`, in normal form.

        Raise ScheduleError if there is no such stage, or if all its tests of indices are
        conditions of selects.
        """
        stage = self.stage_of(workload)
        body = with_index_tests_first(workload, stage)
        stages = tuple(replace(s, body=body) if s is stage else s for s in workload.stages)
        new = replace(workload, stages=stages).normalised()
        nothing = f"the tests of indices of {stage.name!r} are conditions of selects"
        require(new != workload, self, nothing)
        return new


def with_index_tests_first(workload: Workload, stage: Stage) -> Scalar:
    """Return the body of `stage` with its tests of indices as conditions of selects, and with those
    of earlier stages that it reads."""
    earlier = {one.name: one for one in workload.stages if one.is_elementwise}

    def element(node: Scalar) -> Scalar | None:
        if not isinstance(node, Load) or any(index.has_data for index in node.index):
            return None
        mask = earlier.get(node.tensor)
        if mask is None or mask.body.dtype is not node.dtype:
            return None
        axes = (axis.name for axis in mask.axes)
        tests = dict(zip(axes, node.index, strict=True))
        if _consists_of_tests(mask.body):
            return substitute(mask.body, tests)
        match index_tests_first(mask.body):
            case Select(All() as test, value, Const(0) as zero) if is_test(value):
                return Select(substitute(test, tests), node, zero)
            case _:
                return None

    found = index_tests_first(rewrite_scalar(stage.body, element))
    return without_tested_factors(found) if stage.reduces_by(Reducer.SUM) else found


def _consists_of_tests(body: Scalar) -> bool:
    """Return whether `body` consists of tests of indices, and of constants that they choose, and is
    not too large to be written more than once."""
    if sum(1 for _ in walk(body)) + sum(1 for _ in index_conds(body)) > MOST_REPEATED:
        return False
    kinds = All | Cast | Compare | Const | Select
    bits = (BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR)
    return has_index_test(body) and all(
        isinstance(part, kinds) or (isinstance(part, Binary) and part.op in bits)
        for part in walk(body)
    )
