"""PyTorch's way of computing a workload, where PyTorch is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.algebra.affine import affine
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Const,
    Load,
    Scalar,
    loads,
    substitute,
    walk,
)
from tilewright.schedules.reference.contract import Contraction, recognise
from tilewright.schedules.workload.tensors import Axis, Elementwise, Reduction, Stage
from tilewright.schedules.workload.workload import Workload

from .convolution_form import ConvolutionForm, convolution_form
from .einsum_form import torch_einsum_ways
from .epilogue_form import EpilogueForm, epilogue_form
from .pool_form import pool_form
from .product_form import ProductForm, contraction_of, product_form
from .torch_compiled import MODES, compiled_ways
from .torch_convolutions import convolution_ways, framed, library_convolution
from .torch_plain import BINARY, REDUCE, PlainTorch, Value
from .torch_products import ProductEpilogue, product_ways, stack_ways
from .torch_rows import StageRun, row_ways
from .torch_windows import pool_ways, stencil_form, stencil_ways
from .ways import Asked, FastestPeer, NoPeerError, Step, Way, choose, prepared, secs_of

Array = NDArray[Any]
_MOST_STEPS = 1024
_MOST_TOGETHER = 12
"""Stages of a run whose parts are compared with functions of PyTorch."""

_TOLERANCE, _TOLERANCE_OF_ELEMENTS = 1e-4, 1e-5
"""Of the largest element, between ways. Sums in other orders may differ by more than functions of
every element alone, some of which are near to each other: GELU and its approximation."""


class TorchPeer:
    """`workload` in PyTorch on `threads` threads; calling it replaces what `outputs` gives.

    Stages are taken together where PyTorch has one call for them: sums of products with what
    follows them, and rows (softmax, layer norm and the like). Each of these steps is asked for in
    every way there is, and the fastest one that gives the same result is kept; the rest are
    element-wise operations and reductions. With `compile_secs`, what `torch.compile` makes of the
    whole in that time races with the steps. `like` has the steps and the ways to take, unraced:
    those of the same computation at other sizes. NoPeerError where PyTorch is not installed or has
    no way. Unless `copy`, it computes on the inputs where they lie.
    """

    def __init__(
        self,
        workload: Workload,
        inputs: Sequence[Array],
        threads: int,
        *,
        copy: bool = True,
        compile_secs: float = 0.0,
        like: Asked | None = None,
    ) -> None:
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
            t.name: torch.from_numpy(np.array(a, order="C", copy=copy or None))
            for t, a in zip(workload.inputs, inputs, strict=True)
        }
        self._choices: list[FastestPeer] = []
        self._plainly = PlainTorch(torch, self._now, self._inputs)
        self._with_multiply_adds = PlainTorch(torch, self._now, self._inputs, multiply_adds=True)
        self._calls: list[tuple[str, Value]] = []
        steps: list[Step] = []
        for run in self._together() if like is None else _as_before(workload, like.steps):
            wanted = None if like is None else like.steps[len(steps)].way
            self._calls.append((run[-1].name, self._chosen(run, wanted)))
            steps.append(Step(len(run), self._choices[-1].name))
        self._call: Callable[[], object] = self._all
        self._whole: FastestPeer | None = None
        if compile_secs:
            self._whole = self._compiled(
                threads, compile_secs, None if like is None else like.whole
            )
        is_steps = self._whole is None or self._whole.name == self._steps_way
        self.asked = Asked(tuple(steps), None if is_steps else self.way)

    @property
    def _steps_way(self) -> str:
        return "; ".join(choice.name for choice in self._choices)

    @property
    def way(self) -> str:
        """How it is asked for: the names of the steps' ways, or of the compiler's."""
        return self._steps_way if self._whole is None else self._whole.name

    @property
    def ways_secs(self) -> dict[str, float]:
        """Median seconds of each way of each step that was raced; and of all steps beside what a
        compiler made of them."""
        whole = {} if self._whole is None else dict(self._whole.secs)
        return {**secs_of(self._choices), **whole}

    @property
    def compiled_secs(self) -> dict[str, float]:
        """Median seconds of the steps, `eager`, and of the compiler's fastest, `compiled`, beside
        each other; empty where they did not race."""
        secs = {} if self._whole is None else dict(self._whole.secs)
        eager = secs.pop(self._steps_way, None)
        return {} if eager is None or not secs else {"eager": eager, "compiled": min(secs.values())}

    @property
    def dropped(self) -> dict[str, str]:
        """Ways that were tried and do not work, and why."""
        choices = [*self._choices, *([] if self._whole is None else [self._whole])]
        return {name: why for choice in choices for name, why in choice.dropped.items()}

    @property
    def call(self) -> Callable[[], object]:
        """One evaluation of the workload."""
        return self._call

    def _all(self) -> None:
        for name, step in self._calls:
            self._now[name] = step()

    def outputs(self) -> list[Array]:
        """What the last call gave, as NumPy arrays of the workload's shapes."""
        found = []
        for tensor in self._workload.output_tensors:
            values = self._now[tensor.name].expand(tensor.shape).numpy()
            found.append(np.ascontiguousarray(values, tensor.dtype.numpy))
        return found

    def _compiled(self, threads: int, compile_secs: float, wanted: str | None) -> FastestPeer:
        """The steps against what `torch.compile` makes of all of them; or only what is wanted."""
        outputs = self._workload.outputs
        self._all()
        expected = [self._now[name].clone() for name in outputs]

        def keeping(way: Way) -> Way:
            def prepare() -> Value:
                call = way.prepare()
                return lambda: self._now.update(zip(outputs, call(), strict=True))

            return Way(way.name, prepare)

        def check(_: object) -> str | None:
            if wanted is not None:
                return None
            found = (self._now[name] for name in outputs)
            problems = map(_difference, found, expected)
            return next((problem for problem in problems if problem is not None), None)

        has_products = any(map(_multiplies, self._workload.stages))
        modes = MODES if has_products else MODES[:1]  # there are no others to tune for
        made = compiled_ways(self._workload, self._now, threads, compile_secs, modes)
        ways = [Way(self._steps_way, lambda: self._all)]
        ways += map(keeping, made)
        choice = choose([way for way in ways if wanted in (None, way.name)], check)
        self._call = choice.call
        return choice

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
        """The parts of a run that are steps: as few as there are functions of PyTorch for, and what
        is left in one step, if nobody else reads what lies between."""
        if not run:
            return
        self._evaluate(run)
        for part in self._parts(run):
            if self._read_elsewhere({s.name for s in part[:-1]}, part):
                yield from ([stage] for stage in part)
            else:
                yield part

    def _evaluate(self, run: Sequence[Stage]) -> None:
        """Every stage's values, for comparisons, where there is a plain way of all."""
        try:
            for stage in run:
                self._now[stage.name] = self._plainly.stage(stage)()
        except NoPeerError:
            return

    def _parts(self, run: list[Stage]) -> list[list[Stage]]:
        if len(run) < 2 or len(run) > _MOST_TOGETHER or self._is_a_function(run):
            return [run]
        for length in range(len(run) - 1, 0, -1):
            for first in range(len(run) - length + 1):
                last = first + length
                if self._is_a_function(run[first:last]):
                    before = self._parts(run[:first]) if first else []
                    after = self._parts(run[last:]) if last < len(run) else []
                    return [*before, run[first:last], *after]
        return [run]

    def _is_a_function(self, part: list[Stage]) -> bool:
        """Whether a function of PyTorch gives the values of these stages."""
        names = {stage.name for stage in part}
        if not names <= self._now.keys() or self._read_elsewhere(names - {part[-1].name}, part):
            return False
        expected = self._now[part[-1].name]
        for way in self._other_ways(part) if part[-1].tensor.dtype.is_float else []:
            call, result, _ = prepared(way)
            if call is not None and _difference(result, expected, _tolerance(part)) is None:
                return True
        return False

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
        last: list[int | None] = [len(stage.axes) - 1]
        channels = last if form is None else [form.channel_axis]
        image = convolution_form(stage, promoted=True)
        if image is not None:
            channels.append(image.channel_axis)
        found = (epilogue_form(follows, stage.name, c) for c in channels if c is not None)
        return next((epilogue for epilogue in found if epilogue is not None), None)

    # Choosing among ways.

    def _chosen(self, stages: list[Stage], wanted: str | None = None) -> Value:
        """The fastest way of a step. The plain one comes first; the others must agree with it. With
        `wanted` that way and no other, whatever it gives."""
        ways = [self._plain(stages, self._plainly)]
        if stages[-1].tensor.dtype.is_float:
            if any(map(_adds_a_product, stages)):
                ways.append(self._plain(stages, self._with_multiply_adds, ", addcmul"))
            ways += self._other_ways(stages)
        if len(stages) == 1:
            ways += self._step_ways(stages[0])
        ways = list({way.name: way for way in reversed(ways)}.values())[::-1]
        expected: list[Any] = []
        tolerance = _tolerance(stages)

        def check(result: Any) -> str | None:
            if wanted is not None:
                return None
            if not expected:
                expected.append(result.clone())
                return None
            return _difference(result, expected[0], tolerance)

        if wanted is not None:
            ways = [way for way in ways if way.name == wanted]
        choice = choose(ways, check)
        guesses = {way.name for way in self._function_ways(stages)} if choice.dropped else set()
        dropped = {name: why for name, why in choice.dropped.items() if name not in guesses}
        self._choices.append(replace(choice, dropped=dropped))
        self._now[stages[-1].name] = choice.call()
        return choice.call

    def _step_ways(self, stage: Stage) -> list[Way]:
        """The whole result for each value of a reduced axis: temporaries stay in the caches. Of a
        plain copy, one into new memory."""
        if isinstance(stage.body, Load) and stage.is_elementwise:
            value = self._plainly.value(stage.body, stage.axes)
            whole = stage.tensor.shape
            return [Way("contiguous", lambda: lambda: value().expand(whole).contiguous())]
        if not isinstance(stage.kind, Reduction) or len(stage.kind.axes) != 1 or not stage.axes:
            return []
        reducer, (axis,) = stage.kind.reducer, stage.kind.axes
        if reducer not in REDUCE:
            return []
        if axis.extent > _MOST_STEPS or _multiplies(stage):
            return []
        function = getattr(self._torch, BINARY[reducer.op])
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

    def _plain(self, stages: list[Stage], plainly: PlainTorch, said: str = "") -> Way:
        """Stage by stage."""

        def prepare() -> Value:
            made: list[tuple[str, Value]] = []
            try:
                for stage in stages:
                    made.append((stage.name, plainly.stage(stage)))
                    self._now[stage.name] = made[-1][1]()
            except NoPeerError as error:
                raise ValueError(str(error)) from error
            if len(made) == 1:
                return made[0][1]

            def all_of_them() -> Any:
                for name, step in made:
                    self._now[name] = step()
                return self._now[made[-1][0]]

            return all_of_them

        return Way(", ".join(dict.fromkeys(map(_plain_name, stages))) + said, prepare)

    def _other_ways(self, stages: list[Stage]) -> list[Way]:
        first = stages[0]
        if _is_convolution(first):
            return [*self._convolution_ways(stages), *self._pointwise_ways(stages)]
        plan = contraction_of(first)
        if plan is None and len(stages) == 1 and first.tensor.dtype.is_float:
            plan = recognise(first, gain=1)  # whose factors are views: windows of one, perhaps
        if plan is not None and (len(stages) == 1 or _multiplies(first)):
            product = self._product_ways(stages, plan)
            shape = first.tensor.shape
            if plan.stage.tensor.shape != shape:  # the plan has cut an axis in two
                product = [_then(way, lambda y: y.reshape(shape)) for way in product]
            product += self._convolution_ways(stages)
            if _multiplies(first) or product:
                named = torch_einsum_ways(first, self._value_of) if len(stages) == 1 else ()
                return [*product, *named]
        return self._function_ways(stages)

    def _function_ways(self, stages: list[Stage]) -> list[Way]:
        """PyTorch's functions that a run of stages may be, by shapes and indices alone."""
        run = {stage.name for stage in stages}
        read = [load for stage in stages for load in loads(stage.body)]
        known = {load.tensor for load in read} - run
        names = [name for name in self._workload.tensors if name in known]  # as declared
        operands = [(self._value_of(name), self._workload.tensors[name].shape) for name in names]
        constants = [
            float(node.value)
            for stage in stages
            for node in walk(stage.body)
            if isinstance(node, Const)
        ]
        reduced = dict.fromkeys(
            tuple(sorted(a.extent for a in stage.reduce_axes))
            for stage in stages
            if stage.is_reduction
        )
        shape, given = stages[-1].tensor.shape, self._now.get(stages[-1].name)
        ways = row_ways(StageRun(operands, shape, constants, list(reduced), given))
        form = pool_form(stages[0])
        if form is not None:
            ways += pool_ways(form, self._value_of(form.data))
        stencil = stencil_form(stages[0]) if len(stages) == 1 else None
        if stencil is not None:
            ways += stencil_ways(stencil, self._value_of(stencil.data))
        if len(stages) == 1:
            ways += torch_einsum_ways(stages[0], self._value_of)
        return ways

    def _value_of(self, name: str) -> Value:
        return partial(self._now.__getitem__, name)

    def _epilogue_of(
        self, stages: list[Stage], shaped: Callable[[Any], Any]
    ) -> ProductEpilogue | None:
        """What follows the first of `stages`; `shaped` gives a tensor to add the product's shape.
        None if a tensor of it is not there yet."""
        if len(stages) == 1:
            return ProductEpilogue()
        form = self._epilogue(*stages)
        assert form is not None
        if any(name is not None and name not in self._inputs for name in (form.bias, form.added)):
            return None
        bias = None if form.bias is None else self._now[form.bias]
        added = None if form.added is None else shaped(self._now[form.added])
        return ProductEpilogue(bias, added, form.activation)

    def _convolution_ways(self, stages: list[Stage]) -> list[Way]:
        """As the library's convolution, in each form that it is one in."""
        forms = [convolution_form(stages[0], promoted=promoted) for promoted in (False, True)]
        plain, promoted = forms
        ways = [] if plain is None else self._ways_of(stages, plain)
        if promoted is not None and promoted != plain:
            found = self._ways_of(stages, promoted)
            said = "" if plain is None else "with one more axis, "
            ways += [_then(way, lambda y: y, said) for way in found]
        return ways

    def _ways_of(self, stages: list[Stage], form: ConvolutionForm) -> list[Way]:
        if form.weight not in self._inputs:
            return []
        whole = self._value_of(form.data)
        image, kernel = form.image(whole()), form.kernel(self._now[form.weight])
        how, around = library_convolution(form, image.shape[2:], kernel.shape[2:])
        outer = [form.output_order.index(place) for place in range(len(form.output_order))]
        epilogue = self._epilogue_of(
            stages, lambda added: added.permute(outer).reshape(form.output_shape)
        )
        if epilogue is None:
            return []
        if form.data in self._inputs and image.data_ptr() == whole().data_ptr() and around == (
            (0, 0),) * len(around):  # fmt: skip

            def read() -> Any:
                return image
        else:

            def read() -> Any:
                return framed(form.image(whole()), around)

        constant = self._inputs[form.weight].constant
        found = convolution_ways(read, kernel, how, epilogue, constant=constant)
        ways = [_then(way, form.unfolded) for way in found]
        if image.ndim == 3 and not form.transposed:  # as an image of one line
            lifted = epilogue
            if epilogue.added is not None:
                lifted = ProductEpilogue(
                    epilogue.bias, epilogue.added.unsqueeze(2), epilogue.activation
                )
            found = convolution_ways(
                lambda: read().unsqueeze(2), kernel.unsqueeze(2), how.of_a_line, lifted,
                constant=constant,
            )  # fmt: skip
            ways += [
                _then(way, lambda y: form.unfolded(y.squeeze(2)), "as an image, ") for way in found
            ]
        return ways

    def _pointwise_ways(self, stages: list[Stage]) -> list[Way]:
        """A convolution whose windows have one element as the product that it is."""
        (first, *_), zero = stages, affine(0)
        single = {axis.name: zero for axis in first.reduce_axes if axis.extent == 1}
        rest = tuple(axis for axis in first.reduce_axes if axis.name not in single)
        if not single or not rest:
            return []
        body = substitute(first.body, single)
        plan = recognise(replace(first, body=body).reducing_over(rest), gain=1)
        if plan is None or plan.stage.tensor.shape != first.tensor.shape:
            return []
        return self._product_ways(stages, plan)

    def _product_ways(self, stages: list[Stage], plan: Contraction) -> list[Way]:
        """Ways of a product of two matrices, or stacks of them, that are views of inputs; the left
        one may also be what an earlier stage gave."""
        product = product_form(plan)
        if product is None:
            return []
        a = self._view(product.left, product.left_axes, product.left_shape)
        b = self._view(product.right, product.right_axes, product.right_shape)
        if len(stages) == 1 and (a is None or b is None) and len(product.left_shape) == 3:
            return self._stacked_ways(product)
        left: Any = a if a is not None else self._reread(product)
        in_order = product.back == sorted(product.back)
        if left is None or (len(stages) > 1 and not in_order):
            return []
        if b is None:
            return self._made_ways(product, left) if len(stages) == 1 else []
        shape = product.shape
        epilogue = self._epilogue_of(stages, lambda added: added.reshape(shape))
        if epilogue is None or (epilogue.bias is not None and epilogue.bias.shape != shape[-1:]):
            return []
        y = self._torch.empty(shape, dtype=b.dtype)
        weight = product.right
        constant = isinstance(weight, Load) and self._inputs[weight.tensor].constant
        ways = product_ways(left, b, y, epilogue, constant=constant)
        if in_order and shape == plan.stage.tensor.shape:
            return ways
        return [_then(way, product.unfolded) for way in ways]

    def _made_ways(self, product: ProductForm, left: Any) -> list[Way]:
        """Ways of a product whose right matrix is made in every call."""
        if len(product.right_shape) != 2:
            return []
        value = self._plainly.value(product.right, product.right_axes)
        extents = tuple(a.extent for a in product.right_axes)
        b = value().expand(extents).reshape(product.right_shape).clone()
        y = self._torch.empty(product.shape, dtype=b.dtype)

        def made(way: Way) -> Way:
            def prepare() -> Value:
                call = way.prepare()

                def make() -> Any:
                    b.copy_(value().expand(extents).reshape(product.right_shape))
                    return product.unfolded(call())

                return make

            return Way(f"made before, {way.name}", prepare)

        return [made(way) for way in product_ways(left if callable(left) else lambda: left, b, y)]

    def _reread(self, product: ProductForm) -> Value | None:
        """The left matrix as it is in each call; None for a stack of them."""
        if len(product.left_shape) != 2:
            return None
        value = self._plainly.value(product.left, product.left_axes)
        extents = tuple(a.extent for a in product.left_axes)
        return lambda: value().expand(extents).reshape(product.left_shape)

    def _stacked_ways(self, product: ProductForm) -> list[Way]:
        """Stacks of matrices that are no single stack in memory: heads between rows and columns."""
        a = self._plainly.value(product.left, product.left_axes)
        b = self._plainly.value(product.right, product.right_axes)
        full_a = tuple(x.extent for x in product.left_axes)
        full_b = tuple(x.extent for x in product.right_axes)
        return stack_ways(
            lambda: a().expand(full_a).reshape(product.left_stacks),
            lambda: b().expand(full_b).reshape(product.right_stacks),
            product.unfolded,
        )

    def _view(self, node: Scalar, axes: tuple[Axis, ...], shape: tuple[int, ...]) -> Any | None:
        """A factor as a view of an input that stays as it is; None if it takes work."""
        if not isinstance(node, Load) or node.tensor not in self._inputs:
            return None
        whole = self._now[node.tensor]
        try:
            part = self._plainly.read(node, axes)()
            folded = part.expand(tuple(a.extent for a in axes)).view(shape)
        except RuntimeError:  # no view has this shape
            return None
        shared = folded.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        return folded if shared else None


