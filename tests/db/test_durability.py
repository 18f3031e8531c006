"""What was acknowledged is there, whenever the writer dies."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contracts.store_values import TARGET, WORKLOAD
from tests.support.paths import ROOT
from tests.support.postgres import PostgresServer
from tilewright.db import open_store
from tilewright.db.core.models import Base

KILLS = 6
TABLES = len(Base.metadata.tables) + 2  # alembic_version, and SQLite's own for AUTOINCREMENT

# Writes records for ever, as a tuning run does, and names each one once `add` has returned.
WRITER = """
import os, sys
from tilewright.db import open_store
from tests.contracts.store_values import full, register
store = open_store(sys.argv[1])
register(store)
for trial in range(int(sys.argv[2]), 10**9):
    record = full(trial, 1.0 / (trial + 1))
    store.add([record])
    os.write(1, f"{record.key} {int(store.promote(record))}\\n".encode())
"""

# Does each kind of write once; dies of SIGKILL before its n-th SQL statement, for n = 1, 2, ...
# until it gets through: on a database to be made, or on copies of an empty one if one is named.
# Prints how many statements there were.
CRASHER = """
import os, shutil, sys
from tilewright.db import open_store
from tests.contracts.store_values import every_write
from tests.support.killed_writers import dies_at

def write(path):
    with open_store(path) as store:
        if len(sys.argv) > 2:
            every_write(store)

def path_of(number):
    path = os.path.join(sys.argv[1], f"{number}.sqlite")
    return shutil.copy(sys.argv[2], path) if len(sys.argv) > 2 else path

with open_store(os.path.join(sys.argv[1], "warm.sqlite")) as store:
    every_write(store)  # what is set up on first use is set up before the forks
n = 1
while dies_at(n, lambda: write(path_of(n))):
    n += 1
print(n)
"""


@contextmanager
def writer(url: str, first_trial: int) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [sys.executable, "-c", WRITER, url, str(first_trial)]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "x.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.fresh()


def test_kill_at_random_moments_loses_nothing_acknowledged(url: str) -> None:
    chance = random.Random(20261121)
    acknowledged: list[str] = []
    best = ""
    for attempt in range(KILLS):
        with writer(url, attempt * 10**6) as process:
            assert process.stdout is not None
            said, enough = b"", chance.randrange(3, 20)
            while said.count(b"\n") < enough:
                more = os.read(process.stdout.fileno(), 4096)
                assert more, "the writer died by itself"
                said += more
            time.sleep(chance.uniform(0.0, 0.003))  # anywhere between two acknowledgements
            process.send_signal(signal.SIGKILL)
            process.wait()
            while select.select([process.stdout], [], [], 0)[0]:
                more = os.read(process.stdout.fileno(), 65536)
                if not more:
                    break
                said += more
        for line in said.decode().splitlines():
            match line.split(" "):
                case [key, moved] if moved:
                    acknowledged.append(key)
                    best = key if moved == "1" else best
    with open_store(url) as store:
        stored = [record.key for record in store.records(WORKLOAD, TARGET.key)]
        assert len(set(stored)) == len(stored)
        assert set(acknowledged) <= set(stored)
        assert len(stored) - len(acknowledged) <= KILLS, "at most one on its way a kill"
        found = store.best(WORKLOAD, TARGET.key)
        assert found is not None
        assert stored.index(found.key) >= stored.index(best), "the best never went back"
        assert store.check(acknowledged) == []


@pytest.mark.parametrize("made_before", [False, True])
def test_a_kill_before_any_statement_leaves_a_sound_store(
    tmp_path: Path, made_before: bool
) -> None:
    arguments = [sys.executable, "-c", CRASHER, str(tmp_path)]
    if made_before:
        open_store(str(tmp_path / "empty.sqlite")).close()
        arguments.append(str(tmp_path / "empty.sqlite"))
    crasher = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert crasher.returncode == 0, crasher.stderr
    statements = int(crasher.stdout)
    assert statements > (60 if made_before else 20), "fewer than there can be"
    for number in range(1, statements + 1):
        path = tmp_path / f"{number}.sqlite"
        if not made_before and number < statements:
            # Either nothing is there yet, or all of it: never a half of the schema.
            assert tables(path) in (0, TABLES), f"killed before statement {number}"
            continue
        with open_store(str(path)) as store:
            assert store.check() == [], f"killed before statement {number}"
            if made_before and number == statements:
                assert store.counts().records == 4


# Forks four processes that open one database, which is not there yet, at the same moment, add
# records and promote them.
CROWD = """
import os, sys
import alembic.command
from tilewright.db import open_store
from tests.contracts.store_values import full, promoted, register

def work(number):
    os.read(start, 1)
    with open_store(sys.argv[1]) as store:
        register(store)
        for trial in range(15):
            promoted(store, full(trial * 4 + number, 1.0 / (1 + trial * 4 + number)))

start, gun = os.pipe()
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        work(number)
        os._exit(0)
    children.append(child)
os.write(gun, b"....")
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(any(codes))
"""


def test_processes_share_a_database_from_its_first_moment(tmp_path: Path) -> None:
    for attempt in range(2):
        path = tmp_path / f"{attempt}.sqlite"
        crowd = subprocess.run(
            [sys.executable, "-c", CROWD, str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert crowd.returncode == 0, crowd.stderr
        with open_store(str(path)) as store:
            assert store.counts().records == 60
            best = store.best(WORKLOAD, TARGET.key)
            assert best is not None
            assert best.result.run_secs_estimate == 1.0 / 60
            assert store.check() == []


def test_a_file_that_another_process_prepares_is_waited_for(tmp_path: Path) -> None:
    # SQLite does not wait by itself for the lock that the change to WAL mode needs.
    path = tmp_path / "1.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    held = threading.Timer(0.3, other.close)
    held.start()
    with open_store(str(path)) as store:
        assert store.check() == []
    held.join()


def tables(path: Path) -> int:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'")
    count = int(found.fetchone()[0])
    connection.close()
    return count
