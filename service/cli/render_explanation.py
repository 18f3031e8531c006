"""The result of `explain` as a table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from tilewright.service.cli.facts import Document, threads_text, workload_title
from tilewright.service.cli.render import facts, grid
from tilewright.service.units import duration, percent, speed

MAX_COMPONENTS = 3
"""Number of predicted components in the summary."""


def explanation_table(document: Document) -> RenderableType:
    """Render the schedule with its bound, then the time that each of its choices saves."""
    best, bound, target = document["best"], document["bound"], document["target"]
    flops = float(document["workload"]["flops"])
    rows = [
        ("workload", workload_title(document["workload"])),
        ("target", f"{target['cpu']}, {threads_text(target['threads'])}"),
        ("schedule", best["record_key"] or "chosen without measurement"),
        ("run time", f"{duration(best['run_secs'])}, {speed(flops, best['run_secs'])}"),
        (
            "bound",
            f"{duration(bound['secs'])} ({bound['binds']}-bound), "
            f"{percent(bound['fraction'])} of it reached",
        ),
    ]
    parts = list(bound["predicted_secs"].items())[:MAX_COMPONENTS]
    if parts:
        rows.append(("predicted", ", ".join(f"{name} {duration(secs)}" for name, secs in parts)))
    rows += [("bound", str(note)) for note in bound["notes"]]
    if document["mocked"]:
        rows.append(("verified", "no: timings are mocked, not measured"))
    table = grid(
        ["choice", "without it", "time", "slower by", "from", "to"],
        [_row(step) for step in document["steps"]],
        words=2,
    )
    return Group(facts(rows), table, Text("\n".join(_notes(document)), style="dim"))


def _row(step: Document) -> list[str]:
    also = f" (with {'; '.join(step['also'])})" if step["also"] else ""
    undone = f"{step['undone']}{also}"
    if step["slower_by"] is None:
        return [step["step"], f"{undone}: {step['status']}, {step['detail']}", "", "", "", ""]
    times = [f"{step[name]:.2f}x" for name in ("slower_by", "slower_low", "slower_high")]
    return [step["step"], undone, duration(step["run_secs"]), *times]


def _notes(document: Document) -> list[str]:
    """Return remarks on the race and advice."""
    rounds = document["rounds"]
    notes = [f"the median ratio of {rounds} paired timings, and its interval"]
    if not document["steps"]:
        notes = ["nothing to undo: every choice has its plain value"]
    if document["left_out"]:
        notes.append(f"not raced: {document['left_out']} choices with smaller predicted effects")
    if not document["by_setting"]:
        notes.append("the setting of this schedule is unknown: single steps are left out instead")
    highest = [step["slower_high"] for step in document["steps"]]
    if any(ratio is not None and ratio < 1 for ratio in highest):
        notes.append("a schedule without one of the choices is faster: run `tilewright tune` again")
    return notes
