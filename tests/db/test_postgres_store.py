"""The store on PostgreSQL keeps the contract, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.contracts.answer_store_contract import AnswerStoreContract
from tests.contracts.job_store_contract import JobStoreContract
from tests.contracts.store_contract import StoreContract
from tests.contracts.store_values import ChangeRefused, Clock, register
from tests.support.postgres import PostgresServer
from tilewright.db import Store, open_store

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(postgres_server: PostgresServer, clock: Clock) -> Iterator[Store]:
    numbers = count()  # within one millisecond, ids sort by what chance gives
    with open_store(
        postgres_server.fresh(),
        clock=clock,
        lease_clock=lambda: clock().timestamp(),
        entropy=lambda size: next(numbers).to_bytes(size, "big"),
    ) as store:
        register(store)
        yield store


@pytest.fixture
def damage(store: Store) -> Callable[[str], None]:
    """Runs SQL behind the store's back."""

    def run(statement: str) -> None:
        statement = statement.replace("data = x'00'", "data = '\\x00'")
        with psycopg.connect(store.url, autocommit=True) as connection:
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                raise ChangeRefused(statement) from error

    return run


class TestPostgresStore(StoreContract, JobStoreContract, AnswerStoreContract):
    pass
