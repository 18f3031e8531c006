"""A failing computation made smaller while it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .computation import (
    And,
    Bin,
    Cast,
    Computation,
    IxConst,
    IxTest,
    IxValue,
    IxVar,
    Not,
    Num,
    Or,
    Read,
    Stage,
    Un,
    ValueTest,
    Where,
    children,
    names_in,
    parts,
    reads,
    with_child,
)

_VALUES = (Num, Read, IxValue, Un, Bin, Cast, Where)
_TESTS = (IxTest, ValueTest, And, Or, Not)


def shrunk(
    computation: Computation, fails: Callable[[Computation], bool], secs: float = 30.0
) -> Computation:
    """The smallest computation found within `secs` for which `fails` holds as it does for this."""
    until = time.monotonic() + secs
    going = True
    while going and time.monotonic() < until:
        going = False
        for smaller in _smaller(computation):
            if time.monotonic() > until:
                break
            if fails(smaller):
                computation, going = smaller, True
                break
    return computation


def _smaller(computation: Computation) -> Iterator[Computation]:
    stages = computation.stages
    for n, stage in enumerate(stages):
        if len(stages) > 1 and all(r.tensor != stage.name for s in stages for r in reads(s.body)):
            yield _tidied(stages[:n] + stages[n + 1 :], computation)
    for n, stage in enumerate(stages):
        for smaller in _smaller_stages(stage):
            yield _tidied((*stages[:n], smaller, *stages[n + 1 :]), computation)


def _tidied(stages: tuple[Stage, ...], before: Computation) -> Computation:
    read = {r.tensor for s in stages for r in reads(s.body)}
    return Computation(tuple(t for t in before.inputs if t.name in read), stages)


def _smaller_stages(stage: Stage) -> Iterator[Stage]:
    for body in _smaller_nodes(stage.body):
        kept = tuple((n, e) for n, e in stage.reduce_axes if n in names_in(body))
        yield replace(stage, body=body, reduce_axes=kept, reducer=stage.reducer if kept else "")
    for what in ("axes", "reduce_axes"):
        axes = getattr(stage, what)
        for n, (name, extent) in enumerate(axes):
            for less in {1, 2, extent // 2, extent - 1} if extent > 1 else ():
                if 1 <= less < extent:
                    changed = (*axes[:n], (name, less), *axes[n + 1 :])
                    if what == "axes":
                        yield replace(stage, axes=changed)
                    else:
                        yield replace(stage, reduce_axes=changed)


def _smaller_nodes(node: Any) -> Iterator[Any]:
    """`node` with something in it replaced by less, larger steps first."""
    if isinstance(node, _VALUES):
        below = [p for p in parts(node) if p is not node and isinstance(p, _VALUES)]
        yield from (p for p in below if p.dtype == node.dtype)
        if not isinstance(node, Num):
            yield Num(1 if node.dtype[0] in "iu" else 1.0, node.dtype)
    elif isinstance(node, _TESTS):
        yield from (p for p in parts(node) if p is not node and isinstance(p, _TESTS))
        if not isinstance(node, IxTest):
            names = names_in(node)
            yield from (IxTest(">=", IxVar(name), IxConst(1)) for name in names[:1])
    else:  # an index
        yield from (p for p in children(node) if not isinstance(p, _VALUES))
    for child in children(node):
        for smaller in _smaller_nodes(child):
            yield with_child(node, child, smaller)
