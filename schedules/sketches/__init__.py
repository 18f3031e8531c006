"""Rules: from the structure of an expression to the schedules worth trying."""

from __future__ import annotations

from .program import space_for

__all__ = ["space_for"]
