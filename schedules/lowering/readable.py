"""A nest with the names its author used: for people to read, never for anything to rely on."""

from __future__ import annotations

import re
from dataclasses import replace

from ..algebra.affine import fresh
from ..algebra.scalar import rename_tensors
from ..nest.editing import rename_all
from ..nest.loop_ir import Allocate, For, Nest, walk
from ..workload.normalise import normal_form
from ..workload.workload import Workload

_LOOP = re.compile(r"(s\d+)\.([dr]\d+)([a-z]*)(.*)")
_BUFFER = re.compile(r"([is]\d+)(.*)", re.DOTALL)


def readable(nest: Nest, workload: Workload) -> Nest:
    """`nest` (of `workload`'s normal form) with tensors and loops named as `workload` does.

    A loop is its axis and what splitting added: `jio` is part of `j`; with several stages the
    stage stands before it.
    """
    form = normal_form(workload)
    tensors = {new: old for old, new in reversed(list(form.tensors.items()))}
    axes = axis_names(workload)
    several = len(form.computation.stages) > 1
    taken: set[str] = set()

    def buffer(name: str) -> str:
        match = _BUFFER.fullmatch(name)
        if match is None or match[1] not in tensors:
            return name
        return f"{tensors[match[1]]}{match[2]}"

    def loop(name: str) -> str:
        match = _LOOP.fullmatch(name)
        if match is None or (match[1], match[2]) not in axes:
            return buffer(name)
        stage, axis = axes[match[1], match[2]]
        return f"{stage}.{axis}{match[3]}{match[4]}" if several else f"{axis}{match[3]}{match[4]}"

    def unique(name: str) -> str:
        name = fresh(name, taken)
        taken.add(name)
        return name

    buffers: dict[str, str] = {}
    for argument in nest.argument_buffers:
        buffers[argument.name] = unique(buffer(argument.name))
    loops: dict[str, str] = {}
    for stmt in walk(nest.body):
        if isinstance(stmt, Allocate):
            buffers[stmt.buffer.name] = unique(buffer(stmt.buffer.name))
        elif isinstance(stmt, For):
            loops[stmt.var] = unique(loop(stmt.var))
    return Nest(
        tuple(replace(t, name=buffers[t.name]) for t in nest.inputs),
        tuple(replace(t, name=buffers[t.name]) for t in nest.outputs),
        rename_all(nest.body, loops, buffers),
        tuple(buffers[name] for name in nest.streamed),
    )


def axis_names(workload: Workload) -> dict[tuple[str, str], tuple[str, str]]:
    """Stage and axis as `workload` calls them, by their names in its normal form."""
    form = normal_form(workload)
    return {(form.tensors[t], new): (t, old) for (t, old), new in form.axes.items()}


def named_like(rewritten: Workload, workload: Workload) -> Workload:
    """A rewritten form of `workload` with its arguments called as in `workload`; stages between
    keep the names they have in the trace."""
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
