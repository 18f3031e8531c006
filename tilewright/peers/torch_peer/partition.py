"""Groups the stages of a workload into steps that PyTorch computes in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.schedules.workload.tensors import Stage
from tilewright.schedules.workload.workload import Workload

from ..forms.product import is_product
from ..variants import NoPeerError, StepVariant, prepared
from .comparison import difference, tolerance
from .step_variants import library_variants
from .tensors import TorchTensors

_MAX_COMPARED_STAGES = 12
"""The largest number of consecutive stages that are compared with functions of PyTorch."""


def partitioned(tensors: TorchTensors) -> Iterator[list[Stage]]:
    """Yield the stages in order, grouped by steps: a product with its epilogue, or other stages."""
    run: list[Stage] = []
    stages = list(tensors.workload.stages)
    while stages:
        stage = stages.pop(0)
        if not is_product(stage):
            run.append(stage)
            continue
        yield from _runs(tensors, run)
        run = []
        if stages and tensors.epilogue_form(stage, stages[0]) is not None:
            yield [stage, stages.pop(0)]
        else:
            yield [stage]
    yield from _runs(tensors, run)


def repartitioned(workload: Workload, steps: Sequence[StepVariant]) -> Iterator[list[Stage]]:
    """Yield the stages of `workload`, grouped like the stages that `steps` were chosen for."""
    stages = iter(workload.stages)
    for step in steps:
        yield [next(stages) for _ in range(step.stages)]


def _runs(tensors: TorchTensors, run: list[Stage]) -> Iterator[list[Stage]]:
    """Divide the consecutive stages `run` into as few steps as PyTorch's functions allow. Stages
    without such a function form one step, unless stages outside the step read their intermediate
    tensors."""
    if not run:
        return
    _evaluate(tensors, run)
    for part in _parts(tensors, run):
        if tensors.read_elsewhere({s.name for s in part[:-1]}, part):
            yield from ([stage] for stage in part)
        else:
            yield part


def _evaluate(tensors: TorchTensors, run: Sequence[Stage]) -> None:
    """Compute the stages by plain calls, for comparison, until one has no plain call."""
    try:
        for stage in run:
            tensors.values[stage.name] = tensors.plain.stage(stage)()
    except NoPeerError:
        return


def _parts(tensors: TorchTensors, run: list[Stage]) -> list[list[Stage]]:
    if len(run) < 2 or len(run) > _MAX_COMPARED_STAGES or _is_a_function(tensors, run):
        return [run]
    for length in range(len(run) - 1, 0, -1):
        for first in range(len(run) - length + 1):
            last = first + length
            if _is_a_function(tensors, run[first:last]):
                before = _parts(tensors, run[:first]) if first else []
                after = _parts(tensors, run[last:]) if last < len(run) else []
                return [*before, run[first:last], *after]
    return [run]


def _is_a_function(tensors: TorchTensors, part: list[Stage]) -> bool:
    """Return whether one function of PyTorch computes the values of these stages."""
    names = {stage.name for stage in part}
    last = part[-1]
    if not names <= tensors.values.keys() or tensors.read_elsewhere(names - {last.name}, part):
        return False
    expected = tensors.values[last.name]
    for variant in library_variants(tensors, part) if last.tensor.dtype.is_float else []:
        call, result, _ = prepared(variant)
        if call is not None and difference(result, expected, tolerance(part)) is None:
            return True
    return False
