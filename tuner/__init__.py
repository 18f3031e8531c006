"""Code generation, compilation, measurement, search, and the tuning session.

Functions are imported on first use, so that importing this package is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrays import aligned, empty
    from .kernel import compile
    from .machine.native_target import native_target
    from .session.report import Budget
    from .tuning import tune

__all__ = ["Budget", "aligned", "compile", "empty", "native_target", "tune"]


def __getattr__(name: str) -> Any:
    if name == "tune":
        from .tuning import tune

        return tune
    if name == "compile":
        from .kernel import compile

        return compile
    if name == "native_target":
        from .machine.native_target import native_target

        return native_target
    if name == "Budget":
        from .session.report import Budget

        return Budget
    if name in ("aligned", "empty"):
        from . import arrays

        return getattr(arrays, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
