"""What was tuned in one spelling of a computation is a start for every other spelling."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.transposed import SPELLINGS, Convolution
from tests.support.tuner.scripted import Scripted, ok
from tilewright.db import Store, open_store, related_records
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
from tilewright.schedules.related import RelatedRecords
from tilewright.schedules.sketches import space_for
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.cli.render import related_rows
from tilewright.service.jobs.tuning import register
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.search.default import default_choice, default_of_document
from tilewright.tuner.search.spellings import (
    MOST_SCHEDULES,
    SpelledTrace,
    fastest_traces,
    samples_of_spellings,
)
from tilewright.tuner.session.report import Budget, TuneReport
from tilewright.tuner.testing import mocked_target
from tilewright.tuner.tuning import tune

TARGET = mocked_target(1)


def spelled(*texts: tuple[str, str]) -> list[Workload]:
    return [parse_workload(expr=text, tensors=tensors.split()) for text, tensors in texts]


SMALL = Convolution.of(2, size=(5, 6), ci=8, co=16, kernel=4, stride=2, pad=1)
COMPUTATIONS = {
    "elementwise": spelled(
        ("Y[i,j] = exp(X[i,j])", "X=f32[64,128]"),
        ("Y[i] = exp(X[i])", "X=f32[8192]"),
        ("Y[i,j,k] = exp(X[i,j,k])", "X=f32[32,16,16]"),
    ),
    "product": spelled(
        ("C[i,j] += A[i,k] * B[k,j]", "A=f32[24,40] B=f32[40,64]"),
        ("C[i,j,q] += A[i,k,l] * B[k,l,j,q]", "A=f32[24,10,4] B=f32[10,4,4,16]"),
        ("C[a,b,j] += A[a,b,k] * B[k,j]", "A=f32[4,6,40] B=f32[40,64]"),
    ),
    "transposed convolution": [
        SPELLINGS["library"](SMALL), SPELLINGS["upsampled"](SMALL),
    ],
}  # fmt: skip


def secs_of(nest: Nest) -> float:
    """A time between 10 and 20 us that only the nest determines."""
    digest = hashlib.sha256(repr(nest).encode()).digest()
    return 1e-5 * (1 + int.from_bytes(digest[:4], "big") / 2**32)


def machine(workload: Workload, target: Target, seed: int) -> Scripted:
    """A machine on which equal nests take equal times."""

    def answer(request: MeasureRequest) -> MeasureResult:
        return ok(secs_of(lower(workload, request.trace)))

    return Scripted(answer)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "db.sqlite")) as opened:
        yield opened


def tuned(store: Store, workload: Workload, trials: int, target: Target = TARGET) -> TuneReport:
    register(store, workload, target)
    return tune(workload, target, budget=Budget(trials), measurer=machine, sink=store)


def best_of(store: Store, workload: Workload) -> TuningRecord:
    found = store.best(workload.key, TARGET.key)
    assert found is not None
    return found


def nest_of(workload: Workload, record: TuningRecord) -> Nest:
    return lower(workload, Trace.from_json(record.trace))


def trial(store: Store, workload: Workload, number: int) -> TuningRecord:
    records = store.records(workload.key, TARGET.key)
    (found,) = [r for r in records if r.trial == number and r.verified_level == "quick"]
    return found


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_the_best_schedule_of_another_spelling_is_tried_first(store: Store, name: str) -> None:
    first, *others = COMPUTATIONS[name]
    tuned(store, first, 32)
    for other in others:
        best_before = min(
            (best_of(store, w) for w in COMPUTATIONS[name] if store.best(w.key, TARGET.key)),
            key=lambda record: record.result.run_secs_estimate or 0.0,
        )
        (source,) = [w for w in COMPUTATIONS[name] if w.key == best_before.workload_key]
        report = tuned(store, other, 32)
        began = trial(store, other, 1)
        assert nest_of(other, began) == nest_of(source, best_before)
        assert report.best is not None
        assert report.best.verified
        assert best_before.result.run_secs_estimate is not None
        assert report.best.run_secs <= best_before.result.run_secs_estimate
        assert report.related[0]["is_spelling"]
        assert report.related[0]["tried"][0]["trial"] == 1
        assert best_of(store, other).workload_key == other.key
        again = tuned(store, other, 32)
        assert again.trials["measured_now"] == 0, "a repeated run proposes the same"
        assert again.trials["total"] == report.trials["total"]


def test_few_trials_suffice_if_nothing_is_faster(store: Store) -> None:
    first, _, last = COMPUTATIONS["product"]
    tuned(store, first, 64)
    best = best_of(store, first)
    secs = best.result.run_secs_estimate
    assert secs is not None

    def slower(workload: Workload, target: Target, seed: int) -> Scripted:
        """All other nests are slower than the best one of the first spelling."""
        nest = nest_of(first, best)

        def answer(request: MeasureRequest) -> MeasureResult:
            own = lower(workload, request.trace)
            return ok(secs if own == nest else secs + secs_of(own))

        return Scripted(answer)

    register(store, last, TARGET)
    report = tune(last, TARGET, budget=Budget(64), measurer=slower, sink=store)
    assert report.trials["total"] == 8
    assert report.best is not None
    assert (report.best.trial, report.best.run_secs) == (1, secs)


def test_one_trial_is_the_schedule_of_the_other_spelling(store: Store) -> None:
    first, other, _ = COMPUTATIONS["elementwise"]
    tuned(store, first, 8)
    report = tuned(store, other, 1)
    assert report.trials["total"] == 1
    assert report.best is not None
    assert report.best.run_secs == best_of(store, first).result.run_secs_estimate
    lines = related_rows(report.related)
    assert lines[0] == (
        "related",
        f"the search used trials of {first.name}, another spelling of this computation",
    )
    assert [name for name, _ in lines[1:]] == ["spelling"]


def test_records_elsewhere_and_of_other_computations_are_no_spellings(store: Store) -> None:
    first, other, _ = COMPUTATIONS["product"]
    tuned(store, first, 4, replace(TARGET, cpu="znver9"))
    assert store.related(other, TARGET, 4) == []
    tuned(store, COMPUTATIONS["elementwise"][0], 4)
    transposed = parse_workload(
        expr="C[i,j] += A[i,k] * B[j,k]", tensors=["A=f32[24,40]", "B=f32[64,40]"]
    )
    tuned(store, transposed, 4)
    assert store.related(other, TARGET, 4) == []
    tuned(store, first, 4)
    (found,) = store.related(other, TARGET, 4)
    assert found.spelling is not None
    assert found.spelling.key == first.key
    assert related_records(f"sqlite:///{store.path}", other, TARGET) == [found]


def test_a_spelling_of_the_same_structure_is_listed_once(store: Store) -> None:
    wide, tall = spelled(
        ("Y[i,j] = exp(X[i,j])", "X=f32[64,128]"), ("Y[i,j] = exp(X[i,j])", "X=f32[128,64]")
    )
    tuned(store, wide, 4)
    (found,) = store.related(tall, TARGET, 4)
    assert found.spelling is not None


def test_samples_are_candidates_of_the_space_with_the_sketches_they_need(store: Store) -> None:
    first, other, _ = COMPUTATIONS["elementwise"]
    tuned(store, first, 16)
    space = space_for(other, TARGET)
    found = store.related(other, TARGET, 4)
    toolchain = found[0].records[0].toolchain
    wider, samples = samples_of_spellings(space, found, toolchain)
    assert wider.sketches[: len(space.sketches)] == space.sketches
    assert samples
    known = {repr(nest_of(first, record)) for record in found[0].records}
    for sample in samples:
        assert (sample.work, sample.machine, sample.similarity) == (0, 0, 1.0)
        assert repr(lower(other, wider.trace(sample.candidate))) in known


def test_trials_that_do_not_fit_are_left_out(store: Store) -> None:
    first, other, _ = COMPUTATIONS["product"]
    tuned(store, first, 4)
    (found,) = store.related(other, TARGET, 4)
    space = space_for(other, TARGET)
    toolchain = found.records[0].toolchain

    def lent(**changes: object) -> RelatedRecords:
        records = tuple(replace(r, **changes) for r in found.records)  # type: ignore[arg-type]
        return replace(found, records=records)

    step = {"do": "MergeAxes", "stage": "s0", "outer": "d0", "inner": "d1"}
    bad = [lent(trace=[step]), lent(setting={"sketch": "other", "knobs": {}}),
           replace(found, spelling=COMPUTATIONS["elementwise"][0])]  # fmt: skip
    assert samples_of_spellings(space, bad, toolchain) == (space, [])
    for one in bad[::2]:
        assert default_choice(other, TARGET, spelled=fastest_traces([one], toolchain)) == (
            default_choice(other, TARGET)
        )


def test_the_default_schedule_is_that_of_the_fastest_spelling(store: Store) -> None:
    first, second, last = COMPUTATIONS["product"]
    tuned(store, first, 8)
    tuned(store, second, 8)
    found = store.related(last, TARGET, 4)
    traces = fastest_traces(found, found[0].records[0].toolchain)
    assert [SpelledTrace.from_json(one.to_json()).to_json() for one in traces] == [
        one.to_json() for one in traces
    ]
    assert len({str(one.steps) for one in traces}) == len(traces) == MOST_SCHEDULES
    choice = default_choice(last, TARGET, spelled=traces)
    best = min(
        (best_of(store, w) for w in (first, second)),
        key=lambda record: record.result.run_secs_estimate or 0.0,
    )
    (source,) = [w for w in (first, second) if w.key == best.workload_key]
    assert traces[0].steps in [best_of(store, w).trace for w in (first, second)]
    assert lower(last, choice.trace) == nest_of(source, best)
    document = {
        "workload": last.to_json(), "target": TARGET.to_json(), "related": [],
        "correction": None, "spelled": [one.to_json() for one in traces],
    }  # fmt: skip
    assert default_of_document(document).document == choice.to_json()


def test_a_candidate_that_fails_here_does_not_end_the_search(store: Store) -> None:
    """A trial of another spelling is verified like every other one."""
    first, other, _ = COMPUTATIONS["product"]
    tuned(store, first, 8)
    nest = nest_of(first, best_of(store, first))

    def wrong(workload: Workload, target: Target, seed: int) -> Scripted:
        def answer(request: MeasureRequest) -> MeasureResult:
            own = lower(workload, request.trace)
            if own == nest:
                return MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 3")
            return ok(secs_of(own))

        return Scripted(answer)

    register(store, other, TARGET)
    report = tune(other, TARGET, budget=Budget(8), measurer=wrong, sink=store)
    assert report.best is not None
    assert trial(store, other, 1).result.status is MeasureStatus.WRONG_RESULT
    assert nest_of(other, best_of(store, other)) != nest
