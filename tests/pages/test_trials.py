"""All trials of a job as a table and as CSV, what settings explain, two jobs side by side."""

from __future__ import annotations

import csv
import io
import re
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import bearer, make_key
from tests.support.service.pages import HOSTILE, run_trials, stored_job
from tilewright.db import Store
from tilewright.db.values.job_states import JobState
from tilewright.service.http.app import create_app
from tilewright.service.http.pages.importance import LEAST_TRIALS, importances
from tilewright.service.http.pages.trials import TrialRow, _lines
from tilewright.service.settings import Settings

COUNT = 12


@pytest.fixture
def job_id(store: Store, settings: Settings) -> str:
    job = stored_job(store, settings, trials=COUNT)
    run_trials(store, job, COUNT, end=JobState.SUCCEEDED)
    return job.id


def rows_in(page: str) -> list[list[str]]:
    body = page.partition('<table class="all">')[2].partition("</table>")[0]
    return [
        [re.sub("<[^>]*>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", body, re.S)
    ]


def secs_of(text: str) -> float:
    number, _, unit = text.partition(" ")
    return float(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]


def test_the_table_has_every_trial_and_sorts_by_any_column(pages: TestClient, job_id: str) -> None:
    page = pages.get(f"/jobs/{job_id}/trials").text
    rows = rows_in(page)
    assert [int(row[0]) for row in rows] == list(range(1, COUNT + 1))
    heads = re.findall(r'<a href="\?([^"]*)">', page)
    assert len(heads) >= 7
    for head in heads:
        query = head.replace("&amp;", "&")
        sorted_page = pages.get(f"/jobs/{job_id}/trials?{query}").text
        assert len(rows_in(sorted_page)) == COUNT
        assert "aria-sort" in sorted_page
    for order, sign in (("up", 1), ("down", -1)):
        found = rows_in(pages.get(f"/jobs/{job_id}/trials?sort=time&order={order}").text)
        times = [secs_of(row[2]) for row in found if row[2] != "–"]
        assert times == sorted(times, key=lambda secs: sign * secs)
        assert [row[2] for row in found[len(times) :]] == ["–"] * (COUNT - len(times)), (
            "those without a time stand last, whichever way it is sorted"
        )
    assert rows_in(pages.get(f"/jobs/{job_id}/trials?sort={HOSTILE}").text) == rows


def test_the_csv_has_every_trial_in_the_names_of_records(
    pages: TestClient, store: Store, job_id: str
) -> None:
    answer = pages.get(f"/jobs/{job_id}/trials.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert f"trials-{job_id}.csv" in answer.headers["content-disposition"]
    found = list(csv.DictReader(io.StringIO(answer.text)))
    assert [int(row["trial"]) for row in found] == list(range(1, COUNT + 1))
    records = dict(store.job_trials(job_id))
    for row in found:
        record = records[int(row["trial"])]
        assert row["status"] == str(record.result.status)
        assert row["record_key"] == record.key
        told = record.result.run_secs_estimate
        assert (float(row["run_secs"]) if row["run_secs"] else None) == told


def test_a_text_that_a_spreadsheet_would_compute_is_text() -> None:
    row = TrialRow(1, "ok", 1e-3, "sha256:0", "quick", sketch="=HYPERLINK(1)", detail="@x, y")
    _, line = csv.reader(io.StringIO("".join(_lines(iter([row]), [], with_task=False))))
    assert line[-2:] == ["'=HYPERLINK(1)", "'@x, y"]


def test_a_job_without_trials_has_an_empty_table(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    job = stored_job(store, settings)
    assert "No trial has ended yet" in pages.get(f"/jobs/{job.id}/trials").text
    assert len(pages.get(f"/jobs/{job.id}/trials.csv").text.splitlines()) == 1
    assert "Not enough data" in pages.get(f"/jobs/{job.id}/importance").text


# What settings explain


def drawn(count: int, secs: Any, seed: int = 0) -> list[tuple[dict[str, int], float]]:
    chance = Random(seed)
    trials = []
    for _ in range(count):
        knobs = {"rows": chance.randrange(4), "unroll": chance.randrange(6), "fixed": 1}
        trials.append((knobs, secs(knobs, chance)))
    return trials


def test_what_decides_the_time_is_named_and_chance_is_not() -> None:
    decided = drawn(200, lambda knobs, chance: (1 + knobs["rows"]) * chance.uniform(1.0, 1.05))
    first, second = importances(decided)
    assert (first.name, first.values, first.best_value) == ("rows", 4, "0")
    assert first.share > 0.9
    assert second.name == "unroll"
    assert second.share < 0.05
    for seed in range(20):
        noise = drawn(60, lambda knobs, chance: chance.uniform(1.0, 2.0), seed)
        assert all(one.share < 0.35 for one in importances(noise)), "chance explains little"
    mean = sum(
        one.share for s in range(100)
        for one in importances(drawn(30, lambda knobs, chance: chance.random() + 1, s))
    ) / 200  # fmt: skip
    assert mean < 0.01


def test_one_slow_trial_does_not_make_its_setting_important() -> None:
    chance = Random(1)
    trials: list[tuple[dict[str, int], float]] = [
        ({"rows": n % 8, "unroll": n % 3}, chance.uniform(1.0, 1.1)) for n in range(31)
    ]
    trials.append(({"rows": 99, "unroll": 0}, 50.0))
    assert all(one.share < 0.4 for one in importances(trials))


def test_too_little_says_nothing() -> None:
    few = drawn(LEAST_TRIALS - 1, lambda knobs, chance: 1.0 + knobs["rows"])
    assert importances(few) == []
    same = drawn(40, lambda knobs, chance: 1.0)
    assert importances(same) == []
    assert importances([({}, 1.0 + n) for n in range(20)]) == []
    every_other = [({"trial": n}, 1.0 + n) for n in range(20)]
    assert importances(every_other) == [], "a value for each trial explains nothing"


# Two jobs


def test_two_jobs_stand_side_by_side(
    pages: TestClient, store: Store, settings: Settings, job_id: str
) -> None:
    other = stored_job(store, settings, trials=COUNT, seed=5)
    run_trials(store, other, 4)
    of_another = stored_job(store, settings, workload="matmul:M=8,N=8,K=12")
    page = pages.get(f"/jobs/{job_id}").text
    assert f'value="{other.id}"' in page
    assert of_another.id not in page
    sent = pages.get(f"/jobs/{job_id}/compare?b={other.id}")
    assert (sent.status_code, sent.headers["location"]) == (
        303,
        f"/jobs/compare?a={job_id}&b={other.id}",
    )
    shown = pages.get(sent.headers["location"]).text
    for words in (f"/jobs/{job_id}/trials.json", f"/jobs/{other.id}/trials.json", "seed 5"):
        assert words in shown
    strange = pages.get(f"/jobs/compare?a={job_id}&b={of_another.id}").text
    assert "their times are not comparable" in strange
    assert pages.get(f"/jobs/compare?a={job_id}&b={job_id}").status_code == 422
    assert pages.get(f"/jobs/compare?a={job_id}&b=x").status_code == 404


def test_another_owners_job_is_not_there_to_be_compared(store: Store, settings: Settings) -> None:
    mine, theirs = bearer(make_key(store)), bearer(make_key(store))
    with TestClient(create_app(settings, store)) as api:
        made = [
            api.post("/v1/jobs", json={"workload": f"matmul:M=8,N=8,K={k}", "target": "native"},
                     headers=key).json()["id"]
            for k, key in ((8, mine), (12, mine), (16, theirs))
        ]  # fmt: skip
        first, second, foreign = made
        ask = f"/jobs/compare?a={first}&b="
        assert api.get(ask + second, headers=mine).status_code == 200
        assert api.get(ask + foreign, headers=mine).status_code == 404
        assert api.get(f"/jobs/compare?a={foreign}&b={first}", headers=mine).status_code == 404


# What decided


@pytest.mark.parametrize(
    ("race", "says"),
    [
        ([{"trial": 3, "run_secs": 1e-6}, {"trial": 1, "run_secs": 2e-6}],
         "a final race of 2 candidates: trial 3 1 us, trial 1 2 us"),
        ([{"trial": 2, "run_secs": 1e-6}, {"trial": 3, "run_secs": 2e-6}],
         "trial 3 is the fastest that passed the full check"),
        ([{"trial": None, "run_secs": 1e-6}, {"trial": 3, "run_secs": 2e-6}],
         "one of an earlier run 1 us"),
        ([], "the search: no other candidate"),
        (None, "not recorded by the version"),
    ],
)  # fmt: skip
def test_a_job_says_what_made_its_best_the_best(
    pages: TestClient, store: Store, settings: Settings, race: list[Any] | None, says: str
) -> None:
    job = stored_job(store, settings, seed=4)
    told = {} if race is None else {"final_race": race}
    run_trials(store, job, 3, end=JobState.SUCCEEDED, **told)
    shown = pages.get(f"/jobs/{job.id}").text
    assert says in shown
    assert "From submission to the end" in shown
