"""The primitive Tensorize: execute a loop by one instruction of `nest/instructions.py`."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ScheduleError, require
from ..nest.finding import buffers_in, loops_around, ranges_of
from ..nest.instructions import BY_NAME, call_of
from ..nest.loop_ir import Nest, RunByInstruction, loops
from ..target import Target
from .places import serial_loop
from .primitive import Primitive


@dataclass(frozen=True, slots=True)
class Tensorize(Primitive):
    """Execute a loop by one instruction (`tensorize` in TVM, `replace` with `@instr` in Exo).

        for j in 0..16:                                ->    C[0..16] = vpdpbusd(C[0..16], ...)
            for k in 0..4: C[j] += A[k] * B[4*j + k]

    Legal for a serial loop that equals the semantics of the instruction named `instruction`
    (`nest/instructions.py`). Operands must have the layout that the instruction requires, for
    example after packing. Code generation rejects targets without the instruction (`check_target`).
    """

    loop: str
    instruction: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the kind of the loop set."""
        place = serial_loop(nest, self.loop, self)
        marked = place.marked(RunByInstruction(self.instruction))
        check_instructions(marked, self)
        return marked


def check_target(nest: Nest, target: Target) -> None:
    """Raise ScheduleError if a loop of `nest` needs an instruction that `target` does not have."""
    for loop in loops(nest.body):
        if isinstance(loop.kind, RunByInstruction):
            form = BY_NAME[loop.kind.name].form_for(loop.extent)
            problem = f"{target.cpu} does not have it for {loop.extent} lanes"
            step = Tensorize(loop.var, loop.kind.name)
            require(form is not None and form.is_on(target.features), step, problem)


def check_instructions(nest: Nest, source: object) -> None:
    """Raise ScheduleError if a loop does not equal the instruction that executes it. This repeats
    the proof of Tensorize, because later steps may have changed the loop."""
    for loop in loops(nest.body):
        if not isinstance(loop.kind, RunByInstruction):
            continue
        around = ranges_of(loops_around(nest.body, loop))
        found = call_of(loop, loop.kind.name, buffers_in(nest), around)
        if isinstance(found, str):
            raise ScheduleError(source, f"{loop.var!r} cannot be {loop.kind.name}: {found}")
