"""Stacks of checked calls: of known size, between guard pages, filled before each use."""

from __future__ import annotations

from dataclasses import dataclass

from .fills import Fill
from .guarded import Flush, GuardedBuffer, guarded

STACK_BYTES = 256 << 10
"""The stack that a kernel may use, as `docs/c_abi.md` promises. Generated code keeps buffers in the
workspace; only a few of 16 KiB and spilled registers are on the stack."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """The caller's stack, and the one that all threads' shares use in turn."""

    caller: GuardedBuffer
    thread: GuardedBuffer

    def poison(self, fill: Fill) -> None:
        """Fill both."""
        for stack in (self.caller, self.thread):
            fill.into(stack.view())


def build_stacks() -> Stacks:
    """Two stacks of `STACK_BYTES`, never unmapped."""
    names = ("the stack", "a thread's stack")
    return Stacks(*(guarded(name, STACK_BYTES, Flush.LEFT) for name in names))
