"""What the functions of a kernel called NAME are called and what calling them takes, where programs
that generate no code can read it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """What a kernel's entries need. `constants` are the positions of constant inputs; without
    them there is one entry, and nothing but `workspace_bytes` has a meaning."""

    workspace_bytes: int
    constants: tuple[int, ...] = ()
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0


def prepack_symbol(symbol: str) -> str:
    """What packs constant inputs."""
    return f"{symbol}_prepack"


def prepacked_symbol(symbol: str) -> str:
    """What computes from packed constant inputs."""
    return f"{symbol}_prepacked"


def supported_symbol(symbol: str) -> str:
    """What says whether this CPU can run the kernel."""
    return f"{symbol}_supported"


def variant_symbol(symbol: str) -> str:
    """What names the variant that this CPU runs."""
    return f"{symbol}_variant"
