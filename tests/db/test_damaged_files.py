"""A file damaged anywhere gives an error, no answer or the right one; never a wrong one."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.contracts.store_values import (
    TARGET,
    WORKLOAD,
    a_record,
    all_records,
    full,
    promoted,
    register,
)
from tilewright.db import Store, artefacts_of_record, best_record, open_store
from tilewright.db.errors import StoreBroken, StoreError
from tilewright.db.values.records import Artefact, ArtefactFile
from tilewright.schedules.record import TuningRecord

DAMAGES = 150
BEST = full(3, 1e-4)
RECORDS = [a_record(1), a_record(2, None), BEST]
OBJECT = bytes(range(256)) * 30
FILE = ArtefactFile("object", "neg.o", "application/x-object", OBJECT)
ARTEFACT = Artefact("object", "neg.o", FILE.sha256, len(OBJECT))


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "store.sqlite"
    with open_store(str(path)) as store:
        register(store)
        store.add(RECORDS)
        assert promoted(store, BEST)
        store.add_artefacts(BEST.key, [FILE])
    return path


def answers(store: Store, blob: str) -> None:
    """Asks everything; AssertionError if any answer is wrong."""
    assert store.best(WORKLOAD, TARGET.key) in (None, BEST)
    served: list[TuningRecord] = store.records(WORKLOAD, TARGET.key)
    served += all_records(store)
    assert all(record in RECORDS for record in served)
    workload = store.workload(WORKLOAD)
    assert workload is None or (workload.name, workload.flops) == ("neg:1", 1024)
    found = store.blob(blob)
    assert found is None or found.data == OBJECT
    assert store.artefacts(BEST.key) in ([], [ARTEFACT])
    for record in RECORDS:
        assert store.record(record.key) in (None, record)


def test_random_damage_never_gives_a_wrong_answer(sound_file: Path, tmp_path: Path) -> None:
    chance = random.Random(20261121)
    content = sound_file.read_bytes()
    with open_store(str(sound_file)) as store:
        blob = store.put_blob(OBJECT, "application/x-object")
        answers(store, blob)
    outcomes: Counter[str] = Counter()
    path = tmp_path / "x.sqlite"
    for _ in range(DAMAGES):
        damaged = bytearray(content)
        start = chance.randrange(len(damaged))
        if chance.random() < 0.1:
            del damaged[start:]
        else:
            for at in range(start, min(start + chance.choice((1, 1, 8, 512)), len(damaged))):
                damaged[at] ^= chance.randrange(1, 256)
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        path.write_bytes(damaged)
        try:
            assert best_record(str(path), WORKLOAD, TARGET.key) in (None, BEST)
            assert artefacts_of_record(str(path), BEST.key) in ([], [ARTEFACT])
        except StoreError:
            outcomes["quick error"] += 1
        try:
            with open_store(str(path), create=False, upgrade=False, timeout_secs=0.1) as store:
                answers(store, blob)
                outcomes["problems" if store.check() else "harmless"] += 1
        except StoreError:
            outcomes["error"] += 1
    assert outcomes["error"] > 10
    assert outcomes["problems"] > 2  # most of a file is tables that this one has nothing in
    assert outcomes["harmless"] > 10


def test_a_lost_log_loses_its_transactions_whole(sound_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    shutil.copy(sound_file, path)
    with open_store(str(path)) as store:
        store.add([a_record(9)])
        copy = tmp_path / "copy.sqlite"
        shutil.copy(path, copy)  # without its -wal
        with open_store(str(copy)) as other:
            assert other.records(WORKLOAD, TARGET.key) == RECORDS
            assert other.check() == []


def test_check_tells_of_a_file_it_cannot_read(sound_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    shutil.copy(sound_file, path)
    with open_store(str(path)) as store:
        assert store.check() == []
    content = bytearray(path.read_bytes())
    content[len(content) // 3 :] = bytes(len(content) - len(content) // 3)
    path.write_bytes(content)
    try:
        with open_store(str(path)) as store:
            kinds = {problem.kind for problem in store.check()}
    except StoreBroken:
        kinds = {"file"}
    assert "file" in kinds
