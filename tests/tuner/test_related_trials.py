"""Trials of related workloads: named settings, their adaptation, and what a search gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_comparison import MACHINES
from tilewright.costmodel.base import BorrowedSample, Sample
from tilewright.costmodel.gaussian import GaussianModel
from tilewright.costmodel.prior import Prior
from tilewright.db import open_store, related_records
from tilewright.schedules.named_setting import NamedSetting, candidate_of, named_setting
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.related import RelatedRecords
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.spelling import parse_operator
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.cli.render import related_rows
from tilewright.service.jobs.tuning import register
from tilewright.tuner.measure.mocked.simulated import read_simulated
from tilewright.tuner.search.adaptation import (
    MOST_PROVEN,
    RelatedTrial,
    adapted,
    borrowed_samples,
    proven_elsewhere,
)
from tilewright.tuner.search.default import DefaultChoice, default_choice
from tilewright.tuner.search.related import FASTEST, OTHERS, related_trials
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.session.report import Budget
from tilewright.tuner.testing import mocked_target
from tilewright.tuner.tuning import tune

WORKLOADS = (
    "matmul:M=128,N=128,K=128",
    "matmul:M=127,N=131,K=137",
    "conv2d_nhwc:N=1,H=14,W=14,CI=32,CO=48,K=3,pad=1",
    "depthwise_conv2d_nhwc:H=28,W=28,C=96,K=3,pad=1",
    "softmax_mn:M=64,N=1000",
    "transpose_mn:M=300,N=500",
    "layernorm_mn:M=64,N=768",
)
TARGET = mocked_target(2)
OTHER_ARCHITECTURE = replace(TARGET, triple="aarch64-unknown-linux-gnu")


def space(text: str) -> ScheduleSpace:
    return space_for(parse_operator(text), TARGET)


def drawn(of: ScheduleSpace, count: int) -> list[Candidate]:
    rng = np.random.default_rng(1)
    return [
        Candidate(grid.index, tuple(row.tolist()))
        for grid in setting_grids(of)
        for row in grid.sample(rng, count)
    ]


@pytest.mark.parametrize("text", WORKLOADS)
def test_a_named_setting_finds_its_candidate_again(text: str) -> None:
    own = space(text)
    for candidate in drawn(own, 12):
        document = named_setting(own, candidate).to_json()
        found = candidate_of(own, NamedSetting.from_json(document))
        assert found is not None
        assert own.trace(found).to_json() == own.trace(candidate).to_json()


def test_unknown_names_and_values_are_no_candidate() -> None:
    own = space(WORKLOADS[0])
    known = named_setting(own, drawn(own, 1)[0])
    assert candidate_of(own, NamedSetting("other", known.knobs)) is None
    changed = dict.fromkeys(known.knobs, -7)
    assert candidate_of(own, NamedSetting(known.sketch, changed)) is None


def test_a_knob_that_an_older_version_did_not_have_has_its_first_value() -> None:
    own = space(WORKLOADS[0])
    known = named_setting(own, drawn(own, 1)[0])
    for name in known.knobs:
        fewer = {knob: value for knob, value in known.knobs.items() if knob != name}
        found = candidate_of(own, NamedSetting(known.sketch, fewer))
        assert found is not None
        (knob,) = [k for k in own.sketches[found.sketch].knobs if k.name == name]
        assert named_setting(own, found).knobs == {**known.knobs, name: knob.values[0]}


@pytest.mark.parametrize("text", WORKLOADS)
def test_a_setting_adapted_to_its_own_space_is_itself(text: str) -> None:
    own = space(text)
    grids, rng = setting_grids(own), np.random.default_rng(0)
    for candidate in drawn(own, 12):
        found = adapted(grids, named_setting(own, candidate), rng)
        assert found is not None
        assert own.trace(found).to_json() == own.trace(candidate).to_json()


@pytest.mark.parametrize(
    ("from_", "to"),
    [
        ("matmul:M=512,N=512,K=512", "matmul:M=7,N=1000,K=33"),
        ("matmul:M=8,N=8,K=8", "matmul:M=1024,N=512,K=2048"),
        ("softmax_mn:M=64,N=1000", "softmax_mn:M=3,N=7"),
    ],
)
def test_adapted_settings_are_feasible_and_most_are_found(from_: str, to: str) -> None:
    old, new = space(from_), space(to)
    grids, rng = setting_grids(new), np.random.default_rng(0)
    tried = drawn(old, 24)
    found = [adapted(grids, named_setting(old, candidate), rng) for candidate in tried]
    legal = [c for c in found if c is not None]
    for candidate in legal:
        setting = np.array([candidate.setting], np.int64)
        assert new.sketches[candidate.sketch].feasible(setting)[0]
    assert len(legal) > len(tried) // 2


def test_related_trials_are_the_fastest_and_a_sample_of_the_others() -> None:
    toolchain = Toolchain(0, "simulated", "a")
    records = tuned(WORKLOADS[0], 40)
    found = related_trials([RelatedRecords("one", 1.5, tuple(records))], toolchain)
    assert found == [], "simulated timings of another machine"
    trials = related_trials([RelatedRecords("one", 1.5, tuple(records))], records[0].toolchain)
    assert FASTEST < len(trials) <= FASTEST + OTHERS
    assert {trial.source for trial in trials} == {1}
    assert RelatedTrial.from_json(trials[0].to_json()) == trials[0]
    own = borrowed_samples(setting_grids(space(WORKLOADS[1])), trials)
    assert own
    assert all(0 < sample.similarity < 1 for sample in own)


def tuned(text: str, trials: int, related: Sequence[RelatedRecords] = ()) -> list[TuningRecord]:
    """The successful records of a simulated run, fastest first."""
    sink = run(text, trials, related)
    return sorted(
        (r for r in sink.found if r.result.ok), key=lambda r: r.result.run_secs_estimate or 0.0
    )


class Sink:
    """A sink in memory that has records of related workloads."""

    def __init__(self, related: Sequence[RelatedRecords]) -> None:
        self.found: list[TuningRecord] = []
        self.lent = list(related)

    def add(self, records: Sequence[TuningRecord]) -> None:
        self.found += records

    def records(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        return [r for r in self.found if r.workload_key == workload_key]

    def related(
        self, workload: Workload, target: Target, count: int, before: str = ""
    ) -> list[RelatedRecords]:
        return self.lent[:count]

    def model(self, target: Target, timings: str, before: str = "") -> None:
        return None

    def promote(self, record: TuningRecord) -> bool:
        return True


MACHINE = replace(read_simulated(MACHINES / "scalar.json"), common=1.0)


def run(text: str, trials: int, related: Sequence[RelatedRecords]) -> Sink:
    sink = Sink(related)
    tune(parse_operator(text), TARGET, budget=Budget(trials), measurer=MACHINE, sink=sink)
    return sink


def first_best(records: list[TuningRecord], count: int) -> float:
    early = [r.result.run_secs_estimate for r in records if r.trial <= count]
    return min(secs for secs in early if secs is not None)


def test_a_search_starts_faster_with_records_of_a_related_workload() -> None:
    gains = []
    texts = ("matmul:M=128,N=128,K=128", "matmul:M=96,N=160,K=128", "matmul:M=128,N=192,K=96")
    done = {text: tuned(text, 48) for text in texts}
    for text in texts:
        lent = [
            RelatedRecords(other, 1.0, tuple(records))
            for other, records in done.items()
            if other != text
        ]
        with_them, alone = tuned(text, 8, lent), done[text]
        gains.append(first_best(alone, 8) / first_best(with_them, 8))
    assert float(np.exp(np.mean(np.log(gains)))) > 1.05


def test_borrowed_samples_count_for_less_the_more_is_measured_here() -> None:
    own = space(WORKLOADS[0])
    prior, candidates = Prior(own), drawn(own, 60)
    secs = {
        c: float(2.0 ** prior.log2_secs(c.sketch, np.array([c.setting], np.int64))[0])
        for c in candidates
    }
    wrong = [BorrowedSample(c, float(i % 7) - 3.0, 1, 0.9) for i, c in enumerate(candidates[:24])]
    model, misled = GaussianModel(own), GaussianModel(own)
    samples = [Sample(c, secs[c]) for c in candidates[:80]]
    model.fit(samples)
    misled.fit(samples, wrong)
    for c in candidates[80:]:
        setting = np.array([c.setting], np.int64)
        one, two = (m.predict(c.sketch, setting).log2_secs[0] for m in (model, misled))
        assert abs(float(one - two)) < 0.5


def test_a_model_predicts_from_borrowed_samples_alone() -> None:
    own = space(WORKLOADS[0])
    candidates = drawn(own, 60)
    model = GaussianModel(own)
    lent = [BorrowedSample(c, 0.5 * (i % 2), 1, 0.9) for i, c in enumerate(candidates[:30])]
    model.fit([], lent)
    for c in candidates:
        found = model.predict(c.sketch, np.array([c.setting], np.int64))
        assert np.isfinite(found.log2_secs).all()
        assert (found.sigma > 0).all()


def test_the_database_lends_records_of_the_nearest_workloads(tmp_path: Path) -> None:
    texts = ("matmul:M=128,N=128,K=128", "matmul:M=512,N=512,K=512", "softmax_mn:M=64,N=1000")
    wanted = parse_operator("matmul:M=160,N=128,K=128")
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    with open_store(url) as store:
        for text in texts:
            workload = parse_operator(text)
            register(store, workload, TARGET)
            tune(workload, TARGET, budget=Budget(8), measurer=MACHINE, sink=store)
        found = store.related(wanted, TARGET, 4)
        assert [one.name for one in found] == list(texts[:2])
        assert store.related(wanted, OTHER_ARCHITECTURE, 4) == []
        assert len(store.related(wanted, TARGET, 1)) == 1
    assert related_records(url, wanted, TARGET) == found
    own = [r for one in found for r in one.records]
    assert all(r.setting is not None and r.prior_secs is not None for r in own)
    trials = related_trials(found, own[0].toolchain)
    default = default_choice(wanted, TARGET, trials)
    assert default == default_choice(wanted, TARGET, trials), "deterministic"
    assert DefaultChoice.from_json(default.to_json()) == default
    assert default.log2_gain is not None


NEIGHBOUR = replace(TARGET, cpu="znver9")


def test_settings_that_are_fast_on_another_machine_are_tried_first(tmp_path: Path) -> None:
    """With what the report says of them; other architectures lend nothing."""
    workload = parse_operator(WORKLOADS[0])
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    with open_store(url) as store:
        for target in (NEIGHBOUR, OTHER_ARCHITECTURE):
            register(store, workload, target)
            tune(workload, target, budget=Budget(12), measurer=MACHINE, sink=store)
        lent = store.related(workload, TARGET, 4)
        assert related_records(url, workload, TARGET) == lent
        (found,) = lent
        assert (found.origin, found.is_same_workload, found.distance) == ("znver9", True, 0.0)
        register(store, workload, TARGET)
        report = tune(workload, TARGET, budget=Budget(8), measurer=MACHINE, sink=store)
        (task,) = report.related
        assert (task["origin"], task["is_same_workload"]) == ("znver9", True)
        assert len(task["tried"]) == MOST_PROVEN
        assert max(one["trial"] for one in task["tried"]) <= 4 + MOST_PROVEN
        assert report.best is not None
        assert report.best.verified
        best = found.records[0]
        assert best.trace_key in {r.trace_key for r in store.records(workload.key, TARGET.key)}
        again = tune(workload, TARGET, budget=Budget(8), measurer=MACHINE, sink=store)
        assert again.trials["measured_now"] == 0, "a repeated run proposes the same"
        (line, *_) = related_rows(report.related)
        assert line == ("related", "the search used trials of this workload on znver9")


def test_other_targets_only_fill_what_is_left(tmp_path: Path) -> None:
    wanted = parse_operator("matmul:M=160,N=128,K=128")
    with open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        for text, target in (
            ("matmul:M=512,N=512,K=512", TARGET),
            ("matmul:M=160,N=128,K=64", NEIGHBOUR),
            (wanted.name, NEIGHBOUR),
        ):
            workload = parse_operator(text)
            register(store, workload, target)
            tune(workload, target, budget=Budget(4), measurer=MACHINE, sink=store)
        named = [(one.name, one.origin) for one in store.related(wanted, TARGET, 4)]
        assert named == [
            ("matmul:M=512,N=512,K=512", ""),
            (wanted.name, "znver9"),
            ("matmul:M=160,N=128,K=64", "znver9"),
        ]
        assert len(store.related(wanted, TARGET, 2)) == 2
        assert [one.origin for one in store.related(wanted, TARGET, 1)] == ["", "znver9"]


def test_records_of_another_toolchain_are_of_another_machine() -> None:
    real = Toolchain(40, "0.50.0", "22.1")
    records = [replace(r, toolchain=real) for r in tuned(WORKLOADS[0], 12)]
    same = RelatedRecords("one", 0.0, tuple(records), is_same_workload=True)
    assert related_trials([same], replace(real, llvm="")) == [], "a run reuses its own"
    trials = related_trials([same], replace(real, codegen_version=41))
    assert {(trial.work, trial.machine) for trial in trials} == {(0, 1)}
    near = RelatedRecords("one", 1.0, tuple(records))
    found = related_trials([near], replace(real, codegen_version=41))
    assert {(trial.work, trial.machine) for trial in found} == {(1, 0)}
    proven = proven_elsewhere(borrowed_samples(setting_grids(space(WORKLOADS[0])), trials))
    assert [sample.candidate for sample in proven] == [
        candidate_of(space(WORKLOADS[0]), trial.setting) for trial in trials[:MOST_PROVEN]
    ]


def test_how_machines_are_related_is_learned() -> None:
    """Errors of this workload elsewhere are used if the first samples here agree with them."""
    own = space(WORKLOADS[0])
    prior, candidates = Prior(own), drawn(own, 40)
    rng = np.random.default_rng(3)
    errors = dict(zip(candidates, rng.normal(size=len(candidates)).tolist(), strict=True))

    def secs(c: Candidate, share: float) -> float:
        log2_secs = prior.log2_secs(c.sketch, np.array([c.setting], np.int64))[0]
        return float(2.0 ** (log2_secs + share * errors[c]))

    lent = [BorrowedSample(c, errors[c], 1, 1.0, 0, 1) for c in candidates[:30]]
    found = {}
    for share in (1.0, 0.0):
        model = GaussianModel(own)
        model.fit([Sample(c, secs(c, share)) for c in candidates[:12]], lent)
        found[share] = model.of_machines
    assert found[1.0] == 1.0
    assert found[0.0] == 0.0


def test_a_record_without_a_setting_has_the_key_of_earlier_versions() -> None:
    record = tuned(WORKLOADS[0], 2)[0]
    old = replace(record, setting=None, prior_secs=None)
    assert "setting" not in old.to_json()
    assert "prior_secs" not in old.to_json()
    assert TuningRecord.from_json(old.to_json()) == old
    assert TuningRecord.from_json(record.to_json()) == record
