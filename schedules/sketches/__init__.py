"""Rules that map the structure of an expression to the schedules to search."""

from __future__ import annotations

from .program import space_for

__all__ = ["space_for"]
