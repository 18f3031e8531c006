"""What nobody tuned: never a miss, prepared once, and nothing wrong or unchecked served as more."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.support.service.asking import NINE, ask, get
from tests.support.service.preparing import CHOSEN, OK, Counted, prepare_all, preparer
from tests.support.service.records import HOST, MATMUL, TOOLCHAIN, keep_best, make_record
from tests.support.tuner.scripted import Scripted, ok
from tilewright.db import Store, open_store
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.analytic import Chosen, Knowledge
from tilewright.service.answers.failed_checks import UNMEASURED
from tilewright.service.answers.prepare_queue import PREPARATIONS_PER_COMMIT
from tilewright.service.answers.preparer import NOT_RUN, VERIFIED, choose_schedule
from tilewright.service.http.app import create_app
from tilewright.service.http.preparation_watch import PreparationWatch
from tilewright.service.jobs.tuning import register
from tilewright.service.limits import RequestLimits
from tilewright.service.resolve import targets, workloads
from tilewright.service.settings import Settings
from tilewright.tuner.compiling.deadline import DeadlineError
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.session.report import Budget
from tilewright.tuner.tuning import tune

OTHER_COMPILER = Toolchain(TOOLCHAIN.codegen_version, "0.1.0", "1.0")
WRONG = MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 3")
LOST = MeasureResult(MeasureStatus.LOST, detail="the process is gone")
AT_ONCE = RequestLimits(default_secs=0.0, lookup_secs=1.0)


@pytest.fixture
def settings() -> Settings:
    """No helper process is started, and nobody waits for one."""
    return Settings(preparers=0, limits=AT_ONCE)


@pytest.fixture
def api(store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Nothing of what is asked for is prepared before the test does it."""
    monkeypatch.setattr(PreparationWatch, "wait", _not_at_all)
    with TestClient(create_app(settings, store)) as client:
        yield client


async def _not_at_all(watch: PreparationWatch, keys: object, secs: float) -> None:
    """Nobody waits."""


def native() -> Target:
    return targets.target_of("native", 1)


