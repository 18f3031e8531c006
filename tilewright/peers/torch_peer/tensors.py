"""A workload's tensors in PyTorch, and the reads of its stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.algebra.scalar import Load, Scalar, loads
from tilewright.schedules.workload.tensors import Axis, Stage, Tensor
from tilewright.schedules.workload.workload import Workload

from ..forms.convolution import convolution_form
from ..forms.epilogue import EpilogueForm, epilogue_form
from ..variants import NoPeerError
from .plain import PlainTorch, Value
from .products import ProductEpilogue

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TorchTensors:
    """The tensors of a workload. `values` has every computed tensor by name; later calls replace
    the results of stages. `plain` calls PyTorch operation by operation, `fused` combines a product
    and a sum."""

    torch: Any
    workload: Workload
    values: dict[str, Any]
    inputs: dict[str, Tensor]
    plain: PlainTorch
    fused: PlainTorch

    @staticmethod
    def of(torch: Any, workload: Workload, inputs: Sequence[Array], *, copy: bool) -> TorchTensors:
        """Convert the inputs to tensors. Without `copy`, a tensor shares the memory of its array.
        Raise NoPeerError for a type that is not compared with PyTorch."""
        for tensor in workload.tensors.values():
            if tensor.dtype.is_narrow_float:
                raise NoPeerError(f"{tensor.dtype} is not compared with PyTorch yet")
        values = {
            t.name: torch.from_numpy(np.array(a, order="C", copy=copy or None))
            for t, a in zip(workload.inputs, inputs, strict=True)
        }
        declared = {t.name: t for t in workload.inputs}
        plain = PlainTorch(torch, values, declared)
        fused = PlainTorch(torch, values, declared, multiply_adds=True)
        return TorchTensors(torch, workload, values, declared, plain, fused)

    def value_of(self, name: str) -> Value:
        """Return a function that returns the current tensor `name`."""
        return partial(self.values.__getitem__, name)

    def is_constant(self, node: Scalar) -> bool:
        """Return whether `node` reads an input that is declared constant."""
        return isinstance(node, Load) and self.inputs[node.tensor].constant

    def read_elsewhere(self, names: set[str], stages: Sequence[Stage]) -> bool:
        """Return whether one of `names` is an output or is read by a stage that is not in
        `stages`."""
        others = [s for s in self.workload.stages if s not in stages]
        read = {load.tensor for s in others for load in loads(s.body)}
        return bool(names & (read | set(self.workload.outputs)))

    def view(self, node: Scalar, axes: tuple[Axis, ...], shape: tuple[int, ...]) -> Any | None:
        """Return a factor as a view of an input, or None if elements would have to be copied."""
        if not isinstance(node, Load) or node.tensor not in self.inputs:
            return None
        whole = self.values[node.tensor]
        try:
            part = self.plain.read(node, axes)()
            folded = part.expand(tuple(a.extent for a in axes)).view(shape)
        except RuntimeError:  # no view has this shape
            return None
        shared = folded.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        return folded if shared else None

    def epilogue_form(self, stage: Stage, consumer: Stage) -> EpilogueForm | None:
        """Match `consumer` as the epilogue of the sum of products `stage`, for one call that
        computes both. Return None if another stage reads the sum or `consumer` does not match. The
        bias of a product is along its last axis, the bias of a convolution along its channels."""
        if consumer.tensor.shape != stage.tensor.shape:
            return None
        if self.read_elsewhere({stage.name}, [consumer]):
            return None
        form = convolution_form(stage)
        last: list[int | None] = [len(stage.axes) - 1]
        channels = last if form is None else [form.channel_axis]
        image = convolution_form(stage, promoted=True)
        if image is not None:
            channels.append(image.channel_axis)
        forms = (epilogue_form(consumer, stage.name, c) for c in channels if c is not None)
        return next((epilogue for epilogue in forms if epilogue is not None), None)

    def epilogue(
        self, stages: Sequence[Stage], shaped: Callable[[Any], Any]
    ) -> ProductEpilogue | None:
        """Return the epilogue of a product, which the stages after the first of `stages` compute.
        Return None if the bias or the added tensor is not an input of the workload. `shaped`
        converts the added tensor to the product's shape."""
        if len(stages) == 1:
            return ProductEpilogue()
        form = self.epilogue_form(*stages)
        assert form is not None
        operands = (form.bias, form.added)
        if any(name is not None and name not in self.inputs for name in operands):
            return None
        bias = None if form.bias is None else self.values[form.bias]
        added = None if form.added is None else shaped(self.values[form.added])
        return ProductEpilogue(bias, added, form.activation)
