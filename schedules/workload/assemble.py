"""Collect output tensors and the stages that compute them into one computation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, runtime_checkable

from ..algebra.affine import fresh
from ..algebra.scalar import Load, Scalar, Select, children, loads, rename_tensors
from ..errors import WorkloadError
from .computation import Computation
from .tensors import Stage, Tensor
from .validate import validate


@runtime_checkable
class TensorSource(Protocol):
    """A tensor of a front end, compared by identity: two objects may have the same name.

    The last of `stages` writes the tensor; the earlier ones were split off from its expression. An
    input has no stages. `reads` are the tensors in the expression of the user. `stages` may read
    fewer tensors, because simplification can remove reads. A front end that makes up a name marks
    it with a number, as in `sum@3`; the marks are unique, and are removed from the computation.
    """

    @property
    def name(self) -> str: ...
    @property
    def tensor(self) -> Tensor: ...
    @property
    def stages(self) -> tuple[Stage, ...]: ...
    @property
    def reads(self) -> Sequence[TensorSource]: ...


@runtime_checkable
class ArraySource(Protocol):
    """An array of a front end that is no tensor yet."""

    def tensors_of(self, outputs: Sequence[Output]) -> Sequence[TensorSource]:
        """Return the tensors of `outputs`, of which this array is one."""


Output: TypeAlias = TensorSource | ArraySource


def assembled(
    outputs: Sequence[Output], inputs: Sequence[TensorSource] | None, name: str
) -> Computation:
    """Return the computation that computes `outputs`. `inputs` are its arguments in order; by
    default, in order of first use."""
    return _of_tensors(_tensors(outputs), inputs, name)


def _tensors(outputs: Sequence[Output]) -> Sequence[TensorSource]:
    for output in outputs:
        if not isinstance(output, TensorSource | ArraySource):
            raise WorkloadError(
                "an output must be an array or a result of compute; got an object of type"
                f" {type(output).__name__} (x[1:2, 3] is an array, the element x[1, 3] is not)",
                code="bad_node",
            )
        if isinstance(output, ArraySource):
            return output.tensors_of(outputs)
    return [output for output in outputs if not isinstance(output, ArraySource)]


def _of_tensors(
    outputs: Sequence[TensorSource], inputs: Sequence[TensorSource] | None, name: str
) -> Computation:
    order = _ordered(outputs)
    placeholders = [t for t in order if not t.stages]
    computed = [t for t in order if t.stages]
    for output in outputs:
        if not output.stages:
            raise WorkloadError(
                f"output {output.name!r} is an input; outputs are computed", code="unknown_tensor"
            )
    arguments = placeholders if inputs is None else _declared(inputs, placeholders)
    made_up = _names_without_marks([*arguments, *computed], {t.name for t in (*order, *arguments)})
    taken = {made_up.get(t.name, t.name) for t in (*order, *arguments)}
    stages = _with_unique_names(computed, made_up, taken)
    names = tuple(made_up.get(t.name, t.name) for t in outputs)
    tensors = tuple(replace(t.tensor, name=made_up.get(t.name, t.name)) for t in arguments)
    computation = Computation(tensors, stages, names, name)
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
        first_use = _first_uses(tensor.stages)
        used = [by_name[n] for n in first_use if n in by_name]
        # An input remains an argument even if simplification removed all of its reads.
        used += [t for t in tensor.reads if t.name not in first_use]
        pending.extend((t, False) for t in reversed(used))
    return order


def _first_uses(stages: Sequence[Stage]) -> list[str]:
    """Return the names of the tensors that `stages` read, in order of first use.

    An index that is data is used where it is looked up, and not where it is tested before that.
    """
    return list(dict.fromkeys(load.tensor for stage in stages for load in _uses(stage.body)))


def _uses(node: Scalar) -> Iterator[Load]:
    """Yield every read in `node`, left to right, except tests of indices that are data."""
    if isinstance(node, Select):
        values = (*loads(node.on_true), *loads(node.on_false))
        looked_up = {inner for load in values for inner in loads(load)[1:]}
        yield from (load for load in _uses(node.cond) if load not in looked_up)
        yield from _uses(node.on_true)
        yield from _uses(node.on_false)
    else:
        if isinstance(node, Load):
            yield node
        for child in children(node):
            yield from _uses(child)


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


_MARK = re.compile("@[0-9]+")


def _names_without_marks(tensors: list[TensorSource], taken: set[str]) -> dict[str, str]:
    """Return a name that is not in use for every tensor whose name is made up."""
    found: dict[str, str] = {}
    used = set(taken)
    for tensor in tensors:
        if _MARK.search(tensor.name):
            found[tensor.name] = fresh(_MARK.sub("", tensor.name), used)
            used.add(found[tensor.name])
    return found


def _with_unique_names(
    computed: list[TensorSource], made_up: Mapping[str, str], taken: set[str]
) -> tuple[Stage, ...]:
    """Return the stages of all tensors, with the names `made_up` in place of marked ones. If the
    name of a split-off stage is in use, a number is appended to it."""
    stages: list[Stage] = []
    used = set(taken)
    for tensor in computed:
        names = dict(made_up)
        for stage in tensor.stages[:-1]:
            names[stage.name] = fresh(_MARK.sub("", stage.name), used)
            used.add(names[stage.name])
        for stage in tensor.stages:
            body = rename_tensors(stage.body, names)
            new = replace(stage.tensor, name=names.get(stage.name, stage.name))
            stages.append(replace(stage, tensor=new, body=body))
    return tuple(stages)
