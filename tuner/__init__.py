"""The machine: code generation, compiling, measuring, searching, and the tuning session.

`tune` and `compile` are found on first use: importing this package loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernel import compile
    from .tuning import tune

__all__ = ["compile", "tune"]


def __getattr__(name: str) -> Any:
    if name == "tune":
        from .tuning import tune

        return tune
    if name == "compile":
        from .kernel import compile

        return compile
    raise AttributeError(f"module 'tuner' has no attribute {name!r}")
