"""A workload in PyTorch, step by step, in the fastest variant of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.workload.tensors import Stage
from tilewright.schedules.workload.workload import Workload

from ..forms.product import is_product
from ..variants import (
    ChosenVariants,
    FastestVariant,
    NoPeerError,
    PeerVariant,
    StepVariant,
    choose,
    variant_secs,
)
from .comparison import difference, tolerance
from .compiled import MODES, compiled_variants
from .partition import partitioned, repartitioned
from .plain import Value
from .step_variants import function_variants, step_variants
from .tensors import TorchTensors

Array = NDArray[Any]


class TorchPeer:
    """Computes `workload` in PyTorch on `threads` threads. Each call computes the outputs again.

    Stages form one step if PyTorch has one call for them: sums of products with their epilogue, and
    functions of rows (softmax, layer norm and similar). Every variant of a step is tried, and the
    fastest with the same result is chosen. If `compile_secs` is not 0, the code that
    `torch.compile` generates for the whole workload within that time is raced with the steps.
    `like` has the variants chosen for the same computation at other sizes, which are used without a
    race. Without `copy`, the computation uses the memory of `inputs`. Raise NoPeerError if PyTorch
    is not installed or cannot compute the workload.
    """

    def __init__(
        self,
        workload: Workload,
        inputs: Sequence[Array],
        threads: int,
        *,
        copy: bool = True,
        compile_secs: float = 0.0,
        like: ChosenVariants | None = None,
    ) -> None:
        try:
            import torch
        except ImportError as error:
            raise NoPeerError("PyTorch is not installed: pip install torch") from error
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._workload = workload
        self._tensors = TorchTensors.of(torch, workload, inputs, copy=copy)
        self._choices: list[FastestVariant] = []
        self._calls: list[tuple[str, Value]] = []
        steps: list[StepVariant] = []
        parts = partitioned(self._tensors) if like is None else repartitioned(workload, like.steps)
        for stages in parts:
            wanted = None if like is None else like.steps[len(steps)].variant
            self._calls.append((stages[-1].name, self._chosen(stages, wanted)))
            steps.append(StepVariant(len(stages), self._choices[-1].name))
        self._call: Callable[[], object] = self._call_steps
        self._whole: FastestVariant | None = None
        if compile_secs:
            wanted = None if like is None else like.whole
            self._whole = self._raced_with_compiler(threads, compile_secs, wanted)
        is_steps = self._whole is None or self._whole.name == self._steps_variant
        self.chosen = ChosenVariants(tuple(steps), None if is_steps else self.variant)

    @property
    def _steps_variant(self) -> str:
        return "; ".join(choice.name for choice in self._choices)

    @property
    def variant(self) -> str:
        """The names of the steps' variants, or the name of the compiler's variant."""
        return self._steps_variant if self._whole is None else self._whole.name

    @property
    def ways_secs(self) -> dict[str, float]:
        """Median seconds of each variant that was raced: of each step, and of all steps
        together."""
        whole = {} if self._whole is None else dict(self._whole.secs)
        return {**variant_secs(self._choices), **whole}

    @property
    def compiled_secs(self) -> dict[str, float]:
        """Median seconds of all steps, `eager`, and of the compiler's fastest variant, `compiled`;
        empty if they were not raced."""
        secs = {} if self._whole is None else dict(self._whole.secs)
        eager = secs.pop(self._steps_variant, None)
        return {} if eager is None or not secs else {"eager": eager, "compiled": min(secs.values())}

    @property
    def dropped(self) -> dict[str, str]:
        """Variants that do not work, with the reasons."""
        choices = [*self._choices, *([] if self._whole is None else [self._whole])]
        return {name: why for choice in choices for name, why in choice.dropped.items()}

    @property
    def call(self) -> Callable[[], object]:
        """One evaluation of the workload."""
        return self._call

    def _call_steps(self) -> None:
        for name, step in self._calls:
            self._tensors.values[name] = step()

    def outputs(self) -> list[Array]:
        """Return the results of the last call, as NumPy arrays of the workload's shapes."""
        arrays = []
        for tensor in self._workload.output_tensors:
            values = self._tensors.values[tensor.name].expand(tensor.shape).numpy()
            arrays.append(np.asarray(values, tensor.dtype.numpy, order="C"))
        return arrays

    def _raced_with_compiler(
        self, threads: int, compile_secs: float, wanted: str | None
    ) -> FastestVariant:
        """Race the steps with `torch.compile` of the whole workload, or return variant `wanted`
        unchecked."""
        outputs, values = self._workload.outputs, self._tensors.values
        self._call_steps()
        expected = [values[name].clone() for name in outputs]

        def keeping(variant: PeerVariant) -> PeerVariant:
            def prepare() -> Value:
                call = variant.prepare()
                return lambda: values.update(zip(outputs, call(), strict=True))

            return PeerVariant(variant.name, prepare)

        def check(_: object) -> str | None:
            if wanted is not None:
                return None
            problems = map(difference, (values[name] for name in outputs), expected)
            return next((problem for problem in problems if problem is not None), None)

        has_products = any(map(is_product, self._workload.stages))
        modes = MODES if has_products else MODES[:1]  # the other modes tune products only
        compiled = compiled_variants(self._workload, values, threads, compile_secs, modes)
        variants = [PeerVariant(self._steps_variant, lambda: self._call_steps)]
        variants += map(keeping, compiled)
        choice = choose([v for v in variants if wanted in (None, v.name)], check)
        self._call = choice.call
        return choice

    def _chosen(self, stages: list[Stage], wanted: str | None = None) -> Value:
        """Return the fastest variant of a step that agrees with the plain one, or variant `wanted`
        unchecked."""
        variants = step_variants(self._tensors, stages)
        expected: list[Any] = []
        allowed = tolerance(stages)

        def check(result: Any) -> str | None:
            if wanted is not None:
                return None
            if not expected:  # the plain variant comes first
                expected.append(result.clone())
                return None
            return difference(result, expected[0], allowed)

        if wanted is not None:
            variants = [variant for variant in variants if variant.name == wanted]
        choice = choose(variants, check)
        # A function that matches in shape but not in values is not reported.
        guesses = (
            {v.name for v in function_variants(self._tensors, stages)} if choice.dropped else set()
        )
        dropped = {name: why for name, why in choice.dropped.items() if name not in guesses}
        self._choices.append(replace(choice, dropped=dropped))
        self._tensors.values[stages[-1].name] = choice.call()
        return choice.call
