"""How errors are told: one table from error class to HTTP status, exit code and advice.

A class that is not in the table is a bug of ours and is not caught anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilewright.schedules.errors import TilewrightError

from .errors import Located, Refused
from .exit_codes import ExitCode

PROBLEM_BASE = "/docs#"


@dataclass(frozen=True, slots=True)
class Kind:
    """How one class of errors is told: HTTP `status`, stable `code`, exit code, what to do."""

    status: int
    code: str
    exit_code: ExitCode
    title: str
    advice: str


TABLE: dict[str, Kind] = {
    "tilewright.service.errors.BadRequest": Kind(
        400, "bad_request", ExitCode.USAGE, "The request cannot be read", "Correct the request."
    ),
    "tilewright.service.errors.InvalidField": Kind(
        422, "invalid_field", ExitCode.USAGE, "A field will not do", "Correct the field named."
    ),
    "tilewright.service.errors.UsageProblem": Kind(
        400, "usage", ExitCode.USAGE, "Wrong usage", "See `tilewright COMMAND --help`."
    ),
    "tilewright.service.errors.NotFound": Kind(
        404, "not_found", ExitCode.FAILED, "No such thing", "Check the id or key."
    ),
    "tilewright.service.errors.NoAnswer": Kind(
        404,
        "no_answer",
        ExitCode.NO_ANSWER,
        "No answer stored",
        "Tune the workload, or accept a lower grade (min_grade=default never misses).",
    ),
    "tilewright.service.errors.NotPrepared": Kind(
        422,
        "not_prepared",
        ExitCode.FAILED,
        "No schedule without tuning",
        "Tune the workload, or divide it into stages that store what they compute.",
    ),
    "tilewright.service.errors.MethodNotAllowed": Kind(
        405, "method_not_allowed", ExitCode.FAILED, "Method not allowed", "See `/openapi.json`."
    ),
    "tilewright.service.errors.NotAuthenticated": Kind(
        401,
        "no_key",
        ExitCode.FAILED,
        "A key is needed",
        "Send `Authorization: Bearer KEY` (TILEWRIGHT_API_KEY); `tilewright keys create`, on the "
        "service's machine, makes one.",
    ),
    "tilewright.service.errors.NotAllowed": Kind(
        403,
        "not_allowed",
        ExitCode.FAILED,
        "Not allowed",
        "Use a key with the scope named; `tilewright keys list` shows the scopes of each.",
    ),
    "tilewright.service.errors.TooSlow": Kind(
        408, "too_slow", ExitCode.UNREACHABLE, "Too slow", "Send the same request again."
    ),
    "tilewright.service.errors.TooLarge": Kind(
        413, "too_large", ExitCode.USAGE, "Too large", "`GET /limits` lists what is accepted."
    ),
    "tilewright.service.errors.UnsupportedMedia": Kind(
        415,
        "unsupported_media_type",
        ExitCode.USAGE,
        "Not JSON",
        "Send `Content-Type: application/json`, not compressed.",
    ),
    "tilewright.service.errors.TooBusy": Kind(
        429, "too_busy", ExitCode.UNREACHABLE, "Too many at once", "Come back after `Retry-After`."
    ),
    "tilewright.service.errors.Unavailable": Kind(
        503,
        "unavailable",
        ExitCode.UNREACHABLE,
        "Not at the moment",
        "Come back after `Retry-After`.",
    ),
    "tilewright.service.errors.NoRoom": Kind(
        507,
        "database_limit",
        ExitCode.DATABASE,
        "The database has reached its limit",
        "Its operator raises TILEWRIGHT_DATABASE_BYTES, or makes room: `tilewright db stats` says "
        "what it holds, `tilewright db prune` deletes what nobody points to.",
    ),
    "tilewright.service.errors.MissingExtra": Kind(
        503, "missing_extra", ExitCode.FAILED, "Not installed", "Install the extra named."
    ),
    "tilewright.service.errors.VerificationFailed": Kind(
        409,
        "verification_failed",
        ExitCode.VERIFICATION,
        "Verification failed",
        "Tune again: `tilewright tune WORKLOAD --fresh`.",
    ),
    "tilewright.service.errors.Unreachable": Kind(
        502,
        "unreachable",
        ExitCode.UNREACHABLE,
        "Service unreachable",
        "Start one with `tilewright serve`, or set TILEWRIGHT_URL.",
    ),
    "tilewright.service.errors.CannotServe": Kind(
        503, "cannot_serve", ExitCode.FAILED, "Cannot serve", "Choose another --host or --port."
    ),
    "tilewright.service.errors.OutOfResources": Kind(
        503,
        "out_of_resources",
        ExitCode.FAILED,
        "Out of resources",
        "Close other programs, or raise the limit (`ulimit -a`).",
    ),
    "tilewright.service.errors.CannotWrite": Kind(
        503, "cannot_write", ExitCode.FAILED, "Cannot write", "Make room, or write elsewhere."
    ),
    "tilewright.db.errors.StoreError": Kind(
        503,
        "database_unusable",
        ExitCode.DATABASE,
        "Database unusable",
        "`tilewright db check` says what is wrong with it.",
    ),
    "tilewright.db.errors.StoreMissing": Kind(
        503,
        "database_missing",
        ExitCode.DATABASE,
        "No database there",
        "Name another with --db or TILEWRIGHT_DB.",
    ),
    "tilewright.db.errors.StoreDenied": Kind(
        503,
        "database_denied",
        ExitCode.DATABASE,
        "Database not accessible",
        "Name another with --db or TILEWRIGHT_DB.",
    ),
    "tilewright.db.errors.StoreFull": Kind(
        503,
        "database_full",
        ExitCode.DATABASE,
        "No room left for the database",
        "Make room (`df -h` shows where), then run the same command again.",
    ),
    "tilewright.db.errors.StoreNewer": Kind(
        503,
        "database_newer",
        ExitCode.DATABASE,
        "Database of a newer version",
        "Upgrade Tilewright, or use another --db; nothing was read or changed.",
    ),
    "tilewright.db.errors.StoreOlder": Kind(
        503,
        "database_older",
        ExitCode.DATABASE,
        "Database of an older version",
        "The upgrade keeps everything that is stored.",
    ),
    "tilewright.db.errors.StoreHeld": Kind(
        503,
        "database_held",
        ExitCode.DATABASE,
        "Database held by another process",
        "Wait for the other process (`fuser FILE` finds it), or use another --db.",
    ),
    "tilewright.db.errors.StoreBusy": Kind(
        503,
        "database_busy",
        ExitCode.DATABASE,
        "Database busy",
        "Try again: nothing of this call was stored.",
    ),
    "tilewright.db.errors.StoreUnreachable": Kind(
        503,
        "database_unreachable",
        ExitCode.DATABASE,
        "Database server unreachable",
        "Check that its server runs, then try again: nothing of this call was stored.",
    ),
    "tilewright.db.errors.StoreUnsafe": Kind(
        503,
        "database_unsafe",
        ExitCode.DATABASE,
        "Database server keeps no promises",
        "Set fsync, full_page_writes and synchronous_commit to on.",
    ),
    "tilewright.db.errors.StoreBroken": Kind(
        503,
        "database_broken",
        ExitCode.DATABASE,
        "Database damaged",
        "Restore a backup (docs/operations.md), or start anew: `tilewright import FILE --db NEW`.",
    ),
    "tilewright.db.errors.RefusedError": Kind(
        422,
        "refused",
        ExitCode.FAILED,
        "Not accepted",
        "Correct what is named; `tilewright doctor` checks the rest.",
    ),
    "tilewright.db.errors.BadPageToken": Kind(
        400, "bad_page_token", ExitCode.USAGE, "Not a page token", "Start at the first page."
    ),
    "tilewright.db.errors.UnknownJob": Kind(
        404, "not_found", ExitCode.FAILED, "No such job", "`GET /v1/jobs` lists the jobs."
    ),
    "tilewright.db.errors.UnknownKey": Kind(
        404, "not_found", ExitCode.FAILED, "No such key", "`tilewright keys list` lists the keys."
    ),
    "tilewright.db.errors.QuotaReached": Kind(
        429,
        "quota_reached",
        ExitCode.UNREACHABLE,
        "Too much open at once",
        "Come back when some of it is done, or cancel a job; `GET /limits` lists what is accepted.",
    ),
    "tilewright.db.errors.NotAlone": Kind(
        409,
        "shared_job",
        ExitCode.FAILED,
        "Others wait for this job",
        "Nothing was changed: it is for those who asked for it, and a key with the scope admin.",
    ),
    "tilewright.db.errors.IdempotencyConflict": Kind(
        422,
        "idempotency_key_reused",
        ExitCode.USAGE,
        "Idempotency-Key reused with another body",
        "Use a new key for a new request.",
    ),
    "tilewright.db.errors.BadTransition": Kind(
        409, "conflict", ExitCode.FAILED, "Conflict", "Read the job again, then decide."
    ),
    "tilewright.service.build.locked.LockError": Kind(
        422,
        "bad_lock",
        ExitCode.USAGE,
        "Not a usable lock file",
        "`tilewright lock` writes lock files, `tilewright export --bundle` bundles.",
    ),
    "tilewright.service.build.locked.Inconsistent": Kind(
        409,
        "inconsistent_lock",
        ExitCode.VERIFICATION,
        "The lock file contradicts itself",
        "Take it from version control, or remove the entry and lock it again: `tilewright lock`.",
    ),
    "tilewright.service.build.locked.NotTheBytes": Kind(
        409,
        "not_the_bytes",
        ExitCode.VERIFICATION,
        "Not the bytes that are locked",
        "Nothing was written. `tilewright lock --upgrade` pins what is made now.",
    ),
    "tilewright.schedules.errors.WorkloadError": Kind(
        422,
        "bad_workload",
        ExitCode.USAGE,
        "Not a workload",
        "`tilewright ops` lists the operators; docs/ holds the grammar and the JSON schema.",
    ),
    "tilewright.schedules.errors.TargetError": Kind(
        422,
        "bad_target",
        ExitCode.USAGE,
        "Not a usable target",
        "`tilewright target --json` prints a description of this machine.",
    ),
    "tilewright.tuner.search.strategies.StrategyError": Kind(
        422, "bad_strategy", ExitCode.USAGE, "No such strategy", "See `tilewright tune --help`."
    ),
    "tilewright.tuner.measure.protocol.MeasurerError": Kind(
        422,
        "bad_measurer",
        ExitCode.USAGE,
        "No such measurer, or a bad file of timings",
        "local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT will do; docs/ says more.",
    ),
    "tilewright.tuner.measure.fleet.address.FleetError": Kind(
        503,
        "fleet_unavailable",
        ExitCode.UNREACHABLE,
        "The fleet cannot measure",
        "`tilewright fleet ADDRESS` lists machines; `tilewright worker --join ADDRESS` adds one.",
    ),
    "tilewright.schedules.errors.ScheduleError": Kind(
        422,
        "illegal_trace",
        ExitCode.FAILED,
        "The schedule is not legal",
        "Change the step named.",
    ),
    "tilewright.tuner.compiling.deadline.DeadlineError": Kind(
        422,
        "took_too_long",
        ExitCode.FAILED,
        "Not done by its deadline",
        "Divide the expression into stages that store what they compute.",
    ),
    "tilewright.tuner.process.control.OutOfTime": Kind(
        422,
        "out_of_time",
        ExitCode.FAILED,
        "Not done in its seconds",
        "Allow more seconds, or run it again: what was measured is stored and counts.",
    ),
    "tilewright.tuner.compiling.helper_process.CompileError": Kind(
        422,
        "compile_failed",
        ExitCode.FAILED,
        "LLVM failed",
        "Tune the workload: a search leaves out what does not compile.",
    ),
    "tilewright.schedules.errors.TilewrightError": Kind(
        422,
        "invalid",
        ExitCode.FAILED,
        "Not possible",
        "Correct what is named; `tilewright COMMAND --help` lists what is taken.",
    ),
}

STATUS_BY_CODE: dict[str, int] = {"malformed_json": 400, "bad_json": 400}
"""Where a code says more than the class: text that is not JSON is a 400."""

ADVICE_BY_CODE: dict[str, str] = {
    "too_large": "A smaller one will do; over HTTP, `GET /limits` lists what is accepted.",
    "not_verifiable": "Scale or shift its values, so that outputs are numbers for inputs between"
    " -8 and 8, or 1/2 and 4.",
    "bad_json": "Correct the JSON.",
    "malformed_json": "Correct the JSON.",
}
"""What to do where a code says more than the class."""


def kind_of(error: TilewrightError) -> Kind:
    """The table's row for the nearest class of `error`."""
    for cls in type(error).__mro__:
        found = TABLE.get(f"{cls.__module__}.{cls.__qualname__}")
        if found is not None:
            return found
    raise error


