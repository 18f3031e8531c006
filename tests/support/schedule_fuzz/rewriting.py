"""Rewrites of a workload with arguments that are often sensible: steps by which a computation may
be written otherwise, each of which must be refused or mean the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice, product
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import REWRITES, Rewrite
from tilewright.schedules.workload.tensors import Stage
from tilewright.schedules.workload.workload import Workload

Array = npt.NDArray[Any]

_INTEGERS = (0, 1, 2, 3, 4, 5, 8)
_TUPLES = ((0,), (1,), (0, 1), (1, 2), (0, 2))
_PAIRS = (((0, 2),), ((1, 2),), ((0, 4),), ((0, 2), (1, 2)))


def steps_of(kind: type[Rewrite], form: Workload) -> Iterator[Rewrite]:
    """Yield rewrites of the kind with the names of every stage and of its axes, legal or not."""
    hints = get_type_hints(kind)
    for stage in form.stages:
        values = [_values(field.name, hints[field.name], stage) for field in fields(kind)]
        yield from (kind(*chosen) for chosen in product(*values))


def _values(name: str, hint: Any, stage: Stage) -> tuple[Any, ...]:
    if name == "stage":
        return (stage.name,)
    if hint is str:
        return tuple(axis.name for axis in stage.all_axes)
    if hint is bool:
        return (False, True)
    if hint is int:
        return _INTEGERS
    return _TUPLES if hint == tuple[int, ...] else _PAIRS


def legal_steps(
    rng: random.Random,
    form: Workload,
    most: int = 3,
    kinds: Sequence[type[Rewrite]] = tuple(REWRITES),
) -> Iterator[Rewrite]:
    """Yield up to `most` legal rewrites of each of the `kinds`. Any exception but ScheduleError is
    a failure of the rewrites."""
    for kind in kinds:
        every = list(islice(steps_of(kind, form), 2000))
        found = 0
        for step in rng.sample(every, min(len(every), 40)):
            try:
                step.rewrite(form)
            except ScheduleError:
                continue
            yield step
            found += 1
            if found == most:
                break


def small_inputs(rng: random.Random, form: Workload) -> list[Array]:
    """Small integers, of which every type has most, and zeros of both signs."""
    draw = np.random.default_rng(rng.getrandbits(32))
    found: list[Array] = []
    for tensor in form.inputs:
        dtype = tensor.dtype
        values = draw.integers(-4 if dtype.is_signed else 0, 5, tensor.shape)
        if not dtype.is_float:
            found.append(values.astype(dtype.numpy))
            continue
        numbers = np.where(draw.random(tensor.shape) < 0.1, -0.0, values.astype(np.float32))
        if dtype.numpy == np.uint16:  # bf16, as its bits
            found.append((numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
        else:
            found.append(numbers.astype(dtype.numpy))
    return found


def check_step(form: Workload, step: Rewrite, inputs: list[Array]) -> tuple[Workload, list[Array]]:
    """Return the result of `step`, which is legal, and `inputs` in its shapes. AssertionError if
    the values differ.

    Rewrites that do not keep all operations may leave out products with zeros, so elements that are
    not finite are compared for the others only.
    """
    made = step.rewrite(form)
    shaped = [a.reshape(t.shape) for a, t in zip(inputs, made.inputs, strict=True)]
    with np.errstate(all="ignore"):
        pairs = zip(evaluate(form, inputs), evaluate(made, shaped), strict=True)
        for before, after in pairs:
            one, other = before.reshape(-1), after.reshape(-1)
            if not step.keeps_operations:
                both = np.isfinite(one) & np.isfinite(other)
                one, other = one[both], other[both]
            same = np.isclose(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)
            assert same.all(), f"{step}: {one[~same][:3]} became {other[~same][:3]}"
    return made, shaped


def again(step: Rewrite, made: Workload) -> Iterator[Rewrite]:
    """Yield the legal steps of the kind of `step`, with its numbers, in the result `made`: what two
    of them make may be too much alike."""
    numbers = [field.name for field in fields(step) if isinstance(getattr(step, field.name), int)]
    for other in steps_of(type(step), made):
        if all(getattr(other, name) == getattr(step, name) for name in numbers):
            try:
                other.rewrite(made)
            except ScheduleError:
                continue
            yield other
