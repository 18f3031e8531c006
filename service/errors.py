"""Exit codes, and the errors of this package. Each class has an HTTP status and an exit code.

`problems.py` converts an error to a response, and to a message of the command line.
"""
# ruff: noqa: N818  # the names are conditions, without "Error" at the end

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from tilewright.schedules.errors import TilewrightError


class ExitCode(IntEnum):
    """Exit codes of `tilewright`. The numbers never change; `docs/cli.md` explains them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_ANSWER = 3
    DATABASE = 4
    UNREACHABLE = 5
    VERIFICATION = 6
    INTERRUPTED = 130


class ServiceError(TilewrightError):
    """An error of this package. An instance may refine `code`, `pointer` and `advice`."""

    status: int = 422
    exit_code: ExitCode = ExitCode.FAILED

    def __init__(
        self, message: str, *, code: str = "", pointer: str = "", advice: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.pointer = pointer
        if advice:
            self.advice = advice


class BadRequest(ServiceError):
    """The request cannot be read: malformed JSON, a bad page token, a bad header."""

    code = "bad_request"
    status = 400
    exit_code = ExitCode.USAGE
    title = "Malformed request"
    advice = "Correct the request."


class InvalidField(ServiceError):
    """The value of a field is not acceptable; `pointer` is the JSON pointer of the field."""

    code = "invalid_field"
    status = 422
    exit_code = ExitCode.USAGE
    title = "Invalid field"
    advice = "Correct this field."


class UsageProblem(ServiceError):
    """The command line is not valid."""

    code = "usage"
    status = 400
    exit_code = ExitCode.USAGE
    title = "Invalid usage"
    advice = "See `tilewright COMMAND --help`."


class NotFound(ServiceError):
    """There is no such job, record, blob or path."""

    code = "not_found"
    status = 404
    title = "Not found"
    advice = "Check the id or key."


class NoAnswer(ServiceError):
    """No answer of the requested grade is stored for this workload and target."""

    code = "no_answer"
    status = 404
    exit_code = ExitCode.NO_ANSWER
    title = "No answer stored"
    advice = "Tune the workload, or accept a lower grade (min_grade=default always has an answer)."


class NotPrepared(ServiceError):
    """No schedule of this workload was found without tuning; `code` is the reason."""

    code = "not_prepared"
    status = 422
    title = "No schedule available without tuning"
    advice = "Tune the workload, or divide it into stages that store their results."


class MethodNotAllowed(ServiceError):
    """The path exists, but not with this method. `allow` lists its methods."""

    code = "method_not_allowed"
    status = 405
    title = "Method not allowed"
    advice = "See `/openapi.json`."

    def __init__(self, message: str, *, allow: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.allow = tuple(allow)


class NotAuthenticated(ServiceError):
    """There is no key, or it is invalid; see `code`."""

    code = "no_key"
    status = 401
    title = "API key required"
    advice = (
        "Send `Authorization: Bearer KEY` (TILEWRIGHT_API_KEY). `tilewright keys create`, on the "
        "service's machine, creates a key."
    )


class NotAllowed(ServiceError):
    """The caller lacks a scope, or a page of another origin sends the request."""

    code = "not_allowed"
    status = 403
    title = "Permission denied"
    advice = "Use a key with this scope; `tilewright keys list` shows the scopes of each key."


class TooSlow(ServiceError):
    """The body did not arrive in time."""

    code = "too_slow"
    status = 408
    exit_code = ExitCode.UNREACHABLE
    title = "Request body arrived too slowly"
    advice = "Send the same request again."


class TooLarge(ServiceError):
    """A body or a number exceeds a limit of `/limits`."""

    code = "too_large"
    status = 413
    exit_code = ExitCode.USAGE
    title = "Too large"
    advice = "`GET /limits` lists the limits."


class UnsupportedMedia(ServiceError):
    """The body is not JSON."""

    code = "unsupported_media_type"
    status = 415
    exit_code = ExitCode.USAGE
    title = "Unsupported content type"
    advice = "Send `Content-Type: application/json`, not compressed."


class TooBusy(ServiceError):
    """A limit on simultaneous requests is reached. Try again after `retry_after_secs`."""

    code = "too_busy"
    status = 429
    exit_code = ExitCode.UNREACHABLE
    title = "Too many concurrent requests"
    advice = "Come back after `Retry-After`."

    def __init__(self, message: str, *, retry_after_secs: int = 5, code: str = "") -> None:
        super().__init__(message, code=code)
        self.retry_after_secs = retry_after_secs


class Unavailable(ServiceError):
    """The service cannot process the request now, but possibly in a few seconds."""

    code = "unavailable"
    status = 503
    exit_code = ExitCode.UNREACHABLE
    title = "Temporarily unavailable"
    advice = "Come back after `Retry-After`."


class NoRoom(ServiceError):
    """The database has reached its size limit: new work is refused."""

    code = "database_limit"
    status = 507
    exit_code = ExitCode.DATABASE
    title = "Database size limit reached"
    advice = (
        "Raise TILEWRIGHT_DATABASE_BYTES, or delete unreferenced data with `tilewright db prune`; "
        "`tilewright db stats` shows the content."
    )


class MissingExtra(ServiceError):
    """A library that this command needs is not installed."""

    code = "missing_extra"
    status = 503
    title = "Optional package not installed"
    advice = "Install this extra."


class VerificationFailed(ServiceError):
    """The stored best was rebuilt and failed the full check."""

    code = "verification_failed"
    status = 409
    exit_code = ExitCode.VERIFICATION
    title = "Verification failed"
    advice = "Tune again: `tilewright tune WORKLOAD --fresh`."


class Unreachable(ServiceError):
    """No service answers at the URL."""

    code = "unreachable"
    status = 502
    exit_code = ExitCode.UNREACHABLE
    title = "Service unreachable"
    advice = "Start one with `tilewright serve`, or set TILEWRIGHT_URL."


class Located(ServiceError):
    """An error of a lower package, with the JSON pointer of its cause in the request."""

    def __init__(self, error: TilewrightError, pointer: str) -> None:
        super().__init__(str(error), pointer=pointer)
        self.error = error


class Refused(ServiceError):
    """A problem that a service returned, with its `status`, `code`, `pointer` and `advice`."""

    title = "The service refused"
    advice = ""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        errors = problem.get("errors") or [{}]
        super().__init__(
            str(problem.get("detail") or problem.get("title") or f"HTTP status {status}"),
            code=str(problem.get("code") or f"http_{status}"),
            pointer=str(errors[0].get("pointer") or ""),
            advice=str(problem.get("advice") or ""),
        )
        self.status = status
        self.exit_code = _exit_code_of(status, self.code)
        self.problem = dict(problem)


class CannotWrite(ServiceError):
    """Standard output cannot be written, for example because the disk is full."""

    code = "cannot_write"
    status = 503
    title = "Cannot write to standard output"
    advice = "Free some space, or write to another place."


class OutOfResources(ServiceError):
    """Memory, files or threads have run out, on the machine or because of a limit (`ulimit`)."""

    code = "out_of_resources"
    status = 503
    title = "Out of resources"
    advice = "Close other programs, or raise the limit (`ulimit -a`)."


class CannotServe(ServiceError):
    """The service cannot start, for example because the port is in use."""

    code = "cannot_serve"
    status = 503
    title = "Cannot start the server"
    advice = "Choose another --host or --port."


def _exit_code_of(status: int, code: str) -> ExitCode:
    if code == "no_answer":
        return ExitCode.NO_ANSWER
    if status in (400, 413, 415, 422):
        return ExitCode.USAGE
    if status in (429, 502, 503, 504) or code in ("not_a_service", "redirected"):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED
