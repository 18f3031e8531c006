"""Reports errors: as a problem document over HTTP, or as a message and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilewright.schedules.errors import ErrorCategory, TilewrightError
from tilewright.service.errors import ExitCode, Located, ServiceError

PROBLEM_BASE = "/docs#"


BY_CATEGORY: dict[ErrorCategory, tuple[int, ExitCode]] = {
    ErrorCategory.MALFORMED: (400, ExitCode.USAGE),
    ErrorCategory.INVALID: (422, ExitCode.USAGE),
    ErrorCategory.IMPOSSIBLE: (422, ExitCode.FAILED),
    ErrorCategory.NOT_FOUND: (404, ExitCode.FAILED),
    ErrorCategory.CONFLICT: (409, ExitCode.FAILED),
    ErrorCategory.QUOTA: (429, ExitCode.UNREACHABLE),
    ErrorCategory.UNAVAILABLE: (503, ExitCode.UNREACHABLE),
    ErrorCategory.DATABASE: (503, ExitCode.DATABASE),
}
"""HTTP status and exit code of the errors of lower packages."""

STATUS_BY_CODE: dict[str, int] = {"malformed_json": 400, "bad_json": 400}
"""Status of these codes in every class: text that is not JSON is a 400."""

ADVICE_BY_CODE: dict[str, str] = {
    "too_large": "Make it smaller; over HTTP, `GET /limits` lists the limits.",
    "not_verifiable": "Scale or shift its values, so that outputs are numbers for inputs between"
    " -8 and 8, or 1/2 and 4.",
    "bad_json": "Correct the JSON.",
    "malformed_json": "Correct the JSON.",
}
"""Advice of these codes in every class."""


def status_of(error: TilewrightError | type[TilewrightError]) -> tuple[int, ExitCode]:
    """Return the HTTP status and the exit code of an error, or of a class of errors."""
    if isinstance(error, ServiceError):
        return error.status, error.exit_code
    if isinstance(error, type) and issubclass(error, ServiceError):
        return error.status, error.exit_code
    return BY_CATEGORY[error.category]


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """An error as reported: the members of RFC 9457, and `code`, `pointer` and `advice`."""

    status: int
    code: str
    title: str
    detail: str
    advice: str
    exit_code: ExitCode
    pointer: str = ""

    def to_json(self, instance: str = "", request_id: str = "") -> dict[str, Any]:
        """Return the body of `application/problem+json`."""
        document: dict[str, Any] = {
            "type": PROBLEM_BASE + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "advice": self.advice,
            "errors": [{"pointer": self.pointer, "detail": self.detail}] if self.pointer else [],
        }
        if instance:
            document["instance"] = instance
        if request_id:
            document["request_id"] = request_id
        return document

    def to_cli_json(self) -> dict[str, Any]:
        """Return the document that `--json` prints instead of a result."""
        return {
            "error": {
                "code": self.code,
                "message": self.detail,
                "pointer": self.pointer,
                "advice": self.advice,
                "exit_code": int(self.exit_code),
            }
        }


def problem_of(error: TilewrightError) -> ProblemDetails:
    """Return the problem as which `error` is reported."""
    if isinstance(error, Located):
        inner = problem_of(error.error)
        return replace(inner, pointer=error.pointer + inner.pointer)
    status, exit_code = status_of(error)
    return ProblemDetails(
        status=STATUS_BY_CODE.get(error.code, status),
        code=error.code,
        title=error.title,
        detail=str(error),
        advice=vars(error).get("advice") or ADVICE_BY_CODE.get(error.code, error.advice),
        exit_code=exit_code,
        pointer=error.pointer,
    )


def documented_classes() -> list[type[TilewrightError]]:
    """Return one loaded class for each code, sorted by code. Classes of this package are preferred
    to classes of lower packages."""
    found = sorted(_subclasses(TilewrightError), key=lambda cls: not issubclass(cls, ServiceError))
    by_code: dict[str, type[TilewrightError]] = {}
    for cls in found:
        if "code" in vars(cls):
            by_code.setdefault(cls.code, cls)
    return [by_code[code] for code in sorted(by_code)]


def _subclasses(cls: type[TilewrightError]) -> Iterator[type[TilewrightError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _subclasses(child)
