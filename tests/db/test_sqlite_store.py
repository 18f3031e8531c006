"""The SQLite store keeps the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tests.contracts.answer_store_contract import AnswerStoreContract
from tests.contracts.job_store_contract import JobStoreContract
from tests.contracts.store_contract import StoreContract
from tests.contracts.store_values import ChangeRefused, Clock, register, sqlite_of
from tilewright.db import Store, open_store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    numbers = count()  # within one millisecond, ids sort by what chance gives
    with open_store(
        f"sqlite:///{tmp_path / 'store.sqlite'}",
        clock=clock,
        lease_clock=lambda: clock().timestamp(),
        entropy=lambda size: next(numbers).to_bytes(size, "big"),
    ) as store:
        register(store)
        yield store


@pytest.fixture
def damage(store: Store) -> Callable[[str], None]:
    """Runs SQL on the file behind the store's back."""

    def run(statement: str) -> None:
        with closing(sqlite3.connect(str(store.path), isolation_level=None)) as connection:
            try:
                connection.execute(statement)
            except sqlite3.Error as error:
                raise ChangeRefused(statement) from error

    return run


class TestSqliteStore(StoreContract, JobStoreContract, AnswerStoreContract):
    pass


def test_threads_that_fold_the_log_in_at_once_do_not_meet(tmp_path: Path) -> None:
    """Of a process that does not coordinate: each takes the lock for that and gives it back."""
    with open_store(str(tmp_path / "x.sqlite")) as store, ThreadPoolExecutor(8) as threads:
        done = [threads.submit(sqlite_of(store).checkpoint) for _ in range(200)]
        assert sum(one.result() for one in done) > 0  # all of them are asked
        assert not store.coordinates()
