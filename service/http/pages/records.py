"""`/records/{key}` and `/compare`: one record in full, or two records in one table."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.service.answers.grades import same_toolchain
from tilewright.service.answers.links import links
from tilewright.service.errors import InvalidField, NotFound
from tilewright.service.http.deps import State, checked_key
from tilewright.service.http.pages.commands import record_commands
from tilewright.service.http.pages.hot_loop import HotLoop, hot_loop
from tilewright.service.http.pages.inspector import Document, shared
from tilewright.service.http.pages.job_form import form_query, spelled
from tilewright.service.http.pages.machines import is_probed, this_machine
from tilewright.service.http.pages.render import page, wants_part
from tilewright.service.http.pages.roofline import Roofline, level_of, roofline
from tilewright.service.http.pages.views import Check, Pair, RecordView, made_by
from tilewright.service.http.state import ServiceState
from tilewright.service.resolve import toolchains
from tilewright.service.units import duration, speed

OTHERS = 8
MOST_LINES = 6000
"""The largest number of lines of a listing on a page. Files have all lines."""

router = APIRouter(include_in_schema=False)


@router.api_route("/records/{key}", methods=["GET", "HEAD"])
def record_page(request: Request, state: State, key: str) -> HTMLResponse:
    """One record: its speed, its checks, its schedule."""
    view = _view(state, key)
    record = view.record
    native = _native(record) is not None
    others = state.store.catalogue.fastest_records(
        record.workload_key, record.target_key, OTHERS, besides=record.trace
    )
    return page(
        request,
        "record.html",
        record=view,
        again=_again(state, view, native),
        others=others,
        elsewhere=[
            best
            for best in state.store.best_elsewhere(record.workload_key, record.target_key)
            if best.record.key != view.key
        ][:OTHERS],
        explanation=state.store.explanation(view.key),
        history=state.store.best_history(record.workload_key, record.target_key),
        commands=record_commands(
            view.name,
            record.workload_key,
            view.key,
            record.threads,
            best=view.is_best,
            native=native,
        ),
    )


def _again(state: ServiceState, view: RecordView, native: bool) -> str:
    """Return the query that opens the form for a new job with the record's task."""
    document = _document(state, view.record)
    return form_query({
        "workload": spelled(view.name, view.record.workload_key, document["workload"]),
        "threads": view.record.threads if native else None,
        "target": None if native else json.dumps(document["target"]),
    })  # fmt: skip


@router.get("/records/{key}/nests")
def nests(request: Request, state: State, key: str) -> Response:
    """The loop nests before and after the schedule, computed on demand."""
    view = _view(state, key)
    shown = shared().show("nests", view.key, _document(state, view.record))
    texts = {side: _cut(shown[side]) for side in ("before", "after")}
    return _part(request, view, "_nests.html", nests=texts)


@router.get("/records/{key}/assembly")
def assembly(request: Request, state: State, key: str) -> Response:
    """The assembly, with its hot loop marked."""
    view = _view(state, key)
    text = shared().show("assembly", view.key, _document(state, view.record))["text"]
    return _part(request, view, "_assembly.html", listing=_listing(text))


@router.get("/records/{key}/roofline")
def roof(request: Request, state: State, key: str) -> Response:
    """The kernel in the roofline of its machine."""
    view = _view(state, key)
    document = _document(state, view.record)
    native = None if view.mocked else _native(view.record)
    if native is not None and is_probed(native.to_json()):  # it has the latest probes
        document["target"] = native.to_json()
    # Probes are not part of a target's key, so the whole target is hashed.
    work = hashlib.sha256(canonical_bytes([document["workload"], document["target"]])).hexdigest()
    limits = shared().show("limits", work, document)
    return _part(request, view, "_roof.html", limits=limits, drawing=_drawing(limits, view))


@router.get("/compare")
def compare(
    request: Request,
    state: State,
    a: Annotated[str, Query(max_length=100)] = "",
    b: Annotated[str, Query(max_length=100)] = "",
    key: Annotated[list[str] | None, Query(max_length=20)] = None,
) -> Response:
    """Two records in one table: `?a=KEY&b=KEY`, or two times `key`, as a form sends it."""
    chosen = [text for text in (a, b, *(key or [])) if text]
    if len(chosen) != 2:
        raise InvalidField(
            f"compare: two records are needed; got {len(chosen)}",
            code="two_needed",
            advice="Select two in a list of records, or open /compare?a=KEY&b=KEY.",
        )
    if not (a and b):
        return RedirectResponse(f"/compare?a={chosen[0]}&b={chosen[1]}", status_code=303)
    left, right = _view(state, a), _view(state, b)
    return page(
        request,
        "compare.html",
        left=left,
        right=right,
        pairs=_pairs(left, right),
        steps=_step_pairs(left.steps, right.steps),
    )


def _view(state: ServiceState, key: str) -> RecordView:
    name = "sha256:" + checked_key(key, "record").removeprefix("sha256:")
    record = state.store.record(name)
    if record is None:
        raise NotFound(f"record {name}: not stored here", advice="Search at `/workloads`.")
    entry = state.store.workload(record.workload_key)
    target = state.store.target(record.target_key)
    if entry is None or target is None:
        raise NotFound(
            f"record {name}: its workload or target cannot be read",
            advice="`tilewright db check` lists the damage.",
        )
    best = state.store.best(record.workload_key, record.target_key)
    withdrawn = state.store.catalogue.withdrawn(name)
    return RecordView(
        key=name,
        record=record,
        name=entry.name or entry.key,
        flops=float(entry.flops),
        target=target,
        best_key=best.key if best is not None else "",
        withdrawn=withdrawn,
        files=links(state.store.artefacts(name)),
        steps=_steps(record),
        checks=_checks(record, withdrawn),
    )