def kind_of_refusal(error: Refused) -> Kind:
    """A service's refusal: the exit code follows from its status and code."""
    if error.code == "no_answer":
        exit_code = ExitCode.NO_ANSWER
    elif error.status in (400, 413, 415, 422):
        exit_code = ExitCode.USAGE
    elif error.status in (429, 502, 503, 504) or error.code in ("not_a_service", "redirected"):
        exit_code = ExitCode.UNREACHABLE
    else:
        exit_code = ExitCode.FAILED
    return Kind(error.status, error.code, exit_code, "The service refused", "")


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """An error as told: RFC 9457's members and ours (`code`, `pointer`, `advice`)."""

    status: int
    code: str
    title: str
    detail: str
    advice: str
    exit_code: ExitCode
    pointer: str = ""

    def to_json(self, instance: str = "", request_id: str = "") -> dict[str, Any]:
        """The body of `application/problem+json`."""
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
        """What `--json` prints instead of a result."""
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
    """How `error` is told."""
    if isinstance(error, Located):
        inner = problem_of(error.error)
        return replace(inner, pointer=error.pointer + inner.pointer)
    kind = kind_of_refusal(error) if isinstance(error, Refused) else kind_of(error)
    code = str(getattr(error, "code", "") or kind.code)
    return ProblemDetails(
        status=STATUS_BY_CODE.get(code, kind.status),
        code=code,
        title=kind.title,
        detail=str(error),
        advice=str(getattr(error, "advice", "") or ADVICE_BY_CODE.get(code, kind.advice)),
        exit_code=kind.exit_code,
        pointer=str(getattr(error, "pointer", "") or ""),
    )
