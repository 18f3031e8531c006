"""Every page as the server makes it: what it says, what it escapes, what it is sent with."""

from __future__ import annotations

import html
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from fastapi.testclient import TestClient

from tests.support.service.pages import HOSTILE, best_of, run_trials, stored_job
from tests.support.service.records import HOST, MATMUL, TOOLCHAIN
from tilewright.db import Store
from tilewright.db.values.job_states import JobState
from tilewright.service.http.app import create_app
from tilewright.service.http.pages.assets import FOLDER, assets
from tilewright.service.http.pages.job_form import form_view
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings
from tilewright.tuner.machine.native_target import native_target

NOBODY = "0" * 26
NO_KEY = "0" * 64


class Reader(HTMLParser):
    """Elements with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def every_page(store: Store, settings: Settings) -> list[str]:
    """Paths of all pages and parts, with something hostile to show on each."""
    waiting = stored_job(store, settings, name=HOSTILE, seed=1)
    done = stored_job(store, settings, name=HOSTILE, seed=2)
    store.request_cancel(waiting.id)
    run_trials(store, done, 8, end=JobState.SUCCEEDED)
    running = stored_job(store, settings, name=HOSTILE, seed=3)
    run_trials(store, running, 5)
    one = best_of(store, name=HOSTILE, workload="matmul:M=8,N=8,K=12")
    two = best_of(store, workload="matmul:M=8,N=8,K=12", secs=5e-4, trial=2)
    return [
        "/", "/?q=matmul&only=RUNNING", "/jobs/list", "/jobs/new",
        "/jobs/new?" + urlencode({"workload": HOSTILE, "target": HOSTILE, "trials": HOSTILE}),
        f"/jobs/{waiting.id}", f"/jobs/{done.id}", f"/jobs/{running.id}",
        f"/jobs/{running.id}/facts", "/workloads", "/workloads?q=x&cpu=y",
        f"/records/{one.key}", f"/records/{two.key}", f"/compare?a={one.key}&b={two.key}",
        "/fleet", "/fleet/machines", "/login", "/nothing", f"/jobs/{NOBODY}", f"/records/{NO_KEY}",
        "/compare",
    ]  # fmt: skip


def test_every_page_escapes_what_it_shows_and_forbids_the_rest(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    shown = 0
    for path in every_page(store, settings):
        answer = pages.get(path)
        assert answer.status_code in (200, 404, 422), (path, answer.text)
        assert answer.headers["content-type"].startswith("text/html"), path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "<script>alert" not in answer.text, path
        assert "49" not in re.findall(r"amp;(.*?)<", answer.text), "a template ran twice"
        shown += "&lt;script&gt;alert" in answer.text
        for tag, attributes in Reader(answer.text).elements:
            assert "style" not in attributes, f"{path}: an inline style on {tag}"
            assert not [name for name in attributes if name.startswith("on")], path
            assert tag != "script" or str(attributes.get("src")).startswith("/static/"), path
            for name in ("src", "href", "action", "hx-get", "hx-post"):
                target = attributes.get(name)
                assert target is None or re.match(r"/(?!/)|#", target), f"{path}: {target} outside"
    assert shown >= 8


def test_pages_are_whole_documents_with_a_title_a_language_and_a_way_past_the_menu(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    for path in every_page(store, settings):
        text = pages.get(path).text
        if text.lstrip().startswith("<!doctype"):
            elements = Reader(text).elements
            tags = [tag for tag, _ in elements]
            assert tags.count("h1") == 1, path
            assert tags.count("main") == 1
            assert ("html", {"lang": "en"}) in elements
            assert ("a", {"class": "skip", "href": "#main"}) in elements
            identities = [a["id"] for _, a in elements if "id" in a]
            assert len(identities) == len(set(identities)), path
            labelled = {a.get("for") for tag, a in elements if tag == "label"}
            for tag, attributes in elements:
                if tag in ("input", "select", "textarea") and attributes.get("type") != "hidden":
                    assert "aria-label" in attributes or attributes.get("id") in labelled, path


def test_no_asset_names_another_place() -> None:
    # A licence, a comment that says where a library comes from, and XML's name of SVG load nothing.
    harmless = {"https://github.com/leeoniya/uPlot", "http://www.w3.org/2000/svg"}
    for asset in assets().values():
        if not asset.name.endswith(".txt"):
            found = re.findall(rb"https?://[\w./-]+|url\([^)]*\)|@import", asset.data)
            assert {text.decode() for text in found} <= harmless, asset.name
    assert {path.name for path in FOLDER.iterdir()} == set(assets())


def test_assets_are_kept_for_ever_under_their_own_name(pages: TestClient) -> None:
    for asset in assets().values():
        answer = pages.get(asset.url)
        assert answer.status_code == 200
        assert answer.content == asset.data
        assert "immutable" in answer.headers["cache-control"]
        stale = pages.get(f"/static/{asset.name}?v=other")
        assert stale.headers["cache-control"] == "no-cache"
        fresh = pages.get(asset.url, headers={"if-none-match": answer.headers["etag"]})
        assert fresh.status_code == 304
    assert pages.get("/static/..%2frender.py").status_code == 404
    assert pages.get("/static/nothing.js").status_code == 404


def test_errors_are_pages_for_browsers_and_documents_for_programs(pages: TestClient) -> None:
    for path in ("/nothing", f"/jobs/{NOBODY}", f"/records/{NO_KEY}", f"/v1/records/{NO_KEY}"):
        page = pages.get(path)
        assert page.status_code == 404
        assert page.headers["content-type"].startswith("text/html")
        for accept in ("*/*", "application/json", "application/json, text/html;q=0.5", ""):
            document = pages.get(path, headers={"accept": accept})
            assert document.headers["content-type"] == "application/problem+json", accept
            assert document.status_code == 404
            assert document.json()["code"] == "not_found"
            assert html.escape(document.json()["detail"]) in page.text


def test_a_bug_is_a_page_with_its_request_id(store: Store, settings: Settings) -> None:
    app = create_app(settings, store)
    store.catalogue.jobs = None  # type: ignore[assignment, method-assign]
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/", headers={"accept": "text/html"})
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("text/html")
    assert "internal_error" in answer.text


def test_a_form_asks_for_the_job_that_the_api_would(pages: TestClient, store: Store) -> None:
    fields = {"workload": MATMUL, "trials": "7", "seconds": "2.5", "threads": "1", "seed": "3",
              "strategy": "random", "measurer": "simulated:fast.json"}  # fmt: skip
    answer = pages.post("/jobs", data=fields)
    assert answer.status_code == 303
    job = store.get_job(answer.headers["location"].removeprefix("/jobs/"))
    assert job is not None
    assert job.request["budget"] == {"trials": 7, "seconds": 2.5}
    assert (job.request["seed"], job.request["strategy"]) == (3, "random")
    assert job.request["measurer"].endswith("fast.json")
    body = {"workload": MATMUL, "budget": {"trials": 7, "seconds": 2.5}, "threads": 1, "seed": 3,
            "strategy": "random", "measurer": "simulated:fast.json"}  # fmt: skip
    same = pages.post("/v1/jobs", json=body)
    assert same.json()["id"] == job.id


@pytest.mark.parametrize(
    ("workload", "more", "name"),
    [
        ("matmul:M=4,N=4,K=4", {}, "matmul"),
        ("C[i,j] += A[i,k] * B[k,j]", {"tensors": "A=f32[4,8]\nB=f32[8,4]"}, ""),
        ("B[i] += A[i+r]", {"tensors": "A=f32[9]", "ranges": "r=3"}, ""),
        ('{"expr": "B[i] = 2 * A[i]", "tensors": {"A": "f32[9]"}}', {}, ""),
    ],
)
def test_every_spelling_of_a_workload_will_do(
    pages: TestClient, workload: str, more: dict[str, str], name: str
) -> None:
    checked = pages.post("/jobs/check", data={"workload": workload, **more})
    assert "operations" in checked.text
    assert name in checked.text
    assert pages.post("/jobs", data={"workload": workload, **more}).status_code == 303


def pasted(store: Store) -> dict[str, str]:
    """What programs write of the one workload that is stored."""
    record = best_of(store)
    out = io.StringIO()
    store.export(out)
    lines = out.getvalue().splitlines()
    kinds = {json.loads(line).get("kind", "header"): line for line in lines}
    document = json.loads(kinds["workload"])["document"]
    return {
        "the line of a workload": kinds["workload"],
        "the line of a record": kinds["record"],
        "a whole export": out.getvalue(),
        "a document": json.dumps(document),
        "a document on several lines": json.dumps(document, indent=2),
        "a key": record.workload_key,
        "a long key": f"sha256:{record.workload_key}",
        "a record": json.dumps({"key": record.key, **record.to_json()}),
        "a request": json.dumps({"workload": MATMUL, "budget": {"trials": 3}}),
        "an answer": json.dumps({"grade": "exact", "workload": {"key": record.workload_key}}),
        "an entry of a lock file": json.dumps({"name": "gemm", "workload": document}),
        "the only entry of many": json.dumps([{"workload": MATMUL, "weight": 2.0}]),
    }


def test_whatever_programs_write_of_a_workload_may_be_pasted(
    pages: TestClient, store: Store
) -> None:
    key = workloads.workload_of(MATMUL).key
    for what, text in pasted(store).items():
        checked = pages.post("/jobs/check", data={"workload": text, "trials": "5"})
        assert "operations" in checked.text, f"{what}: {checked.text}"
        made = pages.post("/jobs", data={"workload": text, "trials": "5"})
        assert made.status_code == 303, what
        job = store.get_job(made.headers["location"].rpartition("/")[2])
        assert job is not None
        assert job.request["workload_summary"]["key"] == key, what


def test_what_is_pasted_and_is_no_workload_is_said(pages: TestClient, store: Store) -> None:
    best_of(store)
    best_of(store, workload="matmul:M=8,N=8,K=12")
    out = io.StringIO()
    store.export(out)
    lines = {json.loads(line).get("kind", "header"): line for line in out.getvalue().splitlines()}
    for text, says in (
        (lines["target"], "only a header or targets"),
        (lines["header"], "only a header or targets"),
        (out.getvalue(), "it contains 2 workloads; paste the line of one"),
        ("f" * 64, "has no workload ffffffffff"),
        (
            json.dumps({"kind": "record", "record": {"workload_key": "e" * 64}}),
            "has no workload eeeeeeeeee",
        ),
        (json.dumps({"trials": 5}), "a JSON object with trials is not a workload"),
        ("[1]", "a JSON object is needed"),
        ("{}", "a JSON object with nothing is not a workload"),
    ):
        answer = pages.post("/jobs", data={"workload": text})
        assert answer.status_code in (400, 422), text
        assert says in html.unescape(answer.text), answer.text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"workload": ""}, "this field is required"),
        ({"workload": "matmul:M=8"}, "K"),
        ({"workload": HOSTILE}, "alert"),
        ({"workload": "{"}, "JSON"),
        ({"workload": MATMUL, "trials": "many"}, "whole number"),
        ({"workload": MATMUL, "trials": "0"}, "budget.trials"),
        ({"workload": MATMUL, "seconds": "soon"}, "number of seconds"),
        ({"workload": MATMUL, "seconds": "nan"}, "seconds"),
        ({"workload": MATMUL, "target": "[]"}, "JSON object"),
        ({"workload": MATMUL, "target": "no-such-machine"}, "target"),
        ({"workload": MATMUL, "threads": "4000"}, "threads"),
        ({"workload": MATMUL, "measurer": "simulated:../../etc/passwd"}, "measurer"),
        ({"workload": "C[i] = A[i]", "tensors": "A"}, "NAME=VALUE"),
        ({"workload": "C[i] = A[i]", "tensors": '"A'}, "tensors"),
    ],
)
def test_what_will_not_do_is_said_in_the_form_that_keeps_what_was_typed(
    pages: TestClient, store: Store, fields: dict[str, str], says: str
) -> None:
    answer = pages.post("/jobs", data=fields)
    assert answer.status_code in (400, 413, 422)
    reader = Reader(answer.text)
    assert says in reader.text
    assert [a for _, a in reader.elements if a.get("role") == "alert"]
    assert html.escape(fields["workload"], quote=False) in html.unescape(answer.text) or (
        fields["workload"] in html.unescape(answer.text)
    )
    assert not store.list_jobs().items
    assert says in Reader(pages.post("/jobs/check", data=fields).text).text


@pytest.mark.parametrize("path", ["/jobs", "/jobs/JOB/cancel", "/jobs/check", "/login", "/logout"])
def test_pages_of_other_origins_change_nothing(
    pages: TestClient, store: Store, settings: Settings, path: str
) -> None:
    job = stored_job(store, settings)
    fields = {"workload": "matmul:M=4,N=4,K=4", "key": "x"}
    for headers in (
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = pages.post(path.replace("JOB", job.id), data=fields, headers=headers)
        assert answer.status_code in (400, 403)
        assert "set-cookie" not in answer.headers
    assert [found.state for found in store.list_jobs().items] == [JobState.QUEUED]
    ours = {"origin": "http://testserver", "sec-fetch-site": "same-origin"}
    accepted = pages.post(path.replace("JOB", job.id), data=fields, headers=ours)
    assert accepted.status_code in (200, 303)


def test_a_form_is_read_within_limits(pages: TestClient) -> None:
    assert pages.post("/jobs", json={"workload": MATMUL}).status_code == 415
    assert pages.post("/jobs", data={"workload": "x" * (2 << 20)}).status_code == 413
    many = {f"field{number}": "x" for number in range(1000)}
    assert pages.post("/jobs", data=many).status_code == 400


def test_a_job_is_cancelled_from_its_page(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    job = stored_job(store, settings)
    assert f"/jobs/{job.id}/cancel" in pages.get(f"/jobs/{job.id}").text
    answer = pages.post(f"/jobs/{job.id}/cancel")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job.id}")
    assert "/cancel" not in pages.get(f"/jobs/{job.id}").text
    assert pages.post(f"/jobs/{NOBODY}/cancel").status_code == 404


def test_jobs_are_searched_and_paged(pages: TestClient, store: Store, settings: Settings) -> None:
    jobs = [stored_job(store, settings, seed=seed) for seed in range(30)]
    other = stored_job(store, settings, workload="softmax_mn:M=4,N=8")
    first = pages.get("/").text
    assert first.count('class="what"') == 25
    assert "6 more in the queue" in first
    queued = pages.get("/?only=QUEUED").text
    older = re.search(r'href="(/\?only=QUEUED&amp;after=\w+)" rel="next"', queued)
    assert older is not None
    assert pages.get(html.unescape(older[1])).text.count('class="what"') == 6
    for text in ("softmax", other.id.lower(), other.id, "SoftMax_mn"):
        found = pages.get("/jobs/list", params={"q": text}).text
        assert found.count('class="what"') == 1, text
        assert other.id in found
    assert "No job matches" in pages.get("/", params={"q": "100%_"}).text
    store.request_cancel(jobs[0].id)
    cancelled = pages.get("/", params={"only": "CANCELLED"}).text
    assert cancelled.count('class="what"') == 1
    assert pages.get("/", params={"after": "x"}).status_code == 400


def test_jobs_that_have_not_ended_stand_first_in_the_order_of_their_turns(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    running = stored_job(store, settings, seed=1)
    run_trials(store, running, 2)
    waiting = [stored_job(store, settings, seed=seed, trials=90 - seed) for seed in (2, 3, 4)]
    ended = stored_job(store, settings, seed=5, trials=4)
    store.request_cancel(ended.id)
    text = pages.get("/").text
    shown = re.findall(r'id="job-(\w+)"', text)
    oldest, others = waiting[0], waiting[1:]
    assert shown == [running.id, oldest.id, others[1].id, others[0].id, ended.id]
    for place in (1, 2, 3):
        assert f"no. {place} in the queue" in text
    assert re.findall(r'id="job-(\w+)"', pages.get("/?q=matmul&only=CANCELLED").text) == [ended.id]


def test_a_failure_says_why_in_the_list_and_beside_its_trials(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    job = stored_job(store, settings)
    run_trials(store, job, 4, end=JobState.FAILED)
    assert "it was not to be" in pages.get("/").text
    trials = pages.get(f"/jobs/{job.id}/trials.json").json()["trials"]
    assert [trial["why"] for trial in trials if trial["status"] != "ok"] == ["why"]


@pytest.mark.parametrize(
    "workload",
    [MATMUL, {"expr": "B[i] = 2 * A[i]", "tensors": {"A": "f32[9]"}}],
)
def test_a_job_is_asked_for_again_from_its_page(
    pages: TestClient, store: Store, workload: object
) -> None:
    body = {"workload": workload, "target": HOST.to_json(), "budget": {"trials": 5, "seconds": 9},
            "strategy": "random", "seed": 4, "measurer": "simulated:fast.json"}  # fmt: skip
    first = pages.post("/v1/jobs", json=body).json()["id"]
    again = re.search(r'href="(/jobs/new\?[^"]+)"', pages.get(f"/jobs/{first}").text)
    assert again is not None
    filled = pages.get(html.unescape(again[1]))
    assert filled.status_code == 200
    query = parse_qs(html.unescape(again[1]).partition("?")[2])
    fields = {name: values[0] for name, values in query.items()}
    same = pages.post("/jobs", data=fields)
    assert same.headers["location"] == f"/jobs/{first}", "the same work, still in flight"


def test_a_workload_is_tuned_again_from_its_record(pages: TestClient, store: Store) -> None:
    record = best_of(store)
    again = re.search(r'href="(/jobs/new\?[^"]+)"', pages.get(f"/records/{record.key}").text)
    assert again is not None
    fields = {name: values[0] for name, values in parse_qs(html.unescape(again[1])).items()}
    assert HOST.cpu in fields["target"], "for the machine of the record, not for this one"


def test_the_form_offers_what_there_is(store: Store, settings: Settings) -> None:
    plain, fleet = settings, settings.model_copy(update={"fleet": "tcp://127.0.0.1:1"})
    assert [view.measurers for view in (form_view(plain, {}), form_view(fleet, {}))] == [
        ("local", "simulated:fast.json"), ("local", "dask", "simulated:fast.json"),
    ]  # fmt: skip
    for operator in form_view(plain, {}).operators:
        assert workloads.workload_of(operator.example).flops >= 0, operator


def test_best_schedules_of_another_toolchain_are_marked(pages: TestClient, store: Store) -> None:
    best_of(store)
    assert "other toolchain" not in pages.get("/workloads").text
    best_of(store, workload="matmul:M=4,N=4,K=8", toolchain=replace(TOOLCHAIN, llvmlite="0.1.0"))
    assert pages.get("/workloads").text.count("other toolchain") == 1


@pytest.mark.parametrize("evidence", [None, {"cases": 3, "sampled_fraction": 1.0}])
def test_the_page_of_a_job_tells_what_the_full_check_compared(
    evidence: dict[str, Any] | None, pages: TestClient, store: Store, settings: Settings
) -> None:
    best = {
        "trial": 1, "run_secs": 1e-3, "record_key": "sha256:1", "verified": True,
        "bound": "compute", "fraction_of_bound": 0.5, "gflops": 1.0, "evidence": evidence,
    }  # fmt: skip
    job = stored_job(store, settings)
    run_trials(store, job, 4, end=JobState.SUCCEEDED, best=best)
    text = pages.get(f"/jobs/{job.id}").text
    assert ("every element, for 3 sets of inputs" in text) is (evidence is not None)


def test_a_mocked_best_is_not_said_to_be_verified(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    job = stored_job(store, settings)
    run_trials(store, job, 4, end=JobState.SUCCEEDED)
    text = pages.get(f"/jobs/{job.id}").text
    assert "has a verified best" not in text
    assert "which is not verified, because no kernel was run" in text


def test_trials_for_the_drawings_come_once_each(
    pages: TestClient, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.service.http.pages.jobs.EVENTS", 5)
    job = stored_job(store, settings)
    run_trials(store, job, 8, end=JobState.SUCCEEDED)
    after, told, more = 0, [], True
    while more:
        answer = pages.get(f"/jobs/{job.id}/trials.json?after={after}").json()
        told += answer["trials"]
        after, more = answer["after"], answer["more"]
    assert [trial["trial"] for trial in told] == list(range(1, 9))
    assert answer["done"]
    assert told[3]["status"] == "run_timeout"
    assert told[3]["secs"] is None
    assert told[0]["predicted"] == 2e-3
    assert told[0]["knobs"] == {"tile rows": 1, "tile vectors": 2}
    assert pages.get(f"/jobs/{NOBODY}/trials.json").status_code == 404
    assert pages.get(f"/jobs/{job.id}/trials.json?after=x").status_code == 422


def test_a_part_asks_again_only_while_its_job_runs(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    job = stored_job(store, settings)
    running = pages.get(f"/jobs/{job.id}/facts")
    assert "hx-trigger" in running.text
    assert "next: starts as soon as" in running.text, "why it waits"
    assert "HX-Trigger" not in running.headers
    run_trials(store, job, 4, end=JobState.SUCCEEDED)
    done = pages.get(f"/jobs/{job.id}/facts")
    assert "hx-trigger" not in done.text
    assert done.headers["HX-Trigger"] == "job-done"
    part = pages.get(f"/jobs/{job.id}/result", headers={"hx-request": "true"})
    assert part.text.lstrip().startswith("<section")
    assert pages.get(f"/jobs/{job.id}/result").status_code == 303


def test_a_running_job_says_what_it_does(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    leased = run_trials(store, stored_job(store, settings), 4)
    doing = "the full check of trial 3 (2 of 7 done)"
    store.report_job(leased.id, leased.epoch, progress={**leased.progress, "doing": doing})
    assert doing in pages.get(f"/jobs/{leased.id}/facts").text


def test_a_job_that_ended_shows_what_it_found(
    pages: TestClient, store: Store, settings: Settings
) -> None:
    job = stored_job(store, settings)
    run_trials(store, job, 8, end=JobState.SUCCEEDED)
    text = pages.get(f"/jobs/{job.id}").text
    assert "all trials of the budget are done" in text
    assert 'class="roofline"' in text
    assert text.count('name="key"') == 6, "the trials that passed, to compare"
    assert "run timeout" in text
    failed = stored_job(store, settings, seed=9)
    run_trials(store, failed, 4, end=JobState.FAILED)
    assert "it was not to be" in pages.get(f"/jobs/{failed.id}").text


def test_a_record_says_how_far_it_was_checked(pages: TestClient, store: Store) -> None:
    record = best_of(store)
    text = Reader(pages.get(f"/records/{record.key}").text).text
    assert text.count("✓ yes") == 5
    assert f"tilewright show {MATMUL} --record {record.key}" in text
    assert "tilewright verify" in text
    quick = best_of(store, workload="matmul:M=4,N=4,K=8", secs=2e-3)
    store.withdraw(quick.key, "planted")
    withdrawn = Reader(pages.get(f"/records/{quick.key}").text).text
    assert "withdrawn" in withdrawn
    assert "planted" in withdrawn
    bare = record.key.removeprefix("sha256:")
    assert pages.get(f"/records/{bare}").status_code == 200


def test_loops_assembly_and_bound_come_from_a_helper_and_are_kept(
    pages: TestClient, store: Store
) -> None:
    record = best_of(store)
    loops = pages.get(f"/records/{record.key}/nests", headers={"hx-request": "true"})
    assert loops.text.count("for ") >= 6, "three loops before and after"
    assert not loops.text.lstrip().startswith("<!doctype")
    listing = pages.get(f"/records/{record.key}/assembly").text
    assert 'class="hot"' in listing
    assert listing.startswith("<!doctype"), "a page of its own for who has no scripts"
    assert 'class="roofline"' in pages.get(f"/records/{record.key}/roofline").text


def test_two_records_side_by_side(pages: TestClient, store: Store) -> None:
    fast, slow = best_of(store, secs=2e-3), best_of(store, secs=1e-3, trial=2)
    text = Reader(pages.get(f"/compare?a={fast.key}&b={slow.key}").text).text
    assert "Right is 2.00 times as fast" in text
    asked = pages.get("/compare", params={"key": [fast.key, slow.key]})
    assert asked.headers["location"] == f"/compare?a={fast.key}&b={slow.key}"
    for keys in ([], [fast.key], [fast.key, slow.key, fast.key]):
        answer = pages.get("/compare", params={"key": keys})
        assert answer.status_code == 422
        assert "two records are needed" in answer.text
    other = best_of(store, workload="matmul:M=4,N=4,K=8")
    assert "are not comparable" in pages.get(f"/compare?a={fast.key}&b={other.key}").text


def test_workloads_are_searched_by_name_key_and_machine(pages: TestClient, store: Store) -> None:
    native = native_target(probe=False)
    matmul = best_of(store)
    best_of(store, workload="softmax_mn:M=4,N=8", target=native, name="100%_softmax")
    rows = 'class="what"'
    for query, count in (
        ({}, 2), ({"q": "MatMul"}, 1), ({"q": "0%_s"}, 1), ({"q": "%"}, 1), ({"q": "_"}, 1),
        ({"q": matmul.workload_key}, 1), ({"cpu": HOST.cpu.upper()}, 1 + (native.cpu == HOST.cpu)),
        ({"cpu": "%"}, 0), ({"cpu": "triple"}, 0), ({"q": "softmax", "cpu": "no-such"}, 0),
    ):  # fmt: skip
        assert pages.get("/workloads", params=query).text.count(rows) == count, query


def test_a_long_list_of_workloads_has_pages(
    pages: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.service.http.pages.workloads.PAGE", 2)
    keys = {best_of(store, workload=f"matmul:M=8,N=8,K={k}").key for k in (4, 8, 12, 16, 20)}
    path, found, visits = "/workloads", set(), 0
    while path:
        text = pages.get(path).text
        found |= set(re.findall(r'href="/records/(\S+?)"', text))
        following = re.search(r'href="(/workloads\?[^"]+)" rel="next"', text)
        path, visits = html.unescape(following[1]) if following else "", visits + 1
    assert (found, visits) == (keys, 3)
    assert pages.get("/workloads?after=yesterday").status_code == 400


def test_a_key_is_kept_where_no_script_reads_it(pages: TestClient) -> None:
    answer = pages.post("/login", data={"key": "tw_secret"})
    cookie = answer.headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.split("; "))
    assert "tw_secret" not in pages.get("/login").text
    assert "Sign out" in pages.get("/login").text
    gone = pages.post("/logout")
    assert "max-age=0" in gone.headers["set-cookie"].lower()
    for bad in ("", "a b", "ä", "x" * 1000):
        assert pages.post("/login", data={"key": bad}).status_code == 422


def test_a_fleet_shows_its_machines(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine:
        def to_json(self) -> dict[str, object]:
            return {"name": HOSTILE, "busy": True, "measured": 12, "silent_secs": 0.0,
                    "target": {**HOST.to_json(), "key": HOST.key}}  # fmt: skip

    def fleet_status(address: str, timeout_secs: float) -> list[Machine]:
        assert address == "tcp://127.0.0.1:8786"
        return [Machine()]

    monkeypatch.setattr("tilewright.tuner.measure.fleet.machines.fleet_status", fleet_status)
    monkeypatch.setattr(
        "tilewright.service.http.pages.fleet._address", lambda state: "tcp://127.0.0.1:8786"
    )
    with TestClient(create_app(settings, store)) as client:
        text = client.get("/fleet/machines").text
        assert "measures, 12 measured so far" in text
        assert html.escape("<script>alert") in text
        assert 'hx-get="/fleet/machines"' in client.get("/fleet").text