def _steps(record: TuningRecord) -> tuple[str, ...]:
    try:
        return tuple(str(step) for step in Trace.from_json(record.trace).steps)
    except ScheduleError:  # of another version: show the stored steps
        return tuple(str(step) for step in record.trace)


def _checks(record: TuningRecord, withdrawn: str | None) -> tuple[Check, ...]:
    """Return the checks of a record; a withdrawal is the last one."""
    mocked = record.toolchain.codegen_version == 0
    level, passed = record.verified_level, record.result.ok
    quick = "none" if mocked else ("yes" if passed and level in ("quick", "full") else "no")
    full = "none" if mocked else ("yes" if passed and level == "full" else "no")
    ours = "none" if mocked else (
        "yes" if same_toolchain(record.toolchain, toolchains.toolchain()) else "no"
    )  # fmt: skip
    found = [
        Check("Exact inputs", quick, "small integers; all bits of the result are right"),
        Check("Poison and guard pages", quick, "exactly the elements of the output are written"),
        Check("Rebuilt in a fresh process", full, "compiled again from the trace, checked again"),
        Check("Real inputs", full, "errors are within a bound derived for this computation"),
        Check("Made by the installed toolchain", ours, "if not, it is verified before it is used"),
    ]
    if level == "imported":
        found.append(Check("Measured here", "no", "imported: a claim until it is verified here"))
    if withdrawn is not None:
        found.append(Check("Withdrawn", "no", withdrawn))
    return tuple(found)


def _document(state: ServiceState, record: TuningRecord) -> Document:
    entry, target = state.store.workload(record.workload_key), state.store.target(record.target_key)
    assert entry is not None
    assert target is not None
    return {"workload": entry.document, "target": target, "trace": record.trace}


def _part(request: Request, view: RecordView, template: str, **values: Any) -> Response:
    """Return a part of the record's page, or a whole page for clients without scripts."""
    if wants_part(request):
        return page(request, template, record=view, **values)
    return page(request, "record_part.html", record=view, part=template, **values)


def _cut(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return text
    return "\n".join([*lines[:MOST_LINES], f"// {len(lines) - MOST_LINES} more lines"])


def _listing(text: str) -> dict[str, Any]:
    """Return the lines before, in and after the hot loop."""
    lines = text.splitlines()
    found = hot_loop(text)
    shown = HotLoop(0, -1, 0, 0) if found is None else found
    before, after = lines[: shown.first], lines[shown.last + 1 :]
    near = max(len(before) - MOST_LINES // 2, 0)
    cut = max(len(after) - MOST_LINES // 2, 0)
    return {
        "loop": found,
        "lines": len(lines),
        "cut_before": near,
        "before": "\n".join(before[near:]),
        "hot": "\n".join(lines[shown.first : shown.last + 1]),
        "after": "\n".join(after[: len(after) - cut]),
        "cut_after": cut,
    }


def _native(record: TuningRecord) -> Target | None:
    """Return the machine of this service if it is the record's target, else None."""
    machine = this_machine()
    if machine is None or record.threads > machine.cores:
        return None
    machine = machine.with_threads(record.threads)
    return machine if machine.key == record.target_key else None


def _drawing(limits: Document, view: RecordView) -> Roofline | None:
    return roofline(
        limits["peak_gflops"],
        limits["bandwidth_gbs"],
        limits["flops"],
        limits["min_bytes"],
        [("this record", "best", view.run_secs)] if view.run_secs else [],
        level_of(limits["binds"], limits["bound_secs"], limits["min_bytes"]),
    )


def _pairs(left: RecordView, right: RecordView) -> list[Pair]:
    def facts(view: RecordView) -> list[tuple[str, str]]:
        record, target = view.record, view.target
        return [
            ("Workload", view.name),
            ("Machine", f"{target['cpu']}, {_threads(record.threads)}"),
            ("Per call", duration(view.run_secs)),
            ("Speed", speed(view.flops, view.run_secs)),
            ("Status", str(record.result.status)),
            ("Checked", record.verified_level),
            ("Best of its task", "yes" if view.is_best else "no"),
            ("Trial, seed", f"{record.trial}, {record.seed}"),
            ("Made by", made_by(record)),
            ("Steps", str(len(view.steps))),
        ]

    both = zip(facts(left), facts(right), strict=True)
    return [Pair(name, one, other) for (name, one), (_, other) in both]


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _step_pairs(left: tuple[str, ...], right: tuple[str, ...]) -> list[Pair]:
    """Return the steps of both schedules; equal steps are on the same line."""
    from difflib import SequenceMatcher

    found: list[Pair] = []
    for _, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for index in range(max(b - a, d - c)):
            one = left[a + index] if a + index < b else ""
            other = right[c + index] if c + index < d else ""
            found.append(Pair(str(len(found) + 1), one, other))
    return found
