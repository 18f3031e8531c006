"""What the functions of a kernel called NAME are called, where programs that generate no code can
read it too."""

from __future__ import annotations


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
