"""PyTorch's way of computing a workload, where PyTorch is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.algebra.affine import affine
from schedules.algebra.scalar import (
    Const,
    Load,
    Scalar,
    loads,
    substitute,
    walk,
)
from schedules.reference.contract import Contraction
from schedules.workload.tensors import Axis, Stage
from schedules.workload.workload import Workload

from .convolution_form import ConvolutionForm, convolution_form
from .epilogue_form import EpilogueForm, epilogue_form
from .product_form import ProductForm, contraction_of, product_form
from .torch_convolutions import Convolution, convolution_ways
from .torch_plain import BINARY, REDUCE, PlainTorch, Value
from .torch_products import Epilogue, product_ways
from .torch_rows import row_ways
from .ways import Choice, NoPeerError, Way, choose

Array = NDArray[Any]
_MOST_STEPS = 1024
_TOLERANCE = 1e-4
"""Of the largest element, between ways. Whether the chosen ones are right is checked exactly."""


class TorchPeer:
    """`workload` in PyTorch on `threads` threads; calling it replaces what `outputs` gives.

    Stages are taken together where PyTorch has one call for them: sums of products with what
    follows them, and rows (softmax, layer norm and the like). Each of these steps is asked for in
    every way there is, and the fastest one that gives the same result is kept; the rest are
    element-wise operations and reductions. NoPeerError where PyTorch is not installed or reads are
    not plain.
    """

    def __init__(self, workload: Workload, inputs: Sequence[Array], threads: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise NoPeerError("PyTorch is not installed: pip install torch") from error
        self._torch = torch
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        for tensor in workload.tensors.values():
            if tensor.dtype.is_narrow_float:
                raise NoPeerError(f"{tensor.dtype} is not compared with PyTorch yet")
        self._workload = workload
        self._inputs = {t.name: t for t in workload.inputs}
        self._now: dict[str, Any] = {
            t.name: torch.from_numpy(np.array(a, order="C"))
            for t, a in zip(workload.inputs, inputs, strict=True)
        }
        self._choices: list[Choice] = []
        self._plainly = PlainTorch(torch, self._now, self._inputs)
        self._steps = [(run[-1].name, self._chosen(run)) for run in self._together()]

    @property
    def way(self) -> str:
        """How it is asked for: the names of the steps' ways."""
        return "; ".join(choice.name for choice in self._choices)

    @property
    def dropped(self) -> dict[str, str]:
        """Ways that were tried and do not work, and why."""
        return {name: why for choice in self._choices for name, why in choice.dropped.items()}

    @property
    def call(self) -> Callable[[], object]:
        """One evaluation of the workload."""
        return self._all

    def _all(self) -> None:
        for name, step in self._steps:
            self._now[name] = step()

    def outputs(self) -> list[Array]:
        """What the last call gave, as NumPy arrays of the workload's shapes."""
        found = []
        for tensor in self._workload.output_tensors:
            values = self._now[tensor.name].expand(tensor.shape).numpy()
            found.append(np.ascontiguousarray(values, tensor.dtype.numpy))
        return found

    # What is asked for together.

    def _together(self) -> Iterator[list[Stage]]:
        """The stages, those of a step together: a product and its epilogue, a run of others."""
        run: list[Stage] = []
        stages = list(self._workload.stages)
        while stages:
            stage = stages.pop(0)
            if not _multiplies(stage):
                run.append(stage)
                continue
            yield from self._runs(run)
            run = []
            if stages and self._epilogue(stage, stages[0]) is not None:
                yield [stage, stages.pop(0)]
            else:
                yield [stage]
        yield from self._runs(run)

    def _runs(self, run: list[Stage]) -> Iterator[list[Stage]]:
        """One step if nobody else reads what lies between, else each for itself."""
        if not run:
            return
        if self._read_elsewhere({s.name for s in run[:-1]}, run):
            yield from ([stage] for stage in run)
        else:
            yield run

    def _read_elsewhere(self, names: set[str], stages: Sequence[Stage]) -> bool:
        others = [s for s in self._workload.stages if s not in stages]
        read = {load.tensor for s in others for load in loads(s.body)}
        return bool(names & (read | set(self._workload.outputs)))

    def _epilogue(self, stage: Stage, follows: Stage) -> EpilogueForm | None:
        """`follows` as what one call can do after the sum of products `stage`, if nobody else
        reads that. Output channels of a product are its last axis."""
        if follows.tensor.shape != stage.tensor.shape:
            return None
        if self._read_elsewhere({stage.name}, [follows]):
            return None
        form = convolution_form(stage)
        channel = len(stage.axes) - 1 if form is None else form.output_order.index(1)
        return epilogue_form(follows, stage.name, channel)

    # Choosing among ways.

    def _chosen(self, stages: list[Stage]) -> Value:
        """The fastest way of a step. The plain one comes first; the others must agree with it."""
        ways = [self._plain(stages)]
        if stages[-1].tensor.dtype.is_float:
            ways += self._other_ways(stages)
        if len(stages) == 1:
            ways += self._step_ways(stages[0])
        expected: list[Any] = []

        def check(result: Any) -> str | None:
            if not expected:
                expected.append(result.clone())
                return None
            return _difference(result, expected[0])

        choice = choose(ways, check)
        self._choices.append(choice)
        self._now[stages[-1].name] = choice.call()
        return choice.call

    def _step_ways(self, stage: Stage) -> list[Way]:
        """The whole result for each value of a reduced axis: temporaries stay in the caches."""
        if len(stage.reduce_axes) != 1 or stage.reducer not in REDUCE or not stage.axes:
            return []
        (axis,) = stage.reduce_axes
        if axis.extent > _MOST_STEPS or _multiplies(stage):
            return []
        function = getattr(self._torch, BINARY[stage.reducer.op])
        shape = stage.tensor.shape

        def prepare() -> Value:
            steps: list[Value] = []
            try:
                with self._plainly.one_memory():
                    for place in range(axis.extent):
                        self._plainly.begin_step()
                        body = substitute(stage.body, {axis.name: affine(place)})
                        steps.append(self._plainly.value(body, stage.axes))
            except NoPeerError as error:
                raise ValueError(str(error)) from error
            first, *others = steps
            y = self._torch.empty(shape, dtype=first().dtype)

            def call() -> Any:
                y.copy_(first())
                for step in others:
                    function(y, step(), out=y)
                return y

            return call

        return [Way("one step of the reduction at a time", prepare)]

    def _plain(self, stages: list[Stage]) -> Way:
        """Stage by stage."""
        made: list[tuple[str, Value]] = []
        for stage in stages:
            made.append((stage.name, self._plainly.stage(stage)))
            self._now[stage.name] = made[-1][1]()
        names = dict.fromkeys(_plain_name(stage) for stage in stages)
        if len(made) == 1:
            call = made[0][1]
            return Way(", ".join(names), lambda: call)

        def all_of_them() -> Any:
            for name, step in made:
                self._now[name] = step()
            return self._now[made[-1][0]]

        return Way(", ".join(names), lambda: all_of_them)

    def _other_ways(self, stages: list[Stage]) -> list[Way]:
        first = stages[0]
        form = convolution_form(first)
        if form is not None:
            return self._convolution_ways(stages, form)
        plan = contraction_of(first)
        if plan is not None and (len(stages) == 1 or _multiplies(first)):
            return self._product_ways(stages, plan)
        run = {stage.name for stage in stages}
        read = [load for stage in stages for load in loads(stage.body)]
        known = {load.tensor for load in read} - run
        names = [name for name in self._workload.tensors if name in known]  # as declared
        operands = [
            (partial(self._now.__getitem__, name), self._workload.tensors[name].shape)
            for name in names
        ]
        constants = [
            float(node.value)
            for stage in stages
            for node in walk(stage.body)
            if isinstance(node, Const)
        ]
        return row_ways(operands, stages[-1].tensor.shape, constants)

    def _epilogue_of(self, stages: list[Stage], shaped: Callable[[Any], Any]) -> Epilogue | None:
        """What follows the first of `stages`; `shaped` gives a tensor to add the product's shape.
        None if a tensor of it is not there yet."""
        if len(stages) == 1:
            return Epilogue()
        form = self._epilogue(*stages)
        assert form is not None
        if any(name is not None and name not in self._inputs for name in (form.bias, form.added)):
            return None
        bias = None if form.bias is None else self._now[form.bias]
        added = None if form.added is None else shaped(self._now[form.added])
        return Epilogue(bias, added, form.activation)

    def _convolution_ways(self, stages: list[Stage], form: ConvolutionForm) -> list[Way]:
        if form.data not in self._inputs or form.weight not in self._inputs:
            return []
        image = self._now[form.data].permute(form.data_order)
        kernel = self._now[form.weight].permute(form.weight_order)
        if form.depthwise:
            kernel = kernel.unsqueeze(1)
        back = [form.output_order.index(place) for place in range(image.ndim)]
        epilogue = self._epilogue_of(stages, lambda added: added.permute(back))
        if epilogue is None:
            return []
        groups = image.shape[1] if form.depthwise else form.groups
        how = Convolution(form.stride, form.pad, form.dilation, groups, form.transposed)
        constant = self._inputs[form.weight].constant
        cut = tuple(slice(0, n) for n in form.output_shape)

        def placed(result: Any) -> Any:
            return result[cut].permute(form.output_order)

        found = convolution_ways(image, kernel, how, epilogue, constant=constant)
        ways = [_then(way, placed) for way in found]
        if image.ndim == 3 and not form.transposed:  # as an image of one line
            line = Convolution((1, *form.stride), (0, *form.pad), (1, *form.dilation), groups)
            lifted = epilogue
            if epilogue.added is not None:
                lifted = Epilogue(epilogue.bias, epilogue.added.unsqueeze(2), epilogue.activation)
            found = convolution_ways(
                image.unsqueeze(2), kernel.unsqueeze(2), line, lifted, constant=constant
            )
            ways += [_then(way, lambda y: placed(y.squeeze(2)), "as an image, ") for way in found]
        return ways

    def _product_ways(self, stages: list[Stage], plan: Contraction) -> list[Way]:
        """Ways of a product of two matrices, or stacks of them, that are views of inputs."""
        product = product_form(plan)
        if product is None:
            return []
        a = self._view(product.left, product.left_axes, product.left_shape)
        b = self._view(product.right, product.right_axes, product.right_shape)
        if len(stages) == 1 and (a is None or b is None):
            return self._stacked_ways(product)
        in_order = product.back == sorted(product.back)
        if a is None or b is None or (len(stages) > 1 and not in_order):
            return []
        shape = product.shape
        epilogue = self._epilogue_of(stages, lambda added: added.reshape(shape))
        if epilogue is None or (epilogue.bias is not None and epilogue.bias.shape != shape[-1:]):
            return []
        y = self._torch.empty(shape, dtype=a.dtype)
        weight = product.right
        constant = isinstance(weight, Load) and self._inputs[weight.tensor].constant
        ways = product_ways(a, b, y, epilogue, constant=constant)
        if in_order and shape == plan.stage.tensor.shape:
            return ways
        return [_then(way, product.unfolded) for way in ways]

    def _stacked_ways(self, product: ProductForm) -> list[Way]:
        """Stacks of matrices that are no single stack in memory: heads between rows and columns."""
        a = self._view(product.left, product.left_axes, product.left_stacks)
        b = self._view(product.right, product.right_axes, product.right_stacks)
        if a is None or b is None:
            return []
        matmul = self._torch.matmul
        return [
            Way("torch.matmul of views", lambda: lambda: product.unfolded(matmul(a, b))),
            Way("torch.matmul of copies", lambda: lambda: product.unfolded(
                matmul(a.contiguous(), b.contiguous())
            )),
        ]  # fmt: skip

    def _view(self, node: Scalar, axes: tuple[Axis, ...], shape: tuple[int, ...]) -> Any | None:
        """A factor as a view of an input that stays as it is; None if it takes work."""
        if not isinstance(node, Load) or node.tensor not in self._inputs:
            return None
        whole = self._now[node.tensor]
        try:
            folded = (
                self._plainly.read(node, axes)().expand(tuple(a.extent for a in axes)).view(shape)
            )
        except RuntimeError:  # no view has this shape
            return None
        return folded if folded.data_ptr() == whole.data_ptr() else None