def test_what_failed_by_a_bug_is_tried_again_at_once_and_when_it_is_asked_for_later(
    api: TestClient, store: Store, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(trace: Trace) -> MeasureResult:
        raise ValueError("the machine was busy")

    ask(api, MATMUL)
    prepare_all(store, Counted(result=broken))
    (failed,) = ask(api, MATMUL)
    assert failed["problem"]["code"] == "internal_error"
    assert not failed["pending"], "not again and again"

    later = time.time() + 3600.0
    monkeypatch.setattr("tilewright.service.answers.prepare_queue.time.time", lambda: later)
    (again,) = ask(api, MATMUL)
    assert again["pending"]
    prepare_all(store, Counted())
    (ready,) = ask(api, MATMUL)
    assert (ready["found"], ready["answer"]["verified"]) == (True, True)


def test_one_failure_is_not_seen(api: TestClient, store: Store, workload: Workload) -> None:
    results = iter([ValueError("once")])

    def broken_once(trace: Trace) -> MeasureResult:
        for error in results:
            raise error
        return OK

    ask(api, MATMUL)
    prepare_all(store, Counted(result=broken_once))
    (ready,) = ask(api, MATMUL)
    assert (ready["found"], ready["answer"]["verified"]) == (True, True)


class Choosing(Counted):
    """Steps that choose schedules as the service does."""

    def choose(self, workload: Workload, target: Target, known: Knowledge) -> Chosen:
        return choose_schedule(workload, target, known)


def tune_on_script(store: Store, workload: Workload) -> TuningRecord:
    """Store some trials of a machine that is slower with every trial, and return the best."""
    register(store, workload, native())

    def machine(workload: Workload, target: Target, seed: int) -> Scripted:
        def answer(request: MeasureRequest) -> MeasureResult:
            return ok(1e-5 * request.trial)

        return Scripted(answer, toolchain=replace(TOOLCHAIN, llvm="1.0"))

    tune(workload, native(), budget=Budget(2), measurer=machine, sink=store)
    best = store.best(workload.key, native().key)
    assert best is not None
    return best


@pytest.mark.parametrize("result", [OK, WRONG])
def test_an_untuned_spelling_is_answered_with_the_schedule_of_a_tuned_one(
    api: TestClient, store: Store, result: MeasureResult
) -> None:
    """It is checked for this spelling before it is served as verified, and is no exact answer."""
    tuned, spelled = (
        parse_workload(expr=expr, tensors=tensors)
        for expr, tensors in (
            ("Y[i,j] = exp(X[i,j])", ["X=f32[6,20]"]), ("Y[i] = exp(X[i])", ["X=f32[120]"]),
        )
    )  # fmt: skip
    best = tune_on_script(store, tuned)
    (asked,) = ask(api, spelled.to_json())
    assert asked["pending"]
    counted = Choosing(result=lambda trace: result if trace != Trace() else OK)
    prepare_all(store, counted)
    key, checked = counted.checked[0]
    assert key == spelled.key
    assert lower(spelled, checked) == lower(tuned, Trace.from_json(best.trace))
    (found,) = ask(api, spelled.to_json())
    answer = found["answer"]
    assert (answer["grade"], answer["record_key"], answer["run_secs"]) == ("default", None, None)
    assert answer["verified"]
    assert (answer["trace"] == checked.to_json()) == result.ok
    words = f"with the schedule of {tuned.name}, another spelling of this computation"
    assert (words in answer["note"]) == result.ok
    assert get(api, spelled, native(), "exact").status_code == 404


def test_an_untuned_workload_is_answered_by_and_by_and_each_time_as_well_as_it_can_be(
    api: TestClient, store: Store, workload: Workload
) -> None:
    counted = Counted()
    (first,) = ask(api, MATMUL)
    assert (first["found"], first["pending"]) == (False, True)
    assert first["problem"]["code"] == "answer_pending"
    waiting = get(api, workload, native())
    assert waiting.status_code == 202
    assert int(waiting.headers["retry-after"]) >= 1
    assert waiting.json()["ticket"] == first["ticket"]

    assert preparer(store, counted).work_once()
    chosen = get(api, workload, native())
    assert chosen.status_code == 200
    document = chosen.json()
    assert document["grade"] == "default"
    assert document["trace"] == CHOSEN.to_json()
    assert (document["verified"], document["pending"]) == (False, True)
    assert document["artefacts"] == {}
    assert document["run_secs"] is None
    assert "retry-after" in chosen.headers

    assert preparer(store, counted).work_once()
    ready = get(api, workload, native())
    document = ready.json()
    assert (document["verified"], document["pending"]) == (True, False)
    assert document["note"] == f"{UNMEASURED}, {VERIFIED}"
    assert set(document["artefacts"]) == {"object", "header", "llvm"}
    assert document["record_key"] is None, "it is not taken for tuned"
    assert ready.headers["etag"] != chosen.headers["etag"]
    blob = api.get(document["artefacts"]["object"]["url"])
    assert blob.content.startswith(b"object")
    same = api.get(ready.url, headers={"If-None-Match": ready.headers["etag"]})
    assert same.status_code == 304
    assert not preparer(store, counted).work_once()
    assert set(counted.built_for.values()) == {1}
    assert get(api, workload, native(), "exact").status_code == 404


def test_the_ticket_is_the_one_job_that_tunes_it(
    api: TestClient, store: Store, workload: Workload
) -> None:
    items = ask(api, MATMUL, workload.to_json(), workload.key)
    assert len({item["ticket"] for item in items[:2]}) == 1
    (again,) = ask(api, workload.key)
    job = api.get(f"/v1/jobs/{again['ticket']}").json()
    assert job["workload"]["key"] == workload.key
    assert job["state"] == "QUEUED"
    submitted = api.post("/v1/jobs", json={"workload": MATMUL}).json()
    assert submitted["id"] == job["id"], "what somebody submits is the same work"
    prepare_all(store, Counted())
    (answer,) = ask(api, MATMUL)
    assert answer["answer"]["ticket"] == job["id"]
    assert len(store.list_jobs().items) == 1


def test_where_the_queue_is_full_there_is_an_answer_and_no_ticket(
    store: Store, workload: Workload
) -> None:
    limits = replace(AT_ONCE, ticket_jobs=0, lookup_secs=0.2)
    with TestClient(create_app(Settings(preparers=0, limits=limits), store)) as api:
        (item,) = ask(api, MATMUL)
        assert item["pending"]
        assert item["ticket"] is None
        prepare_all(store, Counted())
        assert ask(api, MATMUL)[0]["found"]
    assert store.list_jobs().items == ()


def test_where_too_much_is_being_prepared_who_asks_is_told_when_to_come_back(
    store: Store, workload: Workload
) -> None:
    limits = replace(AT_ONCE, preparations=1, lookup_secs=0.2)
    nine = workloads.workload_of(NINE)
    with TestClient(create_app(Settings(preparers=0, limits=limits), store)) as api:
        items = ask(api, MATMUL, NINE)
        assert [item["pending"] for item in items] == [True, True]
        keep_best(store, nine, replace(HOST, triple="aarch64-unknown-linux-gnu"))
        answer = get(api, nine, native())
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert prepare_all(store, Counted()) == 2
        assert ask(api, MATMUL, NINE)[0]["found"]


def test_for_a_cpu_that_is_not_here_there_are_schedule_and_llvm_ir_and_no_job(
    api: TestClient, store: Store, workload: Workload
) -> None:
    arm = replace(HOST, triple="aarch64-unknown-linux-gnu", cpu="neoverse-n1", features=("neon",))
    far = arm.to_json()
    assert ask(api, MATMUL, target=far)[0]["ticket"] is None
    counted = Counted(machine=False)
    prepare_all(store, counted)
    (item,) = ask(api, MATMUL, target=far)
    answer = item["answer"]
    assert answer["trace"] == CHOSEN.to_json()
    assert set(answer["artefacts"]) == {"llvm"}
    assert (answer["verified"], answer["note"]) == (False, f"{UNMEASURED}; {NOT_RUN}")
    assert counted.checked == []


def test_a_default_that_computes_wrong_results_is_never_served(
    api: TestClient, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    ask(api, MATMUL)
    counted = Counted(result=lambda trace: WRONG if trace.steps else OK)
    prepare_all(store, counted)
    answer = ask(api, MATMUL)[0]["answer"]
    assert answer["trace"] == []
    assert answer["verified"]
    assert b"Unroll" not in api.get(answer["artefacts"]["object"]["url"]).content
    assert "is wrong: wrong_result element 3" in caplog.text


def test_what_did_not_pass_has_no_object(api: TestClient, store: Store) -> None:
    ask(api, MATMUL)
    prepare_all(store, Counted(result=lambda trace: LOST))
    answer = ask(api, MATMUL)[0]["answer"]
    assert not answer["verified"]
    assert set(answer["artefacts"]) == {"llvm"}
    assert str(LOST.status) in answer["note"]


def test_where_every_schedule_is_wrong_there_is_none_and_the_reason(
    api: TestClient, store: Store, workload: Workload
) -> None:
    ask(api, MATMUL)
    prepare_all(store, Counted(result=lambda trace: WRONG))
    (item,) = ask(api, MATMUL)
    assert not item["found"]
    assert item["problem"]["code"] == "no_schedule_passed"
    assert "failed its full check (wrong_result: element 3)" in item["problem"]["detail"]
    assert {str(c) for c in store.full_checks(workload.key, native().key).known.values()} == {
        "wrong_result: element 3"
    }


def test_a_default_that_a_search_found_wrong_is_prepared_anew(
    api: TestClient, store: Store, workload: Workload
) -> None:
    ask(api, MATMUL)
    prepare_all(store, Counted())
    assert ask(api, MATMUL)[0]["answer"]["trace"] == CHOSEN.to_json()
    wrong = MeasureStatus.WRONG_RESULT
    store.add([make_record(workload, native(), status=wrong, trace=CHOSEN.to_json())])
    assert not ask(api, MATMUL)[0]["found"]
    prepare_all(store, Counted())
    assert ask(api, MATMUL)[0]["answer"]["trace"] == []


def test_a_choice_that_takes_too_long_is_the_expression_as_it_stands(
    api: TestClient, store: Store
) -> None:
    ask(api, MATMUL)
    prepare_all(store, Counted(chosen=DeadlineError("choosing took longer than 1 s")))
    answer = ask(api, MATMUL)[0]["answer"]
    assert answer["trace"] == []
    assert answer["verified"]


def test_what_no_schedule_can_be_made_of_says_so_and_harms_no_other(
    api: TestClient, store: Store, workload: Workload, caplog: pytest.LogCaptureFixture
) -> None:
    ask(api, MATMUL)
    prepare_all(store, Counted(chosen=ScheduleError("store", "too large")))
    ask(api, NINE)
    prepare_all(store, Counted(chosen=ZeroDivisionError("ours")))
    ask(api, "matmul:M=7,N=7,K=7")
    prepare_all(store, Counted())
    items = ask(api, MATMUL, "nonsense", NINE, "matmul:M=7,N=7,K=7", "a" * 64)
    assert [item["found"] for item in items] == [False, False, False, True, False]
    assert [item["problem"] and item["problem"]["code"] for item in items] == [
        "illegal_trace", "unknown_operator", "internal_error", None, "no_answer",
    ]  # fmt: skip
    assert items[2]["problem"]["errors"][0]["pointer"] == "/workloads/2"
    assert "ZeroDivisionError: ours" in caplog.text
    alone = get(api, workload, native())
    assert alone.status_code == 422
    assert alone.json()["code"] == "illegal_trace"
    assert prepare_all(store, Counted()) == 0, "a toolchain finds the same each time"


@pytest.mark.parametrize(("result", "status"), [(OK, 200), (WRONG, 404), (LOST, 404)])
def test_a_record_of_another_compiler_is_exact_only_when_it_passed_here(
    result: MeasureResult, status: int, api: TestClient, store: Store, workload: Workload
) -> None:
    old = keep_best(store, workload, native(), toolchain=OTHER_COMPILER)
    counted = Counted(result=lambda trace: result)
    asked = get(api, workload, native(), "exact")
    assert asked.status_code == 202, "it is withheld, and being checked"
    less = get(api, workload, native(), "compatible").json()
    assert (less["grade"], less["verified"], less["record_key"]) == ("compatible", False, old.key)
    prepare_all(store, counted)
    answer = get(api, workload, native(), "exact")
    assert answer.status_code == status
    assert (workload.key, Trace()) in counted.checked
    if status == 200:
        assert answer.json()["verified"]
        assert answer.json()["record_key"] != old.key
        assert answer.json()["run_secs"] == OK.run_secs_estimate
        assert counted.chosen_for[workload.key] == 0, "there was no need for a default"
    gone = result is WRONG
    assert get(api, workload, native(), "compatible").status_code == (404 if gone else 200)
    assert prepare_all(store, counted) == 0, "nobody tries twice what did not pass"


def test_what_was_imported_answers_once_it_passed_here(
    api: TestClient, store: Store, workload: Workload, tmp_path: Path
) -> None:
    lines = io.StringIO()
    with open_store(str(tmp_path / "theirs.sqlite")) as theirs:
        for trial, secs in enumerate((4e-3, 1e-3, 2e-3, 3e-3)):
            keep_best(theirs, workload, native(), secs=secs, trial=trial) if trial < 2 else (
                theirs.add([make_record(workload, native(), secs=secs, trial=trial)])
            )
        theirs.export(lines)
    report = store.import_(lines.getvalue().splitlines())
    assert (report.added, report.bad) == (4, ())
    assert get(api, workload, native(), "exact").status_code == 202
    results = iter([LOST, OK])
    counted = Counted(result=lambda trace: next(results))
    prepare_all(store, counted)
    answer = get(api, workload, native(), "exact").json()
    assert (answer["grade"], answer["verified"]) == ("exact", True)
    assert answer["run_secs"] == OK.run_secs_estimate, "what strangers measured is never told"
    assert len(counted.checked) == 2, "the fastest first, and none after the first that passed"


def test_claims_that_nobody_here_can_check_are_no_answer(
    api: TestClient, store: Store, workload: Workload
) -> None:
    claim = make_record(workload, level="imported")
    keep_best(store, workloads.workload_of(NINE))
    keep_best(store, workload, replace(HOST, triple="aarch64-unknown-linux-gnu"))
    store.add([claim])
    assert get(api, workload, HOST, "exact").status_code == 202
    prepare_all(store, Counted(machine=False))
    assert get(api, workload, HOST, "exact").status_code == 404
    assert not get(api, workload, HOST).json()["verified"]


def test_a_hundred_untuned_keys_and_two_hundred_clients_are_one_preparation_a_key(
    store: Store,
) -> None:
    """Clients ask until they have it; two preparers work meanwhile."""
    limits = RequestLimits(default_secs=60.0, lookup_secs=60.0)
    app = create_app(Settings(preparers=0, limits=limits), store)
    spelled = [f"matmul:M={m},N=3,K=2" for m in range(1, 101)]
    counted, stop = Counted(), threading.Event()

    def work(owner: str) -> None:
        working = preparer(store, counted, owner)
        while not stop.is_set():
            if not working.work_once():
                time.sleep(0.01)

    async def client(http: httpx2.AsyncClient, number: int) -> list[int]:
        seen = []
        body = {"workloads": [spelled[number % 100]], "min_grade": "default"}
        while True:
            answer = await http.post("/v1/best:lookup", json=body)
            seen.append(answer.status_code)
            (item,) = answer.json()["items"]
            if item["found"] and not item["pending"]:
                assert item["answer"]["verified"]
                return seen
            assert item["pending"]

    async def clients() -> list[list[int]]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await asyncio.gather(*(client(http, number) for number in range(200)))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    try:
        seen = asyncio.run(clients())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {status for one in seen for status in one} == {200}
    assert set(counted.built_for.values()) == {1}
    assert len(counted.built_for) == 100
    assert len(store.list_jobs(page_size=1000).items) == 100


def test_who_waits_is_answered_as_soon_as_there_is_something(
    store: Store, workload: Workload
) -> None:
    counted = Counted()
    limits = RequestLimits(default_secs=60.0, lookup_secs=60.0)
    with TestClient(create_app(Settings(preparers=0, limits=limits), store)) as api:

        def soon() -> None:
            while not prepare_all(store, counted):
                time.sleep(0.01)

        helper = threading.Thread(target=soon)
        helper.start()
        (item,) = ask(api, MATMUL)
        helper.join()
        assert item["answer"]["verified"]


def test_a_service_that_stops_keeps_nobody_waiting(store: Store, workload: Workload) -> None:
    limits = RequestLimits(default_secs=60.0, lookup_secs=60.0)
    with TestClient(create_app(Settings(preparers=0, limits=limits), store)) as api:
        stopping = api.app.state.service.stopping  # type: ignore[attr-defined]  # the application
        threading.Timer(0.2, stopping.set).start()
        assert ask(api, MATMUL)[0]["pending"]


def test_a_lookup_of_many_untuned_works_ends_in_its_time(store: Store) -> None:
    limits = RequestLimits(default_secs=0.0, lookup_secs=0.0)
    spelled = [f"matmul:M={m},N=2,K=2" for m in range(1, 1001)]
    with TestClient(create_app(Settings(preparers=0, limits=limits), store)) as api:
        items = ask(api, *spelled)
        assert len(items) == 1000
        assert all(item["pending"] for item in items)
        waiting = api.app.state.service.answers.prepare_queue.waiting()  # type: ignore[attr-defined]  # as above
    assert waiting == PREPARATIONS_PER_COMMIT, (
        "what there was no time for is left for the next time"
    )


def test_targets_of_one_key_and_other_vectors_have_answers_of_their_own(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload, replace(HOST, cpu="alike"))
    narrow = replace(HOST, vector_bits=128)
    assert narrow.key == HOST.key
    assert ask(api, MATMUL, target=HOST.to_json(), grade="compatible")[0]["found"]
    assert not ask(api, MATMUL, target=narrow.to_json(), grade="compatible")[0]["found"]


def test_the_schedule_of_a_real_helper_process_is_verified_on_this_machine(
    store: Store, workload: Workload
) -> None:
    """End to end: chosen, compiled and run by `python -m tilewright.service.answers.preparer`."""
    limits = RequestLimits(default_secs=60.0, lookup_secs=60.0)
    with TestClient(create_app(Settings(preparers=1, limits=limits), store)) as api:
        (item,) = ask(api, MATMUL)
        answer = item["answer"]
        assert answer["verified"], json.dumps(answer)
        found = api.get(answer["artefacts"]["object"]["url"]).content
    assert found[:4] == b"\x7fELF"
