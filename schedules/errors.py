"""The error classes of `schedules`, and the base class of all others.

The project distinguishes three kinds of failure: a request that is not valid or not legal (a
subclass of `TilewrightError`), a failure on the machine (a `MeasureStatus` in a record, never an
exception), and a bug (any other exception).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class ErrorCategory(Enum):
    """What has to change before the same call can succeed. The service derives exit codes and HTTP
    statuses from it."""

    MALFORMED = "malformed"
    """The request cannot be parsed."""
    INVALID = "invalid"
    """The request can be parsed; a value in it is not acceptable."""
    IMPOSSIBLE = "impossible"
    """The request is valid and cannot be carried out."""
    NOT_FOUND = "not found"
    CONFLICT = "conflict"
    """The request contradicts the present state of what it names."""
    QUOTA = "quota"
    """The caller has as much open as one caller may have."""
    UNAVAILABLE = "unavailable"
    """Another process or machine that the call needs does not answer."""
    DATABASE = "database"
    """The database cannot be used."""


class TilewrightError(Exception):
    """Base of every error that tells a user what is wrong and what to do about it.

    `code` is stable and made for programs, `title` names the kind of error, `advice` says what to
    do and `pointer` is the JSON pointer of what is wrong ("" where there is no document). An
    instance may refine `code`, `advice` and `pointer`.
    """

    code: str = "invalid"
    category: ClassVar[ErrorCategory] = ErrorCategory.IMPOSSIBLE
    title: ClassVar[str] = "Invalid request"
    advice: str = "Correct what is named; `tilewright COMMAND --help` lists what is taken."
    pointer: str = ""


class WorkloadError(TilewrightError):
    """An expression, operator or workload document that does not describe a computation.

    `pointer` is the JSON pointer of the offending part, or "" where there is no document.
    `code` is stable and made for programs: "unknown_operator", "bad_extent", ...
    """

    code = "bad_workload"
    category = ErrorCategory.INVALID
    title = "Invalid workload"
    advice = "`tilewright ops` lists the operators; docs/ holds the grammar and the JSON schema."

    def __init__(self, message: str, *, code: str = "bad_workload", pointer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer


class TargetError(TilewrightError):
    """A hardware description that cannot be read or makes no sense."""

    code = "bad_target"
    category = ErrorCategory.INVALID
    title = "Invalid target"
    advice = "`tilewright target --json` prints a description of this machine."


class ScheduleError(TilewrightError):
    """`primitive` may not be applied: the result would be wrong, or has no meaning.

    `reason` says what is required and what was found; the message also names the primitive.
    """

    code = "illegal_trace"
    title = "Illegal schedule"
    advice = "Change the step named."

    def __init__(self, primitive: object, reason: str) -> None:
        super().__init__(f"{primitive}: {reason}")
        self.primitive = primitive
        self.reason = reason


def require(condition: bool, source: object, message: str) -> None:
    """ScheduleError with `message` unless `condition`; `source` is the primitive, or the name of
    the check, that raises it."""
    if not condition:
        raise ScheduleError(source, message)
