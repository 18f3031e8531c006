"""`db train`, what it says, the process after a run, and what a session makes of a stored model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.costmodel.prior import Prior
from tilewright.db import Store, open_store
from tilewright.schedules.full_checks import timings_of
from tilewright.schedules.named_setting import NamedSetting, candidate_of
from tilewright.schedules.record import MeasureResult
from tilewright.schedules.sketches import space_for
from tilewright.schedules.spelling import parse_workload
from tilewright.service import training
from tilewright.service.cli import render, run
from tilewright.service.jobs.tuning import register
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.session.database_model import model_in_use
from tilewright.tuner.session.report import Budget, TuneReport
from tilewright.tuner.testing import mocked_target
from tilewright.tuner.tuning import tune

MACHINE = SimulatedMachine(code_limit=6, code_cost=1.5, ruggedness=0.1)
TIMINGS = timings_of(MACHINE.toolchain)
TARGET = mocked_target(1)
WORKLOADS = (
    "matmul:M=64,N=64,K=64",
    "matmul:M=48,N=96,K=32",
    "softmax_mn:M=64,N=256",
    "conv1d_nlc:L=64,CI=16,CO=16,K=3,pad=1",
    "batch_matmul:B=4,M=32,N=32,K=32",
)
NEW = "matmul:M=96,N=48,K=80"


def tuned(store: Store, text: str, trials: int = 16, **more: Any) -> TuneReport:
    workload = parse_workload(text)
    register(store, workload, TARGET)
    return tune(workload, TARGET, budget=Budget(trials), measurer=MACHINE, sink=store, **more)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database with trials of a simulated machine."""
    path = tmp_path_factory.mktemp("training") / "db.sqlite"
    with open_store(str(path)) as store:
        for text in WORKLOADS:
            tuned(store, text)
    return str(path)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with open_store(database) as opened:
        yield opened


def test_the_command_says_what_it_trained_on_and_how_good_it_is(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "train", "--db", database]) == 0
    text = capsys.readouterr().out
    for words in ("trained on", "5 workloads of 4 structures", "held-out error", "stored as"):
        assert words in text
    assert run(["db", "train", "--db", database, "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["key"].startswith("sha256:")
    assert 0.0 <= model["quality"]["share"] <= 1.0
    assert model["timings"] == TIMINGS


def test_too_few_trials_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "db.sqlite")
    with open_store(path) as store:
        tuned(store, WORKLOADS[0], 4)
    assert run(["db", "train", "--db", path]) == 0
    assert "too few to learn from" in capsys.readouterr().out
    assert run(["db", "train", "--db", path, "--target", "0" * 64]) == 0
    assert "no new trials to learn from" in capsys.readouterr().out


def use(store: Store, **changes: Any) -> str:
    """Make the newest model the trained one with `changes`; return its key."""
    training.train_target(store, TARGET.key, TIMINGS)
    stored = store.model(TARGET, TIMINGS)
    assert stored is not None
    return store.add_model(TARGET.key, TIMINGS, {**stored.document, **changes}, stored.quality)


def test_a_run_uses_the_model_and_reports_its_part(store: Store) -> None:
    key = use(store, share=1.0)
    report = tuned(store, NEW, 8)
    assert (report.database_model["key"], report.database_model["share"]) == (key, 1.0)
    assert report.cost_model["prior_rank_correlation"] is not None
    assert report.cost_model["corrected_rank_correlation"] is not None
    (line,) = [words for name, words in rows_of(report) if name == "model"]
    assert line == "corrects the prior by 100% of what 80 trials of 5 workloads taught"


def test_records_keep_the_uncorrected_prior(store: Store) -> None:
    """Or the next model would learn what is left after this one, and be added to the whole."""
    use(store, share=1.0)
    workload = parse_workload("matmul:M=80,N=40,K=24")
    tuned(store, workload.name, 8)
    space = space_for(workload, TARGET)
    for record in store.records(workload.key, TARGET.key):
        if record.setting is None:
            continue
        candidate = candidate_of(space, NamedSetting.from_json(record.setting))
        assert candidate is not None
        (log2_secs,) = Prior(space).log2_secs(candidate.sketch, np.array([candidate.setting]))
        assert record.prior_secs == pytest.approx(2.0**log2_secs)


@pytest.mark.parametrize(
    ("seed", "changes", "line"),
    [
        (1, {"version": 0}, "not used: the model is of version 0"),
        (2, {"forest": {}}, "not used: the model is damaged"),
        (3, {"share": 0.0}, "it does not help on others, so it is not used"),
    ],
)
def test_a_model_that_is_not_used_costs_a_line(
    store: Store, seed: int, changes: dict[str, Any], line: str
) -> None:
    use(store, **changes)
    workload = "transpose_mn:M=30,N=50"  # has no related workload in the database
    report = tuned(store, workload, 6, seed=seed)
    fresh = tuned(store, workload, 6, seed=seed, fresh=True)
    assert [trial["best_run_secs"] for trial in report.curve] == [
        trial["best_run_secs"] for trial in fresh.curve
    ]
    (said,) = [words for name, words in rows_of(report) if name == "model"]
    assert line in said
    assert "corrected_rank_correlation" not in report.cost_model


def test_without_a_model_nothing_is_said(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "db.sqlite")) as empty:
        report = tuned(empty, NEW, 4)
    assert report.database_model == {}
    assert not [words for name, words in rows_of(report) if name == "model"]


