"""Planted edits that change the object file but not what it computes, each with the reason.

The list is written by hand: verification passed these, and someone looked.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Equivalent:
    """Edits of `operator` in bases like `base` (with * for any text) that read like `edit`."""

    base: str
    operator: str
    edit: str
    reason: str


EQUIVALENTS: tuple[Equivalent, ...] = ()


def why_equivalent(base: str, operator: str, edit: str) -> str | None:
    """Why this edit is harmless, None if nobody said so."""
    for known in EQUIVALENTS:
        if (
            known.operator == operator
            and fnmatchcase(base, known.base)
            and fnmatchcase(edit, known.edit)
        ):
            return known.reason
    return None
