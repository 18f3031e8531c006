"""The stacks that checked calls run on: of known size, between guards, filled before each use."""

from __future__ import annotations

from dataclasses import dataclass

from .fills import Fill
from .guarded import Flush, GuardedBuffer, guarded

STACK_BYTES = 256 << 10
"""What a kernel may use of a thread's stack: `docs/c_abi.md` promises it. Generated code has its
buffers in the workspace; a few of 16 KiB and spilled registers are all that comes to lie here."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """The caller's stack, and the one that threads of a parallel region use in turn."""

    caller: GuardedBuffer
    thread: GuardedBuffer

    def poison(self, fill: Fill) -> None:
        """Fill both."""
        for stack in (self.caller, self.thread):
            fill.into(stack.view())


def build_stacks() -> Stacks:
    """Two stacks of `STACK_BYTES`; never given back."""
    names = ("the stack", "a thread's stack")
    return Stacks(*(guarded(name, STACK_BYTES, Flush.LEFT) for name in names))
