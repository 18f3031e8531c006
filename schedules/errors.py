"""Every error class of the bottom storey, and the base of all others.

Three kinds of failure are kept apart throughout the project: something the user asked for is
not valid or not legal (a child of `TilewrightError`), something went wrong on the machine (a
`MeasureStatus` in a record, never an exception), and a bug of ours (any other exception).
"""

from __future__ import annotations


class TilewrightError(Exception):
    """Base of every error that tells a user what was asked, what would do and what was found."""


class WorkloadError(TilewrightError):
    """An expression, operator or workload document that does not describe a computation.

    `pointer` is the JSON pointer of the offending part, or "" where there is no document.
    `code` is stable and made for programs: "unknown_operator", "bad_extent", ...
    """

    def __init__(self, message: str, *, code: str = "bad_workload", pointer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer


class TargetError(TilewrightError):
    """A hardware description that cannot be read or makes no sense."""


class ScheduleError(TilewrightError):
    """`primitive` may not be applied: the result would be wrong, or has no meaning.

    `reason` says what would do and what was found; the message names the primitive.
    """

    def __init__(self, primitive: object, reason: str) -> None:
        super().__init__(f"{primitive}: {reason}")
        self.primitive = primitive
        self.reason = reason


def require(condition: bool, source: object, message: str) -> None:
    """ScheduleError of `source`, a primitive or the name of what refuses, unless `condition`."""
    if not condition:
        raise ScheduleError(source, message)
