"""Schedules that failed their full check. They are never served, and messages state the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.schedules.full_checks import FullCheck, FullChecks
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.service.answers.grades import same_toolchain, toolchain_text
from tilewright.service.errors import NoAnswer, VerificationFailed

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.schedules.trace import Trace
    from tilewright.schedules.workload.workload import Workload
    from tilewright.service.answers.analytic import Chosen

# Start-up: a query parses no schedules; functions that do import the parser.

AS_WRITTEN = "the untransformed expression"
UNMEASURED = "chosen without measurement"


def safe_trace(
    workload: Workload, chosen: Chosen, checks: FullChecks, toolchain: Toolchain
) -> tuple[Trace, str]:
    """Return a schedule that may be served, and a note. The schedule is `chosen`, which was chosen
    without measurement; the note says where it comes from. If `chosen` failed its full check under
    `toolchain`, it is the untransformed expression. Raise NoAnswer if both failed."""
    from tilewright.schedules.trace import Trace

    failed = checks.refusal(chosen.trace.to_json(), toolchain)
    if failed is None:
        return chosen.trace, f"{UNMEASURED}, {chosen.source}" if chosen.source else UNMEASURED
    plain = Trace()
    plain_failed = checks.refusal(plain.to_json(), toolchain)
    reason = f"the schedule {UNMEASURED} failed its full check ({failed})"
    if plain_failed is None:
        return plain, f"{AS_WRITTEN}: {reason}"
    raise NoAnswer(
        f"no schedule of {workload.name or workload.key} may be served: {reason},"
        f" and {AS_WRITTEN} failed it too ({plain_failed})",
        code="no_schedule_passed",
        advice="Search for one that passes: `tilewright tune WORKLOAD --trials N`; and report it:"
        " a schedule that fails is a bug of Tilewright.",
    )


def record_refusal(
    store: Store, record: TuningRecord, target_key: str, toolchain: Toolchain
) -> FullCheck | None:
    """Return the failed full check that excludes a stored record from answers, or None. It is a
    check of the measured code, or of the code that `toolchain` generates for target
    `target_key`."""
    made = store.full_checks(record.workload_key, record.target_key)
    here = store.full_checks(record.workload_key, target_key)
    return made.refusal(record.trace, record.toolchain) or here.refusal(record.trace, toolchain)


def refuse_pins(failed: Iterable[tuple[str, str]]) -> None:
    """Raise VerificationFailed if `failed` is not empty. `failed` has pairs of a pin's name and a
    reason."""
    reasons_given = [
        f"{n} is pinned to a schedule that failed its full check ({why})" for n, why in failed
    ]
    if reasons_given:
        raise VerificationFailed(
            "; ".join(reasons_given), advice="`tilewright lock --upgrade` pins what is best now."
        )


def unverified_note(best: TuningRecord | None, claims: int, toolchain: Toolchain) -> str:
    """Return a note on the records that `verify` must check before `toolchain` can serve them, or
    "".

    The note is about `best` if another toolchain made it. Without a `best`, it is about `claims`,
    the number of imported records.
    """
    if best is not None and not same_toolchain(best.toolchain, toolchain):
        return f"the stored best was made by {toolchain_text(best.toolchain)}"
    if best is None and claims:
        records = "1 imported record waits" if claims == 1 else f"{claims} imported records wait"
        return f"{records} to be verified"
    return ""


def why_none_passed(checks: FullChecks, toolchain: Toolchain) -> str:
    return all_failed_message([str(failed) for failed in checks.failures(toolchain)])


def rejection_reasons(report: Mapping[str, Any]) -> list[str]:
    """Return why each rejected candidate in a report (as JSON data) was rejected."""
    rejected = report.get("rejected") or ()  # absent in reports of older versions
    return [f"{r['status']}: {r['detail']}" if r["detail"] else r["status"] for r in rejected]


def all_failed_message(reasons: Iterable[str]) -> str:
    """Return a message with each distinct reason, or "" if there are no reasons."""
    reasons_given = list(reasons)
    if not reasons_given:
        return ""
    each = "; ".join(dict.fromkeys(reasons_given))
    return f"tuned, but every candidate failed the full check: {each}"
