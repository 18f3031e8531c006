"""Collect output tensors and the stages that compute them into one computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from ..algebra.affine import fresh
from ..algebra.scalar import loads, rename_tensors
from ..errors import WorkloadError
from .computation import Computation
from .tensors import Stage, Tensor
from .validate import validate


class TensorSource(Protocol):
    """A tensor of a front end, compared by identity: two objects may have the same name.

    The last of `stages` writes the tensor; the earlier ones were split off from its expression. An
    input has no stages. `reads` are the tensors in the expression of the user. `stages` may read
    fewer tensors, because simplification can remove reads.
    """

    @property
    def name(self) -> str: ...
    @property
    def tensor(self) -> Tensor: ...
    @property
    def stages(self) -> tuple[Stage, ...]: ...
    @property
    def reads(self) -> Sequence[TensorSource]: ...


def assembled(
    outputs: Sequence[TensorSource], inputs: Sequence[TensorSource] | None, name: str
) -> Computation:
    """Return the computation that computes `outputs`. `inputs` are its arguments in order; by
    default, in order of first use."""
    order = _ordered(outputs)
    placeholders = [t for t in order if not t.stages]
    computed = [t for t in order if t.stages]
    for output in outputs:
        if not output.stages:
            raise WorkloadError(
                f"output {output.name!r} is an input; outputs are computed", code="unknown_tensor"
            )
    arguments = placeholders if inputs is None else _declared(inputs, placeholders)
    stages = _with_unique_names(computed, {t.name for t in (*order, *arguments)})
    computation = Computation(
        tuple(t.tensor for t in arguments), stages, tuple(t.name for t in outputs), name
    )
    validate(computation)
    return computation


def _ordered(outputs: Sequence[TensorSource]) -> list[TensorSource]:
    """Return every tensor that the outputs need. A tensor follows the tensors that it reads; apart
    from that, the order is that of first use."""
    order: list[TensorSource] = []
    done: set[int] = set()
    pending = [(t, False) for t in reversed(outputs)]
    while pending:
        tensor, visited = pending.pop()
        if id(tensor) in done:
            continue
        if visited:
            done.add(id(tensor))
            order.append(tensor)
            continue
        pending.append((tensor, True))
        by_name = {t.name: t for t in tensor.reads}
        first_use = dict.fromkeys(ld.tensor for s in tensor.stages for ld in loads(s.body))
        used = [by_name[n] for n in first_use if n in by_name]
        # An input remains an argument even if simplification removed all of its reads.
        used += [t for t in tensor.reads if t.name not in first_use]
        pending.extend((t, False) for t in reversed(used))
    return order


def _declared(inputs: Sequence[TensorSource], found: list[TensorSource]) -> list[TensorSource]:
    for tensor in inputs:
        if tensor.stages:
            raise WorkloadError(
                f"input {tensor.name!r} is computed; inputs are placeholders", code="unknown_tensor"
            )
        if not any(tensor is t for t in found):
            raise WorkloadError(f"input {tensor.name!r} is never read", code="unused_tensor")
    for tensor in found:
        if not any(tensor is t for t in inputs):
            raise WorkloadError(
                f"{tensor.name!r} is read but missing in inputs="
                f"[{', '.join(t.name for t in inputs)}]",
                code="unknown_tensor",
            )
    return list(inputs)


def _with_unique_names(computed: list[TensorSource], taken: set[str]) -> tuple[Stage, ...]:
    """Return the stages of all tensors. If the name of a split-off stage is in use, a number is
    appended to it."""
    stages: list[Stage] = []
    used = set(taken)
    for tensor in computed:
        names: dict[str, str] = {}
        for stage in tensor.stages[:-1]:
            names[stage.name] = fresh(stage.name, used)
            used.add(names[stage.name])
        for stage in tensor.stages:
            body = rename_tensors(stage.body, names)
            new = replace(stage.tensor, name=names.get(stage.name, stage.name))
            stages.append(replace(stage, tensor=new, body=body))
    return tuple(stages)
