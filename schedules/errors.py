"""The error classes of `schedules`, and the base class of all error classes.

The project distinguishes three kinds of failure: a request that is not valid or not legal (a
subclass of `TilewrightError`), a failure on the machine (a `MeasureStatus` in a record, never an
exception), and a bug (any other exception).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class ErrorCategory(Enum):
    """The cause that must be removed before the same call can succeed.

    The service maps each category to an exit code and an HTTP status.
    """

    MALFORMED = "malformed"
    """The request cannot be parsed."""
    INVALID = "invalid"
    """The request can be parsed, but a value in it is not acceptable."""
    IMPOSSIBLE = "impossible"
    """The request is valid, but it cannot be carried out."""
    NOT_FOUND = "not found"
    CONFLICT = "conflict"
    """The request contradicts the present state of the object it names."""
    QUOTA = "quota"
    """The caller has reached the maximum number of open requests or objects."""
    UNAVAILABLE = "unavailable"
    """Another process or machine that the call needs does not answer."""
    DATABASE = "database"
    """The database cannot be used."""


class TilewrightError(Exception):
    """Base class of the errors that report a mistake of a user and its remedy.

    `code` is a stable name for programs, such as "unknown_operator". `title` names the kind of
    error, and `advice` describes the remedy. `pointer` is the JSON pointer of the mistake, or "" if
    there is no document. An instance may refine `code`, `advice` and `pointer`.
    """

    code: str = "invalid"
    category: ClassVar[ErrorCategory] = ErrorCategory.IMPOSSIBLE
    title: ClassVar[str] = "Invalid request"
    advice: str = "Correct the named part; `tilewright COMMAND --help` lists the accepted values."
    pointer: str = ""


class WorkloadError(TilewrightError):
    """An expression, operator or workload document that does not describe a computation."""

    code = "bad_workload"
    category = ErrorCategory.INVALID
    title = "Invalid workload"
    advice = "`tilewright ops` lists the operators; docs/ has the grammar and the JSON schema."

    def __init__(self, message: str, *, code: str = "bad_workload", pointer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer


class TargetError(TilewrightError):
    """A hardware description that cannot be read or is inconsistent."""

    code = "bad_target"
    category = ErrorCategory.INVALID
    title = "Invalid target"
    advice = "`tilewright target --json` prints a description of this machine."


class ScheduleError(TilewrightError):
    """The error of an illegal step. After such a step, the result would be wrong or undefined.

    `primitive` is the step. `reason` states the requirement and the value found. The message also
    names the primitive.
    """

    code = "illegal_trace"
    title = "Illegal schedule"
    advice = "Change the named step."

    def __init__(self, primitive: object, reason: str) -> None:
        super().__init__(f"{primitive}: {reason}")
        self.primitive = primitive
        self.reason = reason


def require(condition: bool, source: object, message: str) -> None:
    """Raise ScheduleError with `message` if `condition` is false.

    `source` is the primitive, or the name of the check, that raises the error.
    """
    if not condition:
        raise ScheduleError(source, message)
