"""Schedules that failed their full check: they are never served, and messages state the reason."""

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

# Start-up: a query parses no schedules; functions that do import the parser.

AS_WRITTEN = "the untransformed expression"
UNMEASURED = "chosen without measurement"


def safe_trace(
    workload: Workload, chosen: Trace, checks: FullChecks, toolchain: Toolchain
) -> tuple[Trace, str]:
    """Return the schedule `chosen` without measurement, and a note. If it failed its full check
    under `toolchain`, return the untransformed expression instead. Raise NoAnswer if that failed as
    well."""
    from tilewright.schedules.trace import Trace

    failed = checks.refusal(chosen.to_json(), toolchain)
    if failed is None:
        return chosen, UNMEASURED
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
    """Return the failed check because of which a stored record is not served (of the code that was
    measured, or of the code that `toolchain` generates for a target), or None if there is none."""
    made = store.full_checks(record.workload_key, record.target_key)
    here = store.full_checks(record.workload_key, target_key)
    return made.refusal(record.trace, record.toolchain) or here.refusal(record.trace, toolchain)


def refuse_pins(failed: Iterable[tuple[str, str]]) -> None:
    """Raise VerificationFailed with each pin that failed and the result of its full check, if there
    is any."""
    reasons_given = [
        f"{n} is pinned to a schedule that failed its full check ({why})" for n, why in failed
    ]
    if reasons_given:
        raise VerificationFailed(
            "; ".join(reasons_given), advice="`tilewright lock --upgrade` pins what is best now."
        )


def unverified_note(best: TuningRecord | None, claims: int, toolchain: Toolchain) -> str:
    """Return a note on stored records that `verify` could turn into an answer although `toolchain`
    did not check them (the best, or a number of imported records), or "" if there are none."""
    if best is not None and not same_toolchain(best.toolchain, toolchain):
        return f"the stored best was made by {toolchain_text(best.toolchain)}"
    if best is None and claims:
        records = "1 imported record waits" if claims == 1 else f"{claims} imported records wait"
        return f"{records} to be verified"
    return ""


def why_none_passed(checks: FullChecks, toolchain: Toolchain) -> str:
    """Return why a search found no best record, or "" if no full check failed."""
    return all_failed_message([str(failed) for failed in checks.failures(toolchain)])


def rejection_reasons(report: Mapping[str, Any]) -> list[str]:
    """Return why each rejected candidate of a report (a document) was rejected."""
    rejected = report.get("rejected") or ()  # absent in reports of older versions
    return [f"{r['status']}: {r['detail']}" if r["detail"] else r["status"] for r in rejected]


def all_failed_message(reasons: Iterable[str]) -> str:
    """Return `tuned, but every candidate failed the full check: ...`, each reason once, or "" for
    no reasons."""
    reasons_given = list(reasons)
    if not reasons_given:
        return ""
    each = "; ".join(dict.fromkeys(reasons_given))
    return f"tuned, but every candidate failed the full check: {each}"
