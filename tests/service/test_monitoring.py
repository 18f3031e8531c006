"""The dashboard and the alert rules name what `/metrics` has, as Prometheus takes it.

The service tells of one of everything here, so that each metric and label that exists is seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.paths import ROOT
from tilewright.db.values.job_states import JobState
from tilewright.schedules.record import MeasureStatus
from tilewright.service.cli import run
from tilewright.service.http.metrics import Metrics
from tilewright.service.jobs.counters import Counters
from tilewright.service.jobs.heartbeat import Role
from tilewright.service.jobs.supervisor import WorkerHealth
from tilewright.service.monitoring import monitoring_dir

SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds to what it reads."""

AGGREGATIONS = {"sum", "max", "topk"}
OF_RANGES = {"rate", "increase"}
FUNCTIONS = AGGREGATIONS | OF_RANGES | {"histogram_quantile", "label_values"}
WORDS = {"by", "and", "or", "unless", "on", "ignoring"}
TOKEN = re.compile(
    r'\s*(?:(?P<string>"[^"]*")|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])'
    r"|(?P<name>[a-zA-Z_]\w*)|(?P<number>\d+(?:\.\d+)?)|(?P<sign>=~|!~|!=|==|>=|[-+*/><=,(){}]))"
)
VALUES = {
    "state": {str(state) for state in JobState},
    "role": {str(role) for role in Role},
    "status": {str(status) for status in MeasureStatus} | {"500"},
    "job": {"tilewright"},
}


@dataclass(frozen=True, slots=True)
class Known:
    """A sample of `/metrics`: its labels, and whether it only ever grows."""

    labels: frozenset[str]
    grows: bool


@pytest.fixture(scope="module")
def known() -> dict[str, Known]:
    metrics, counters = Metrics(), Counters()
    metrics.request("GET", "/", 200, 0.1)
    metrics.waited("/", 0.1)
    metrics.answer("exact")
    counters.trial("ok")
    counters.job("SUCCEEDED", 2.0, 1.0)
    metrics.worker_counts(counters.take())
    return {"up": Known(frozenset(SCRAPED), grows=False), **_samples(metrics)}


class _EmptyStore:
    """As much of a store as a scrape asks."""

    def counts(self) -> Any:
        return type("Counts", (), {"records": 0})

    def job_counts(self) -> dict[JobState, int]:
        return dict.fromkeys(JobState, 0)

    def oldest_jobs(self) -> dict[JobState, Any]:
        return {}

    def preparation_counts(self) -> dict[str, int]:
        return {"READY": 0}

    def used_bytes(self) -> int:
        return 0


def _samples(metrics: Metrics) -> dict[str, Known]:
    store: Any = _EmptyStore()
    assert metrics.look_at(store, 0)
    text = metrics.exposition(WorkerHealth(True, 1, 0), version="1", with_store=True).decode()
    return {
        sample.name: Known(frozenset(sample.labels), family.type in ("counter", "histogram"))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rules() -> list[dict[str, Any]]:
    found = yaml.safe_load((monitoring_dir() / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in found["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((monitoring_dir() / "grafana.json").read_text("utf-8"))
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def tokens(expression: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(expression.rstrip()):
        match = TOKEN.match(expression, at)
        assert match, f"not PromQL at {expression[at:]!r}"
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def faults(expression: str, known: dict[str, Known]) -> list[str]:
    """What Prometheus would refuse, or answer with nothing for ever."""
    parts = tokens(expression)
    found: list[str] = []
    open_brackets: list[tuple[str, str]] = []  # each with the function it belongs to
    metric, used, by = "", set(SCRAPED), set[str]()
    for number, (kind, text) in enumerate(parts):
        before = parts[number - 1][1] if number else ""
        after = parts[number + 1] if number + 1 < len(parts) else ("", "")
        if text in "({":
            open_brackets.append((text, before))
        elif text in ")}":
            if not open_brackets or open_brackets.pop()[0] != {")": "(", "}": "{"}[text]:
                found.append(f"{text} closes nothing")
        elif kind == "range":
            functions = [name for _, name in open_brackets]
            if not functions or functions[-1] not in OF_RANGES:
                found.append(f"a range of {metric} outside of rate and increase")
        elif kind == "name":
            inside = open_brackets[-1] if open_brackets else ("", "")
            if inside[0] == "{":
                if after[1] not in ("=", "!=", "=~", "!~"):
                    found.append(f"{text} in braces is no comparison")
                if metric in known and text not in known[metric].labels | SCRAPED:
                    found.append(f"{metric} has no label {text}")
                value = parts[number + 2][1].strip('"')
                if after[1] == "=" and text in VALUES and value not in VALUES[text]:
                    found.append(f"{text} is never {value}")
            elif inside[1] == "by":
                by.add(text)
            elif after[1] == "(" or after[1] == "by":
                if text not in FUNCTIONS | WORDS:
                    found.append(f"{text} is no function")
            elif text not in WORDS:
                metric = text
                if metric not in known:
                    found.append(f"there is no {metric}")
                    continue
                used |= known[metric].labels
                function = inside[1]
                if known[metric].grows != (function in OF_RANGES):
                    found.append(f"{metric} wants rate or increase, or does not")
    found += [f"{what} is open" for what, _ in open_brackets]
    return found + [f"nothing has the label {label}" for label in sorted(by - used)]


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(rate(tilewright_trials_total[5m]))", None),
        ("sum(rate(tilewright_trails_total[5m]))", "there is no tilewright_trails_total"),
        ("sum(tilewright_trials_total)", "wants rate"),
        ("rate(tilewright_records[5m])", "wants rate"),
        ("tilewright_records[5m]", "outside of rate"),
        ('max(tilewright_open_jobs{status="QUEUED"})', "has no label status"),
        ('max(tilewright_open_jobs{state="WAITING"})', "state is never WAITING"),
        ("max by (route) (tilewright_open_jobs)", "nothing has the label route"),
        ("median(tilewright_open_jobs)", "median is no function"),
        ("max(tilewright_open_jobs", "( is open"),
        ("max(tilewright_open_jobs))", ") closes nothing"),
    ],
)
def test_the_checker_finds_what_would_never_answer(
    known: dict[str, Known], expression: str, fault: str | None
) -> None:
    found = faults(expression, known)
    assert (found == []) if fault is None else any(fault in one for one in found), found


def test_every_expression_names_what_metrics_have(known: dict[str, Known]) -> None:
    wrong = {what: found for what, text in expressions() if (found := faults(text, known))}
    assert wrong == {}
    named = {text for _, one in expressions() for kind, text in tokens(one) if kind == "name"}
    families = {re.sub(r"_(total|bucket|count|sum|created)$", "", name) for name in known}
    shown = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in named}
    assert families - shown == set(), "each metric is looked at"


def test_alerts_say_what_is_wrong_and_what_to_do(known: dict[str, Known]) -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 10
    for rule in rules():
        assert re.fullmatch(r"Tilewright[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}
        labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        aggregated = re.search(r"\bby \(([^)]*)\)", rule["expr"])
        kept = set(aggregated[1].replace(" ", "").split(",")) if aggregated else SCRAPED
        dropped = re.match(r"(sum|max)\(", rule["expr"])
        assert labels <= (set() if dropped and not aggregated else kept)


def test_panels_lie_beside_each_other_and_have_their_units() -> None:
    panels = dashboard()["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_folder_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitoring-dir", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"monitoring_dir": str(monitoring_dir())}


def test_documents_list_every_metric(known: dict[str, Known]) -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    families = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in known} - {"up"}
    assert {name for name in families if name not in text and f"{name}_total" not in text} == set()
