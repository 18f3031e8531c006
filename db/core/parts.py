"""Parts of the store: classes whose public methods are one transaction each."""

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
    """The time of day, for a store that is given no other clock."""
    return datetime.now(UTC)


class StorePart:
    """The database of a store, and its sources of time and randomness, for all parts of the store.

    `clock` gives the moments that rows carry; no decision depends on them. Leases go by
    `lease_clock`, in seconds, where that is given, else by the database's clock.
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
        """The name of the database for messages: no user, no password."""
        return self._database.name

    @property
    def path(self) -> Path | None:
        """Its file, None if it is on a server."""
        return self._database.path

    def _lease_time(self, session: Session) -> float:
        given = self._lease_clock
        return self._database.lease_clock(session) if given is None else given()


S = TypeVar("S", bound=StorePart)
P = ParamSpec("P")
T = TypeVar("T")


def reading(method: Callable[Concatenate[S, Session, P], T]) -> Callable[Concatenate[S, P], T]:
    """`method` in a transaction of its own, which sees one moment of the database and keeps
    nothing. Where the connection is lost it is called again."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.read(lambda session: method(self, session, *args, **kwargs))

    _hide_session(call)
    return call


def writing(method: Callable[Concatenate[S, Session, P], T]) -> Callable[Concatenate[S, P], T]:
    """`method` in a transaction of its own: when the call returns, all that it wrote is durable;
    when it raises, nothing was kept. It is called again only if nothing of an earlier attempt was
    kept."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.write(lambda session: method(self, session, *args, **kwargs))

    _hide_session(call)
    return call


def _hide_session(call: Any) -> None:
    """Have `help` show the arguments that callers give."""
    shown = signature(call)
    given = [p for name, p in shown.parameters.items() if name != "session"]
    call.__signature__ = shown.replace(parameters=given)
