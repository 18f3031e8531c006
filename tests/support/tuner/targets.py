"""Targets without some instructions, and calls in assembly."""

from __future__ import annotations

import re

import pytest

from tilewright.schedules.target import Target
from tilewright.tuner.machine.native_target import detect

CALL = re.compile(r"^\s+(?:callq?|blr?|jmpq?)\s+(?!\.L)(\S+)", re.MULTILINE)
"""The calls in an assembly text, and jumps to other functions."""


def plain() -> Target:
    """This machine without an instruction for halves."""
    native = detect()
    if not native.triple.startswith("x86_64"):
        pytest.skip("needs an x86-64 machine")
    return Target(native.triple, "x86-64", (), 128, 16, native.caches, 1)