def rows_of(report: TuneReport) -> list[tuple[str, str]]:
    return render.database_model_rows(report.database_model)


def test_contradictory_times_are_left_out(store: Store) -> None:
    """Half of the trials of a workload come from a machine that reports half the time."""
    workload = parse_workload(WORKLOADS[0])
    records = [r for r in store.records(workload.key, TARGET.key) if r.setting and r.result.ok]
    halved = [replace(r, result=_halved(r.result), seed=7) for r in records]
    before = training.train_target(store, TARGET.key, TIMINGS).quality["groups"]
    store.add(halved)
    after = training.train_target(store, TARGET.key, TIMINGS).quality["groups"]
    assert after == before - 1


def _halved(result: MeasureResult) -> MeasureResult:
    assert result.run_secs_estimate is not None
    half = tuple(secs / 2 for secs in result.run_secs)
    return replace(result, run_secs=half, run_secs_estimate=result.run_secs_estimate / 2)


def test_a_process_trains_the_models_that_are_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    class Started:
        def __init__(self, command: list[str], **more: Any) -> None:
            started.append((command, more))

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Started)
    with open_store(str(tmp_path / "db.sqlite")) as store:
        tuned(store, NEW, 4)
        assert not training.start_training(store, TARGET.key)
        monkeypatch.setattr("tilewright.db.values.models.MIN_TRIALS", 3)
        assert training.start_training(store, TARGET.key)
        ((command, more),) = started
        assert command[-1] == "tilewright.service.training"
        assert more["env"]["TILEWRIGHT_DB"] == store.url
        assert more["start_new_session"]


def test_training_without_a_result_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.db.values.models.MIN_TRIALS", 3)
    with open_store(str(tmp_path / "db.sqlite")) as store:
        tuned(store, NEW, 4)
        (first,) = training.train_all(store, due_only=True)
        assert "too few" in first.note
        assert training.train_all(store, due_only=True) == []
        assert not training.start_training(store, TARGET.key)
        assert store.model(TARGET, TIMINGS) is None
        assert tuned(store, NEW, 4).database_model == {}
        monkeypatch.setattr("tilewright.costmodel.correction.FEATURE_VERSION", 99)
        assert len(training.train_all(store, due_only=True)) == 1


def test_a_target_without_a_model_uses_half_of_that_of_a_similar_one(store: Store) -> None:
    key = use(store, share=1.0)
    other, slim = replace(TARGET, cpu="znver9"), replace(TARGET, cpu="znver9", vector_bits=128)
    found = store.model(other, TIMINGS)
    assert found is not None
    assert (found.key, found.origin) == (key, TARGET.cpu)
    in_use = model_in_use(found)
    assert in_use.correction is not None
    assert in_use.correction.share == 0.5
    assert TARGET.cpu in in_use.summary
    assert store.model(slim, TIMINGS) is None


def test_the_process_trains_what_is_due(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", store.url)
    monkeypatch.setattr(training, "_take_idle_cores_only", lambda: None)  # tests fill the machine
    training.main()
    before = store.model(TARGET, TIMINGS)
    monkeypatch.setattr("tilewright.db.values.models.MIN_TRIALS", 3)
    store.add_model(TARGET.key, TIMINGS, {}, {"trials_stored": 1})
    training.main()
    after = store.model(TARGET, TIMINGS)
    assert after is not None
    assert after.quality["trials_stored"] > 3
    training.main()
    assert store.model(TARGET, TIMINGS) == after
    assert before != after
