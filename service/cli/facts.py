"""Results as lines of a name and a value, without a library for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tilewright.schedules.record import Evidence
from tilewright.service.units import byte_size, duration, speed

Document = Mapping[str, Any]

Rows: TypeAlias = Sequence[tuple[str, str]]


def plain(rows: Rows) -> str:
    """Format lines of a name and a value, with aligned values."""
    width = max((len(name) for name, _ in rows), default=0)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in rows)


def answer_rows(answer: Document) -> Rows:
    """Return the rows for a stored or default answer."""
    workload = answer["workload"]
    flops = float(workload.get("flops") or 0)
    rows = [("workload", workload_title(workload)), ("grade", grade_text(answer))]
    if answer.get("run_secs") is not None:
        rows.append(
            ("run time", f"{duration(answer['run_secs'])}, {speed(flops, answer['run_secs'])}")
        )
        rows += packing_rows(answer)
    if answer.get("rewritten"):
        rows += rewritten_rows(answer["rewritten"])
    made_for = answer.get("made_for")
    if made_for:
        rows.append(("made for", f"{made_for['cpu']}, {threads_text(made_for['threads'])}"))
    if answer.get("record_key"):
        rows.append(("record", str(answer["record_key"])))
        rows.append(("verified", "yes" if answer["verified"] else "no: " + str(answer["note"])))
        rows += evidence_rows(answer)
    file = answer.get("artefacts", {}).get("object")
    if file:
        rows.append(("object", f"{file['name']}, {byte_size(file['bytes'])}, {file['key']}"))
    return rows


def workload_title(workload: Document) -> str:
    return str(workload.get("name") or workload.get("key", ""))


def evidence_rows(found: Document) -> list[tuple[str, str]]:
    """Return the row for the extent of a full check, if it is known."""
    evidence = found.get("evidence")
    return [("compared", str(Evidence(**evidence)))] if evidence else []


def rewritten_rows(rewritten: Document) -> list[tuple[str, str]]:
    """Return the rows for the rewrites, with their proven error and the measured error."""
    found = rewritten["error_found"]
    error = (
        f"at most {rewritten['error_stated']:.2g} of max|data| * sum|weight|"
        f" (allowed: {rewritten['error_allowed']:g});"
        f" {'none measured' if found is None else f'found: {found:.2g}'}"
    )
    return [("rewritten", "; ".join(rewritten["steps"])), ("error", error)]


def threads_text(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def packing_rows(found: Document) -> list[tuple[str, str]]:
    """Return the row for the time of a call that packs constant inputs itself, if it was
    measured."""
    secs = found.get("run_secs_with_packing")
    return [] if secs is None else [("with packing", f"{duration(secs)} per call with packing")]


def grade_text(answer: Document) -> str:
    note = f" ({answer['note']})" if answer.get("note") else ""
    return f"{answer['grade']}{note}"
