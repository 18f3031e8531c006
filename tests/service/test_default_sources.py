"""Where a schedule without measurement comes from: the order of trust, and what the note says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.support.service.records import TOOLCHAIN
from tilewright.costmodel.correction import FEATURES, Correction
from tilewright.costmodel.forest import Tree, forest_of
from tilewright.db import Store, open_store, related_records, stored_model
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.record import Toolchain
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.service.answers.analytic import NOTHING_KNOWN, Knowledge, default_schedule
from tilewright.service.cli import run
from tilewright.service.jobs.tuning import register
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget
from tilewright.tuner.testing import mocked_target
from tilewright.tuner.tuning import tune

TARGET = mocked_target(1)
NEIGHBOUR = replace(TARGET, cpu="znver9")
OTHER_COMPILER = Toolchain(TOOLCHAIN.codegen_version + 1, "0.1.0", "1.0")
MACHINE = SimulatedMachine(code_limit=6, code_cost=1.5, ruggedness=0.1, common=1.0)
WANTED = parse_workload("matmul:M=96,N=48,K=80")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "db.sqlite")) as opened:
        register(opened, WANTED, TARGET)
        yield opened


def fill(store: Store, text: str, target: Target = TARGET, **changes: Any) -> None:
    """Store trials of a simulated machine as if kernels had been run."""
    workload, sink = parse_workload(text), MemorySink()
    tune(workload, target, budget=Budget(12), measurer=MACHINE, sink=sink)
    register(store, workload, target)
    changes = {"toolchain": replace(TOOLCHAIN, llvm="1.0"), **changes}
    records = sink.records(workload.key, target.key)
    store.add([replace(r, **changes) for r in records if r.verified_level == "quick"])


def known(store: Store) -> Knowledge:
    """What commands and what services read, which is equal."""
    found = Knowledge(store.related(WANTED, TARGET, 4), store.model(TARGET))
    url = f"sqlite:///{store.path}"
    assert Knowledge(related_records(url, WANTED, TARGET), stored_model(url, TARGET)) == found
    return found


def learn(store: Store, target: Target = TARGET, **changes: Any) -> str:
    """Store a model that doubles the time of whatever packs a byte; return its key."""
    feature = FEATURES.index("packed_bytes per operation")
    tree = Tree([1, -1, -1], [2, -1, -1], [feature, 0, 0], [-20.0, 0.0, 1.0])
    document = Correction(forest_of(FEATURES, 0.0, [tree]), 1.0).to_document()
    register(store, WANTED, target)
    return store.add_model(target.key, "", {**document, **changes}, {"samples": 640})


def test_an_empty_database_says_nothing(store: Store) -> None:
    found = default_schedule(WANTED, TARGET, known(store))
    assert found == default_schedule(WANTED, TARGET, NOTHING_KNOWN)
    assert found.source == ""


def test_the_note_names_the_tasks_and_the_predicted_difference(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, "matmul:M=64,N=64,K=64")
    fill(store, "matmul:M=48,N=96,K=32")
    source = default_schedule(WANTED, TARGET, known(store)).source
    assert source.startswith(("as for matmul:M=", "from trials of matmul:M="))
    assert "% slower predicted" in source or "% faster predicted" in source or "choice" in source
    path = tmp_path / "target.json"
    path.write_text(json.dumps(TARGET.to_json()))
    words = ["best", WANTED.name, "--target", str(path), "--db", str(store.path), "--json"]
    assert run([*words, "--min-grade", "default"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["grade"] == "default"
    assert answer["note"] == f"chosen without measurement, {source}"


SPELLED: dict[str, Any] = {
    "expr": "C[i,j] += A[i,k,l] * B[k,l,j]", "tensors": ["A=f32[96,20,4]", "B=f32[20,4,48]"],
}  # fmt: skip


def test_the_schedule_of_another_spelling_is_the_default(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, "matmul:M=64,N=64,K=64")
    fill(store, WANTED.name)
    spelled = parse_workload(**SPELLED)
    found = Knowledge(store.related(spelled, TARGET, 4), store.model(TARGET))
    chosen = default_schedule(spelled, TARGET, found)
    words = f"with the schedule of {WANTED.name}, another spelling of this computation"
    assert chosen.source == words
    fastest = min(
        store.records(WANTED.key, TARGET.key), key=lambda r: r.result.run_secs_estimate or inf
    )
    assert lower(spelled, chosen.trace) == lower(WANTED, Trace.from_json(fastest.trace))
    path = tmp_path / "target.json"
    path.write_text(json.dumps(TARGET.to_json()))
    given = [word for tensor in SPELLED["tensors"] for word in ("--tensor", tensor)]
    command = ["best", "--expr", SPELLED["expr"], *given, "--target", str(path), "--json"]
    assert run([*command, "--db", str(store.path), "--min-grade", "default"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["grade"] == "default"
    assert (answer["record_key"], answer["run_secs"], answer["verified"]) == (None, None, False)
    assert answer["note"] == f"chosen without measurement, {words}"
    assert answer["trace"] == chosen.trace.to_json()
    assert run([*command, "--db", str(store.path)]) == 3, "no record of this spelling is stored"


def test_spellings_on_another_target_are_not_used(store: Store) -> None:
    fill(store, WANTED.name, NEIGHBOUR)
    spelled = parse_workload(**SPELLED)
    assert store.related(spelled, TARGET, 4) == []


@pytest.mark.parametrize(
    ("target", "changes", "words"),
    [
        (NEIGHBOUR, {}, "this workload on znver9"),
        (replace(TARGET, threads=2), {}, "this workload on x86-64-v3 with 2 threads"),
        (TARGET, {"toolchain": OTHER_COMPILER}, "this workload by another code generator"),
        (TARGET, {"verified_level": "imported"}, "this workload on x86-64-v3 (imported)"),
    ],
)
def test_this_workload_elsewhere_lends(
    store: Store, target: Target, changes: dict[str, Any], words: str
) -> None:
    fill(store, WANTED.name, target, **changes)
    found = known(store)
    assert len(found.related) == 1
    assert words in default_schedule(WANTED, TARGET, found).source


def test_trials_of_this_toolchain_here_are_no_relatives(store: Store) -> None:
    fill(store, WANTED.name)
    assert default_schedule(WANTED, TARGET, known(store)).source == ""


def test_the_model_corrects_the_prior_and_is_named(store: Store) -> None:
    plain = default_schedule(WANTED, TARGET, NOTHING_KNOWN)
    learn(store)
    found = default_schedule(WANTED, TARGET, known(store))
    assert found.source == "corrected by 100% of what 640 trials taught the database's model"
    fill(store, "matmul:M=64,N=64,K=64")
    both = default_schedule(WANTED, TARGET, known(store)).source
    assert "matmul:M=64" in both
    assert both.endswith(found.source)
    assert plain.source == ""


def test_the_model_of_a_similar_machine_counts_half(store: Store) -> None:
    learn(store, NEIGHBOUR)
    found = default_schedule(WANTED, TARGET, known(store)).source
    assert found == "corrected by 50% of what 640 trials on znver9 taught the database's model"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"version": 0}, "is not used: the model is of version 0"),
        ({"forest": {}}, "is not used: the model is damaged"),
        ({"share": 0.0}, ""),
    ],
)
def test_a_model_that_cannot_be_used_costs_a_line(
    store: Store, changes: dict[str, Any], line: str
) -> None:
    learn(store, **changes)
    found = default_schedule(WANTED, TARGET, known(store))
    assert found.trace == default_schedule(WANTED, TARGET, NOTHING_KNOWN).trace
    assert line in found.source
    assert bool(found.source) == bool(line)
