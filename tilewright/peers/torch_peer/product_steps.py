"""Steps that start with a product of matrices, as calls of PyTorch's products."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.reference.contract import Contraction
from tilewright.schedules.workload.tensors import Stage

from ..forms.product import ProductForm, product_form
from ..variants import PeerVariant, transformed
from .plain import Value
from .products import product_variants, stack_variants
from .tensors import TorchTensors


def product_step_variants(
    tensors: TorchTensors, stages: list[Stage], plan: Contraction
) -> list[PeerVariant]:
    """Return variants that multiply two matrices, or stacks of them, and apply the epilogue of
    `stages`. The list is empty if `plan` is not such a product. The right matrix is a view of an
    input or, without an epilogue, computed in every call. The left matrix may also be the result of
    an earlier stage."""
    product = product_form(plan)
    if product is None:
        return []
    a = tensors.view(product.left, product.left_axes, product.left_shape)
    b = tensors.view(product.right, product.right_axes, product.right_shape)
    if len(stages) == 1 and (a is None or b is None) and len(product.left_shape) == 3:
        return _stacked_variants(tensors, product)
    left: Any = a if a is not None else _reread(tensors, product)
    in_order = product.back == sorted(product.back)
    if left is None or (len(stages) > 1 and not in_order):
        return []
    if b is None:
        return _right_computed(tensors, product, left) if len(stages) == 1 else []
    shape = product.shape
    epilogue = tensors.epilogue(stages, lambda added: added.reshape(shape))
    if epilogue is None or (epilogue.bias is not None and epilogue.bias.shape != shape[-1:]):
        return []
    y = tensors.torch.empty(shape, dtype=b.dtype)
    constant = tensors.is_constant(product.right)
    variants = product_variants(left, b, y, epilogue, constant=constant)
    if in_order and shape == plan.stage.tensor.shape:
        return variants
    return [transformed(variant, product.unfolded) for variant in variants]


def _right_computed(tensors: TorchTensors, product: ProductForm, left: Any) -> list[PeerVariant]:
    """Return variants that first compute the right matrix, into its own memory, in every call."""
    if len(product.right_shape) != 2:
        return []
    value = tensors.plain.value(product.right, product.right_axes)
    extents = tuple(a.extent for a in product.right_axes)
    b = value().expand(extents).reshape(product.right_shape).clone()
    y = tensors.torch.empty(product.shape, dtype=b.dtype)

    def with_copy(variant: PeerVariant) -> PeerVariant:
        def prepare() -> Value:
            call = variant.prepare()

            def compute() -> Any:
                b.copy_(value().expand(extents).reshape(product.right_shape))
                return product.unfolded(call())

            return compute

        return PeerVariant(f"made before, {variant.name}", prepare)

    left_of = left if callable(left) else lambda: left
    return [with_copy(variant) for variant in product_variants(left_of, b, y)]


def _reread(tensors: TorchTensors, product: ProductForm) -> Value | None:
    """Return a callable that reads the current left matrix, or None for a stack of matrices."""
    if len(product.left_shape) != 2:
        return None
    value = tensors.plain.value(product.left, product.left_axes)
    extents = tuple(a.extent for a in product.left_axes)
    return lambda: value().expand(extents).reshape(product.left_shape)


def _stacked_variants(tensors: TorchTensors, product: ProductForm) -> list[PeerVariant]:
    """Return variants that multiply stacks of matrices which are not contiguous in memory, such as
    attention heads stored between rows and columns."""
    a = tensors.plain.value(product.left, product.left_axes)
    b = tensors.plain.value(product.right, product.right_axes)
    full_a = tuple(x.extent for x in product.left_axes)
    full_b = tuple(x.extent for x in product.right_axes)
    return stack_variants(
        lambda: a().expand(full_a).reshape(product.left_stacks),
        lambda: b().expand(full_b).reshape(product.right_stacks),
        product.unfolded,
    )
