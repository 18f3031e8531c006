"""The variants of one step: stage by stage, one reduction step at a time, and PyTorch functions."""

from __future__ import annotations

from typing import Any, assert_never

from tilewright.schedules.algebra.affine import affine
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Const,
    Load,
    loads,
    substitute,
    walk,
)
from tilewright.schedules.reference.contract import recognise
from tilewright.schedules.workload.tensors import (
    Elementwise,
    Reduction,
    Scan,
    Stage,
    TupleReduction,
)

from ..forms.convolution import is_convolution
from ..forms.pool import pool_form
from ..forms.product import contraction_of, is_product
from ..variants import NoPeerError, PeerVariant, transformed
from .convolution_steps import convolution_step_variants, pointwise_contraction
from .einsums import torch_einsum_variants
from .plain import BINARY, CUMULATIVE, REDUCE, PlainTorch, Value
from .product_steps import product_step_variants
from .rows import StageRun, row_variants
from .tensors import TorchTensors
from .windows import pool_variants, stencil_form, stencil_variants

_MAX_REDUCTION_STEPS = 1024


def step_variants(tensors: TorchTensors, stages: list[Stage]) -> list[PeerVariant]:
    """Return all variants of a step with unique names, the plain one first."""
    variants = [_plain(tensors, stages, tensors.plain)]
    if stages[-1].tensor.dtype.is_float:
        if any(map(_adds_a_product, stages)):
            variants.append(_plain(tensors, stages, tensors.fused, ", addcmul"))
        variants += library_variants(tensors, stages)
    if len(stages) == 1:
        variants += _stage_variants(tensors, stages[0])
    return list({variant.name: variant for variant in reversed(variants)}.values())[::-1]


def library_variants(tensors: TorchTensors, stages: list[Stage]) -> list[PeerVariant]:
    """Return variants that call a function of PyTorch for all of `stages`."""
    first = stages[0]
    if is_convolution(first):
        pointwise = pointwise_contraction(first)
        variants = convolution_step_variants(tensors, stages)
        if pointwise is not None:
            variants += product_step_variants(tensors, stages, pointwise)
        return variants
    plan = contraction_of(first)
    if plan is None and len(stages) == 1 and first.tensor.dtype.is_float:
        plan = recognise(first, gain=1)  # the factors are views, possibly of overlapping windows
    if plan is not None and (len(stages) == 1 or is_product(first)):
        variants = product_step_variants(tensors, stages, plan)
        shape = first.tensor.shape
        if plan.stage.tensor.shape != shape:  # the plan split an axis
            variants = [transformed(v, lambda y: y.reshape(shape)) for v in variants]
        variants += convolution_step_variants(tensors, stages)
        if is_product(first) or variants:
            named = torch_einsum_variants(first, tensors.value_of) if len(stages) == 1 else ()
            return [*variants, *named]
    return function_variants(tensors, stages)


def function_variants(tensors: TorchTensors, stages: list[Stage]) -> list[PeerVariant]:
    """Return functions of PyTorch that match `stages` by shapes and indices."""
    run = {stage.name for stage in stages}
    read = [load for stage in stages for load in loads(stage.body)]
    known = {load.tensor for load in read} - run
    declared = tensors.workload.tensors
    names = [name for name in declared if name in known]
    operands = [(tensors.value_of(name), declared[name].shape) for name in names]
    constants = [
        float(node.value)
        for stage in stages
        for node in walk(stage.body)
        if isinstance(node, Const)
    ]
    reduced = dict.fromkeys(
        tuple(sorted(a.extent for a in stage.reduce_axes)) for stage in stages if stage.is_reduction
    )
    shape, expected = stages[-1].tensor.shape, tensors.values.get(stages[-1].name)
    variants = row_variants(StageRun(operands, shape, constants, list(reduced), expected))
    form = pool_form(stages[0])
    if form is not None:
        variants += pool_variants(form, tensors.value_of(form.data))
    stencil = stencil_form(stages[0]) if len(stages) == 1 else None
    if stencil is not None:
        variants += stencil_variants(stencil, tensors.value_of(stencil.data))
    if len(stages) == 1:
        variants += torch_einsum_variants(stages[0], tensors.value_of)
    return variants


def _plain(
    tensors: TorchTensors, stages: list[Stage], plain: PlainTorch, suffix: str = ""
) -> PeerVariant:
    """Return the plain variant, stage by stage."""

    def prepare() -> Value:
        calls: list[tuple[str, Value]] = []
        try:
            for stage in stages:
                calls.append((stage.name, plain.stage(stage)))
                tensors.values[stage.name] = calls[-1][1]()
        except NoPeerError as error:
            raise ValueError(str(error)) from error
        if len(calls) == 1:
            return calls[0][1]

        def compute_all() -> Any:
            for name, call in calls:
                tensors.values[name] = call()
            return tensors.values[calls[-1][0]]

        return compute_all

    return PeerVariant(", ".join(dict.fromkeys(map(_plain_name, stages))) + suffix, prepare)


def _plain_name(stage: Stage) -> str:
    if is_product(stage):
        return "torch.matmul of windows" if is_convolution(stage) else "torch.matmul"
    match stage.kind:
        case Elementwise():
            return "element-wise"
        case Reduction(reducer):
            return f"torch.{REDUCE.get(reducer, '?')}"
        case Scan(reducer):
            return f"torch.{CUMULATIVE[reducer]}"
        case TupleReduction():
            return "a reduction of tuples"
        case _:
            assert_never(stage.kind)


def _stage_variants(tensors: TorchTensors, stage: Stage) -> list[PeerVariant]:
    """Return the variants of a stage other than the plain one.

    For a stage that only copies elements: a copy into contiguous memory. For a reduction over one
    axis of at most `_MAX_REDUCTION_STEPS` elements that is not a product: one call per value of the
    reduction index, which updates all results in place. Temporaries then have the size of the
    result, not of the whole reduction.
    """
    if isinstance(stage.body, Load) and stage.is_elementwise:
        value = tensors.plain.value(stage.body, stage.axes)
        whole = stage.tensor.shape
        return [PeerVariant("contiguous", lambda: lambda: value().expand(whole).contiguous())]
    if not isinstance(stage.kind, Reduction) or len(stage.kind.axes) != 1 or not stage.axes:
        return []
    reducer, (axis,) = stage.kind.reducer, stage.kind.axes
    if reducer not in REDUCE:
        return []
    if axis.extent > _MAX_REDUCTION_STEPS or is_product(stage):
        return []
    function = getattr(tensors.torch, BINARY[reducer.op])
    shape = stage.tensor.shape
    plain = tensors.plain

    def prepare() -> Value:
        steps: list[Value] = []
        try:
            with plain.one_memory():
                for index in range(axis.extent):
                    plain.begin_step()
                    body = substitute(stage.body, {axis.name: affine(index)})
                    steps.append(plain.value(body, stage.axes))
        except NoPeerError as error:
            raise ValueError(str(error)) from error
        first, *others = steps
        y = tensors.torch.empty(shape, dtype=first().dtype)

        def call() -> Any:
            y.copy_(first())
            for step in others:
                function(y, step(), out=y)
            return y

        return call

    return [PeerVariant("one step of the reduction at a time", prepare)]


def _adds_a_product(stage: Stage) -> bool:
    """Return whether the stage has a sum with a product as operand."""
    sums = [n for n in walk(stage.body) if isinstance(n, Binary) and n.op is BinaryOp.ADD]
    parts = [part for node in sums for part in (node.a, node.b)]
    return any(isinstance(part, Binary) and part.op is BinaryOp.MUL for part in parts)