def _as_before(workload: Workload, like: Sequence[Step]) -> Iterator[list[Stage]]:
    stages = iter(workload.stages)
    for step in like:
        yield [next(stages) for _ in range(step.stages)]


def _is_convolution(stage: Stage) -> bool:
    return stage.tensor.dtype.is_float and convolution_form(stage) is not None


def _multiplies(stage: Stage) -> bool:
    """Whether it is a product of matrices, or of one and a vector, or a convolution."""
    if not stage.tensor.dtype.is_float:
        return False
    if convolution_form(stage) is not None:
        return True
    plan = contraction_of(stage)
    return plan is not None and bool(plan.rows or plan.columns)


def _adds_a_product(stage: Stage) -> bool:
    """Whether a sum in it has a product for an operand."""
    sums = [n for n in walk(stage.body) if isinstance(n, Binary) and n.op is BinaryOp.ADD]
    parts = [part for node in sums for part in (node.a, node.b)]
    return any(isinstance(part, Binary) and part.op is BinaryOp.MUL for part in parts)


def _plain_name(stage: Stage) -> str:
    if _multiplies(stage):
        return "torch.matmul of windows" if _is_convolution(stage) else "torch.matmul"
    match stage.kind:
        case Elementwise():
            return "element-wise"
        case Reduction(reducer):
            return f"torch.{REDUCE.get(reducer, '?')}"
        case _:
            assert_never(stage.kind)


def _then(way: Way, change: Callable[[Any], Any], said: str = "") -> Way:
    """`way`, with its result as `change` gives it."""

    def prepare() -> Value:
        call = way.prepare()
        return lambda: change(call())

    return Way(f"{said}{way.name}", prepare)


def _tolerance(stages: Sequence[Stage]) -> float:
    reduces = any(not stage.is_elementwise for stage in stages)
    return _TOLERANCE if reduces else _TOLERANCE_OF_ELEMENTS


def _difference(result: Any, right: Any, tolerance: float = _TOLERANCE) -> str | None:
    """What is wrong with `result`; NaN is. Both are tensors."""
    if result.shape != right.shape:
        return f"gives the shape {tuple(result.shape)}"
    if not right.numel():
        return None
    scale = float(right.abs().max()) or 1.0
    off = float((result - right).abs().max()) / scale
    if off <= tolerance:
        return None
    return f"gives another result: off by {off:.3g} of the largest element"
