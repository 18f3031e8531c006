"""A nest with the names of the source, for display only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.affine import fresh
from ..algebra.scalar import rename_tensors
from ..nest.editing import rename_all
from ..nest.loop_ir import Nest, buffers_allocated, loops
from ..trace import Trace
from ..workload.normalise import normal_form
from ..workload.workload import Workload
from .lower import clean, loop_name, plain_nest, start
from .origins import Origin, followed


@dataclass(frozen=True, slots=True)
class Readable:
    """A nest with the names of the source. `axes` maps each loop to the source name of the axis or
    buffer dimension over which it iterates."""

    nest: Nest
    origins: dict[str, Origin]
    axes: dict[str, str]


def readable(workload: Workload, trace: Trace) -> Readable:
    """Return the cleaned nest of `trace` with tensors and loops named as in `workload`.

    The name of a loop is its axis, followed by the suffixes of the steps that created it: `jio` is
    part of `j`. If there are several stages, the name of the stage precedes it. Raise ScheduleError
    if a step is illegal.
    """
    rewritten, rest = start(workload, trace)
    nest, origins = followed(plain_nest(rewritten), rest)
    nest = clean(nest)
    form = normal_form(named_like(rewritten, workload) if trace.rewrites else workload)
    tensors = {new: old for old, new in reversed(list(form.tensors.items()))}
    several = len(form.computation.stages) > 1
    axes = {
        loop_name(form.tensors[stage], new): f"{stage}.{axis}" if several else axis
        for (stage, axis), new in form.axes.items()
    }
    taken: set[str] = set()

    def unique(name: str) -> str:
        taken.add(name := fresh(name, taken))
        return name

    def words(name: str) -> str:
        # A copy for a stage is named after stage and tensor: `s0.i1.block`.
        return ".".join(tensors.get(word, word) for word in name.split("."))

    buffers = {b.name: unique(words(b.name)) for b in nest.argument_buffers}
    for buffer in buffers_allocated(nest.body):
        buffers[buffer.name] = unique(words(buffer.name))
    shown: dict[str, str] = {}
    walked: dict[str, str] = {}
    for loop in loops(nest.body):
        origin = origins[loop.var]
        root = axes.get(origin.root) or buffers[origin.root]
        shown[loop.var] = name = unique(f"{root}{origin.added}")
        walked[name] = root if origin.dim is None else f"axis {origin.dim} of {root}"
    named = Nest(
        tuple(replace(t, name=buffers[t.name]) for t in nest.inputs),
        tuple(replace(t, name=buffers[t.name]) for t in nest.outputs),
        rename_all(nest.body, shown, buffers),
        tuple(buffers[name] for name in nest.streamed),
    )
    return Readable(named, {name: origins[loop] for loop, name in shown.items()}, walked)


def named_like(rewritten: Workload, workload: Workload) -> Workload:
    """Return `rewritten`, a form of `workload`, with arguments named as in `workload`. Intermediate
    stages keep their names. A number is appended to a name that is in use."""
    mine, theirs = rewritten.arguments, workload.arguments
    names = {a.name: b.name for a, b in zip(mine, theirs, strict=True)}
    taken = set(names.values())
    for stage in rewritten.stages:
        if stage.name not in names:
            names[stage.name] = fresh(stage.name, taken)
            taken.add(names[stage.name])
    stages = tuple(
        replace(
            stage,
            tensor=replace(stage.tensor, name=names[stage.name]),
            body=rename_tensors(stage.body, names),
        )
        for stage in rewritten.stages
    )
    inputs = tuple(replace(t, name=names[t.name]) for t in rewritten.inputs)
    outputs = tuple(names[name] for name in rewritten.outputs)
    return replace(rewritten, inputs=inputs, stages=stages, outputs=outputs)
