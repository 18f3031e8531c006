"""What may go wrong in this package: what was asked for, who asked, or what is there for it.

Both the command line and the API end here; `error_table.py` says how each class is told.
"""
# ruff: noqa: N818  # the names say the condition; an "Error" at the end would say it twice

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.schedules.errors import TilewrightError


class ServiceError(TilewrightError):
    """An error of this package. `code`, `pointer` and `advice` refine what the table says."""

    def __init__(
        self, message: str, *, code: str = "", pointer: str = "", advice: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
        self.advice = advice


class BadRequest(ServiceError):
    """The request cannot be read: malformed JSON, a bad page token, a bad header."""


class InvalidField(ServiceError):
    """A field is there but will not do; `pointer` names it."""


class UsageProblem(ServiceError):
    """The command line asks for something that makes no sense."""


class NotFound(ServiceError):
    """No such job, record, blob or path."""


class NoAnswer(ServiceError):
    """Nothing good enough is stored for this workload and target."""


class NotPrepared(ServiceError):
    """No schedule could be made of this workload without tuning it; `code` says why."""


class MethodNotAllowed(ServiceError):
    """The path exists, the method does not; `allow` lists those that do."""

    def __init__(self, message: str, *, allow: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.allow = tuple(allow)


class NotAuthenticated(ServiceError):
    """No key, or none that opens anything; `code` says which."""


class NotAllowed(ServiceError):
    """It is known who asks, and this is not for them: a scope is missing, or a page asks."""


class TooSlow(ServiceError):
    """The body did not arrive in time."""


class TooLarge(ServiceError):
    """A body or a number is above a limit of `/limits`."""


class UnsupportedMedia(ServiceError):
    """The body is not JSON."""


class TooBusy(ServiceError):
    """A limit on what may be open at once is reached; `retry_after_secs` says when to come back."""

    def __init__(self, message: str, *, retry_after_secs: int = 5, code: str = "") -> None:
        super().__init__(message, code=code)
        self.retry_after_secs = retry_after_secs


class Unavailable(ServiceError):
    """The service cannot do it at the moment, and may in a few seconds."""


class NoRoom(ServiceError):
    """The database has reached the size it may have: what would add to it is not taken."""


class MissingExtra(ServiceError):
    """A library that this command needs is not installed."""


class VerificationFailed(ServiceError):
    """The stored best was rebuilt and did not pass."""


class Unreachable(ServiceError):
    """No service answers at the URL."""


class Located(ServiceError):
    """An error of a storey below, and where in the request its cause sits."""

    def __init__(self, error: TilewrightError, pointer: str) -> None:
        super().__init__(str(error), pointer=pointer)
        self.error = error


class Refused(ServiceError):
    """A service answered with a problem; `status`, `code`, `pointer` and `advice` are its own."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        errors = problem.get("errors") or [{}]
        super().__init__(
            str(problem.get("detail") or problem.get("title") or f"HTTP status {status}"),
            code=str(problem.get("code") or f"http_{status}"),
            pointer=str(errors[0].get("pointer") or ""),
            advice=str(problem.get("advice") or ""),
        )
        self.status = status
        self.problem = dict(problem)


class CannotWrite(ServiceError):
    """Standard output takes no more: a full disk behind it."""


class OutOfResources(ServiceError):
    """Memory, files or threads have run out, by the machine or by a limit (`ulimit`)."""


class CannotServe(ServiceError):
    """The service cannot start: the port is taken, the address is open to others, ..."""
