"""The base of the classes that make up `Store`, whose public methods are one transaction each."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from sqlalchemy.orm import Session

from .engine import Database

Clock: TypeAlias = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time of day, the default clock of a store."""
    return datetime.now(UTC)


class StorePart:
    """Base of all parts of the store: the database, and its sources of time and randomness.

    `clock` returns the timestamps of rows; no decision depends on them. `lease_clock` returns the
    time of leases in seconds; by default the database does. `entropy(n)` returns n random bytes.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock = utc_now,
        lease_clock: Callable[[], float] | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._database = database
        self._clock = clock
        self._lease_clock = lease_clock
        self._entropy = entropy

    @property
    def name(self) -> str:
        """The name of the database for messages, without user and password."""
        return self._database.name

    @property
    def path(self) -> Path | None:
        """The file of the database, or None if it is on a server."""
        return self._database.path

    def _lease_time(self, session: Session) -> float:
        return self._lease_clock() if self._lease_clock else self._database.lease_clock(session)


S = TypeVar("S", bound=StorePart)
P = ParamSpec("P")
T = TypeVar("T")


def reading(method: Callable[Concatenate[S, Session, P], T]) -> Callable[Concatenate[S, P], T]:
    """Wrap `method` in a read transaction on one snapshot of the database. If the connection is
    lost, `method` is called again."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.read(lambda session: method(self, session, *args, **kwargs))

    _hide_session(call)
    return call


def writing(method: Callable[Concatenate[S, Session, P], T]) -> Callable[Concatenate[S, P], T]:
    """Wrap `method` in a write transaction. When the call returns, its changes are durable; if it
    raises, nothing was stored. `method` is called again only if nothing of an earlier attempt was
    committed."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.write(lambda session: method(self, session, *args, **kwargs))

    _hide_session(call)
    return call


def _hide_session(call: Any) -> None:
    """Make `help` show the arguments that callers pass, without the session."""
    shown = signature(call)
    given = [p for name, p in shown.parameters.items() if name != "session"]
    call.__signature__ = shown.replace(parameters=given)
