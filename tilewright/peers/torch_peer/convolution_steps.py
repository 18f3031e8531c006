"""Steps that start with a convolution, as calls of PyTorch's convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.schedules.algebra.affine import affine
from tilewright.schedules.algebra.scalar import substitute
from tilewright.schedules.reference.contract import Contraction, recognise
from tilewright.schedules.workload.tensors import Stage

from ..forms.convolution import ConvolutionForm, convolution_form
from ..variants import PeerVariant, transformed
from .convolutions import convolution_variants, framed, library_convolution
from .products import ProductEpilogue
from .tensors import TorchTensors


def convolution_step_variants(tensors: TorchTensors, stages: list[Stage]) -> list[PeerVariant]:
    """Return variants of a step whose first stage is a convolution, or an empty list for other
    steps."""
    plain, promoted = (convolution_form(stages[0], promoted=each) for each in (False, True))
    variants = [] if plain is None else _variants_of(tensors, stages, plain)
    if promoted is not None and promoted != plain:
        prefix = "" if plain is None else "with one more axis, "
        more = _variants_of(tensors, stages, promoted)
        variants += [transformed(variant, lambda y: y, prefix) for variant in more]
    return variants


def pointwise_contraction(stage: Stage) -> Contraction | None:
    """Match `stage` as a product, if it is a convolution whose windows have one element. Otherwise
    return None."""
    single = {axis.name: affine(0) for axis in stage.reduce_axes if axis.extent == 1}
    rest = tuple(axis for axis in stage.reduce_axes if axis.name not in single)
    if not single or not rest:
        return None
    body = substitute(stage.body, single)
    plan = recognise(replace(stage, body=body).reducing_over(rest), gain=1)
    if plan is None or plan.stage.tensor.shape != stage.tensor.shape:
        return None
    return plan


def _variants_of(
    tensors: TorchTensors, stages: list[Stage], form: ConvolutionForm
) -> list[PeerVariant]:
    if form.weight not in tensors.inputs:
        return []
    whole = tensors.value_of(form.data)
    image, kernel = form.image(whole()), form.kernel(tensors.values[form.weight])
    how, around = library_convolution(form, image.shape[2:], kernel.shape[2:])
    outer = [form.output_order.index(place) for place in range(len(form.output_order))]
    epilogue = tensors.epilogue(
        stages, lambda added: added.permute(outer).reshape(form.output_shape)
    )
    if epilogue is None:
        return []
    is_padded = around != ((0, 0),) * len(around)
    is_view = form.data in tensors.inputs and image.data_ptr() == whole().data_ptr()
    if is_view and not is_padded:

        def read() -> Any:
            return image
    else:

        def read() -> Any:
            return framed(form.image(whole()), around)

    constant = tensors.inputs[form.weight].constant
    variants = [
        transformed(variant, form.unfolded)
        for variant in convolution_variants(read, kernel, how, epilogue, constant=constant)
    ]
    if image.ndim == 3 and not form.transposed:  # also as an image with one line
        lifted = epilogue
        if epilogue.added is not None:
            added = epilogue.added.unsqueeze(2)
            lifted = ProductEpilogue(epilogue.bias, added, epilogue.activation)
        of_a_line = convolution_variants(
            lambda: read().unsqueeze(2), kernel.unsqueeze(2), how.of_a_line, lifted,
            constant=constant,
        )  # fmt: skip
        variants += [
            transformed(variant, lambda y: form.unfolded(y.squeeze(2)), "as an image, ")
            for variant in of_a_line
        ]
    return variants
