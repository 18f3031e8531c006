"""Names and requirements of a kernel's functions, in a module that does not import code
generation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a kernel's entry points. `constants` are the positions of constant inputs;
    without them there is a single entry point, and only `workspace_bytes` is meaningful."""

    workspace_bytes: int
    constants: tuple[int, ...] = ()
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0


def prepack_symbol(symbol: str) -> str:
    """The function that packs constant inputs."""
    return f"{symbol}_prepack"


def prepacked_symbol(symbol: str) -> str:
    """The function that computes from packed constant inputs."""
    return f"{symbol}_prepacked"


def supported_symbol(symbol: str) -> str:
    """The function that says whether this CPU can run the kernel."""
    return f"{symbol}_supported"


def variant_symbol(symbol: str) -> str:
    """The function that returns the name of the variant that this CPU runs."""
    return f"{symbol}_variant"
