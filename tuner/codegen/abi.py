"""The functions that a kernel NAME exports, and the memory that its callers must provide.

Programs that generate no code import this module too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """The memory that callers of a kernel's functions must provide, in bytes."""

    workspace_bytes: int
    constants: tuple[int, ...] = ()
    """The positions of constant inputs among the arguments. If it is empty, the kernel has one
    function, which uses only `workspace_bytes`."""
    packed_bytes: int = 0
    """Size of the packed constant inputs."""
    prepacked_workspace_bytes: int = 0
    """Size of the workspace of the function that computes from packed inputs."""


def prepack_symbol(symbol: str) -> str:
    """Return the name of the function that packs constant inputs."""
    return f"{symbol}_prepack"


def prepacked_symbol(symbol: str) -> str:
    """Return the name of the function that computes from packed constant inputs."""
    return f"{symbol}_prepacked"


def supported_symbol(symbol: str) -> str:
    """Return the name of the function that returns whether this CPU can run the kernel."""
    return f"{symbol}_supported"


def variant_symbol(symbol: str) -> str:
    """Return the name of the function that returns the name of the variant for this CPU."""
    return f"{symbol}_variant"
