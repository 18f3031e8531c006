"""Stacks for checked calls. They are between guard pages and are filled before each use."""

from __future__ import annotations

from dataclasses import dataclass

from ....process import linux
from .fills import Fill
from .guarded import Flush, GuardedBuffer, guarded

STACK_BYTES = 256 << 10
"""The size in bytes of the stack that a kernel may use, as promised in `docs/c_abi.md`.

It is enough for a few buffers of up to 16 KiB and spilled registers. All other buffers are in the
workspace.
"""


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stack of the caller, and one stack on which the threads' shares of a region run in
    sequence."""

    caller: GuardedBuffer
    thread: GuardedBuffer

    def populate(self) -> None:
        """Map all pages now. Otherwise each page is mapped when it is first written."""
        for stack in (self.caller, self.thread):
            linux.populate(stack.start, stack.pages_bytes)

    def poison(self, fill: Fill) -> None:
        for stack in (self.caller, self.thread):
            fill.into(stack.view())


def build_stacks() -> Stacks:
    """Return two stacks of `STACK_BYTES`, which are never unmapped."""
    names = ("the stack", "a thread's stack")
    return Stacks(*(guarded(name, STACK_BYTES, Flush.LEFT) for name in names))
