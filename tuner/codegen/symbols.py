"""What the functions of a kernel called NAME are called, where programs that generate no code can
read it too."""

from __future__ import annotations


def prepack_symbol(symbol: str) -> str:
    """What packs constant inputs."""
    return f"{symbol}_prepack"


def prepacked_symbol(symbol: str) -> str:
    """What computes from packed constant inputs."""
    return f"{symbol}_prepacked"
