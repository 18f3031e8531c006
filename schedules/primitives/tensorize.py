"""Tensorize: a loop that is run by one instruction of the table."""

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
    """Run a loop, with all that is in it, by one instruction (`tensorize` in TVM, `replace` with
    an `@instr` in Exo).

        for j in 0..16:                                ->    C[0..16] = vpdpbusd(C[0..16], ...)
            for k in 0..4: C[j] += A[k] * B[4*j + k]

    Legal for a serial loop that has the semantics of the instruction called `instruction`
    (`nest/instructions.py`), with operands that lie in memory as it takes them: pack them before.
    Code is generated for no target but those that have the instruction.
    """

    loop: str
    instruction: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the loop marked. ScheduleError: not serial, not what the instruction does,
        operands in another order."""
        place = serial_loop(nest, self.loop, self)
        marked = place.marked(RunByInstruction(self.instruction))
        check_instructions(marked, self)
        return marked


def check_target(nest: Nest, target: Target) -> None:
    """ScheduleError where a loop of `nest` is run by an instruction that `target` does not have."""
    for loop in loops(nest.body):
        if isinstance(loop.kind, RunByInstruction):
            form = BY_NAME[loop.kind.name].form_for(loop.extent)
            problem = f"{target.cpu} does not have it for {loop.extent} lanes"
            step = Tensorize(loop.var, loop.kind.name)
            require(form is not None and form.is_on(target.features), step, problem)


def check_instructions(nest: Nest, source: object) -> None:
    """ScheduleError of `source` unless every loop of `nest` that is run by an instruction is still
    what that does: what Tensorize proves, of loops that may have been changed since."""
    for loop in loops(nest.body):
        if not isinstance(loop.kind, RunByInstruction):
            continue
        around = ranges_of(loops_around(nest.body, loop))
        found = call_of(loop, loop.kind.name, buffers_in(nest), around)
        if isinstance(found, str):
            raise ScheduleError(source, f"{loop.var!r} cannot be {loop.kind.name}: {found}")