def _multiplies(stage: Stage) -> bool:
    """Whether it is a product of matrices, or of one and a vector, or a convolution."""
    if not stage.tensor.dtype.is_float:
        return False
    if convolution_form(stage) is not None:
        return True
    plan = contraction_of(stage)
    return plan is not None and bool(plan.rows or plan.columns)


def _plain_name(stage: Stage) -> str:
    form = convolution_form(stage) if stage.tensor.dtype.is_float else None
    if form is not None:
        return f"{'conv_transpose' if form.transposed else 'conv'}{len(form.stride)}d as dispatched"
    if _multiplies(stage):
        return "torch.matmul"
    return "element-wise" if stage.reducer is None else f"torch.{REDUCE.get(stage.reducer, '?')}"


def _then(way: Way, change: Callable[[Any], Any], said: str = "") -> Way:
    """`way`, with its result as `change` gives it."""

    def prepare() -> Value:
        call = way.prepare()
        return lambda: change(call())

    return Way(f"{said}{way.name}", prepare)


def _difference(result: Any, right: Any) -> str | None:
    """What is wrong with `result`; NaN is. Both are tensors."""
    if result.shape != right.shape:
        return f"gives the shape {tuple(result.shape)}"
    if not right.numel():
        return None
    scale = float(right.abs().max()) or 1.0
    off = float((result - right).abs().max()) / scale
    if off <= _TOLERANCE:
        return None
    return f"gives another result: off by {off:.3g} of the largest element"
