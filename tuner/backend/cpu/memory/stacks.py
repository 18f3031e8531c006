"""Stacks of checked calls: of known size, between guard pages, filled before each use."""

from __future__ import annotations

from dataclasses import dataclass

from .fills import Fill
from .guarded import Flush, GuardedBuffer, guarded

STACK_BYTES = 256 << 10
"""The stack that a kernel may use, as promised in `docs/c_abi.md`.

Generated code has its buffers in the workspace; only a few buffers of up to 16 KiB and spilled
registers are on the stack.
"""


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stack of the caller, and the stack that all threads' shares use in sequence."""

    caller: GuardedBuffer
    thread: GuardedBuffer

    def poison(self, fill: Fill) -> None:
        """Fill both stacks."""
        for stack in (self.caller, self.thread):
            fill.into(stack.view())


def build_stacks() -> Stacks:
    """Return two stacks of `STACK_BYTES`, which are never unmapped."""
    names = ("the stack", "a thread's stack")
    return Stacks(*(guarded(name, STACK_BYTES, Flush.LEFT) for name in names))
