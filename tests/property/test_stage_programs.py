"""Programs of several stages that read one another in any way: every schedule computes them."""

from __future__ import annotations

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import (
    CACHES,
    Pair,
    check_pair,
    random_setting,
    this_machine,
)
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.workload import Workload

AXES = "ijk"
MOST_POINTS = 4000


class Program:
    """A random program, written stage by stage in index notation."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.extents = {axis: rng.choice((1, 2, 3, 4, 5, 8, 16, 17, 33)) for axis in AXES}
        while self.extents["i"] * self.extents["j"] * self.extents["k"] > MOST_POINTS:
            self.extents[rng.choice(AXES)] = rng.choice((2, 3, 4))
        names = "ABC"[: rng.randint(1, 3)]
        self.inputs = {name: rng.sample(AXES, rng.randint(1, 3)) for name in names}
        self.axes_of = dict(self.inputs)
        """The axes of every tensor that a stage may read."""

    def workload(self) -> Workload:
        text = "; ".join(self.stage(f"S{n}") for n in range(self.rng.randint(3, 6)))
        dtype = self.rng.choice(("f32", "f32", "f32", "f64"))
        tensors = {
            name: (dtype, tuple(self.extents[axis] for axis in axes))
            for name, axes in self.inputs.items()
            if f"{name}[" in text
        }
        extents = {**self.extents, "z": 1}
        return from_notation(
            text,
            tensors,
            {axis: n for axis, n in extents.items() if re.search(rf"\b{axis}\b", text)},
        )

    def stage(self, name: str) -> str:
        """Return an elementwise stage or a reduction over some axes of what it reads."""
        every = sorted({axis for axes in self.axes_of.values() for axis in axes})
        more = self.rng.sample(every, self.rng.randint(0, len(every)))
        own = sorted({*self.rng.choice(list(self.axes_of.values())), *more})
        if self.rng.random() < 0.4:
            self.axes_of[name], body = own, self.value(own)
            return f"{name}[{','.join(own)}] = {body}"
        kept = self.rng.sample(own, self.rng.randint(0, len(own) - 1))
        body = self.value(own)
        if kept:
            self.axes_of[name] = kept
        operation = self.rng.choice(("+=", "+=", "max=", "min="))
        return f"{name}[{','.join(kept or 'z')}] {operation} {body}"

    def value(self, axes: list[str], depth: int = 0) -> str:
        read, kind = self.read(axes), self.rng.random()
        if depth > 2 or kind < 0.25 or read == "0.5":
            return read
        first = self.value(axes, depth + 1)
        if kind < 0.65:
            return f"({first} {self.rng.choice('+-*')} {self.value(axes, depth + 1)})"
        if kind < 0.8:
            return f"max({first}, 0.5)"
        if kind < 0.9 or len(axes) < 2:
            return f"where({read} > 0.5, {first}, 0.0)"
        one, other = self.rng.sample(axes, 2)
        return f"where({one} {self.rng.choice(('<=', '<', '>='))} {other}, {first}, 0.0)"

    def read(self, axes: list[str]) -> str:
        """Return a read of a tensor, mostly of an earlier stage, now and then of a part of it."""
        fitting = [name for name, own in self.axes_of.items() if set(own) <= set(axes)]
        stages = [name for name in fitting if name.startswith("S")]
        if not fitting:
            return "0.5"
        name = self.rng.choice(stages if stages and self.rng.random() < 0.6 else fitting)
        index = list(self.axes_of[name])
        if self.rng.random() < 0.12:
            place = self.rng.randrange(len(index))
            axis = index[place]
            last = self.extents[axis] - 1
            index[place] = self.rng.choice(("0", f"{axis}//2", f"{last}-{axis}"))
        return f"{name}[{','.join(index)}]"


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_any_schedule_of_any_program_of_stages_computes_it(seed: int) -> None:
    rng = random.Random(seed)
    try:
        workload = Program(rng).workload()
    except WorkloadError:  # a reduction whose body has only the axes that it keeps
        return
    threads, bits = rng.choice((1, 2)), rng.choice((128, 256, 512))
    trace = random_setting(rng, workload, this_machine(threads, bits, rng.choice(CACHES)))
    check_pair(Pair("knobs", workload, trace, threads, bits))
