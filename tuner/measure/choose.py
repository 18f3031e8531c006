"""Measurers by name: what `--measurer` and a job's field choose from."""

from __future__ import annotations

from collections.abc import Callable

from .here import factory_here
from .protocol import MeasurerError, MeasurerFactory

CHOICES = "local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT"


def parse_measurer(spec: str, should_stop: Callable[[], bool] | None = None) -> MeasurerFactory:
    """The factory for `local`, `replay:FILE`, `simulated:FILE` or `dask:ADDRESS`.

    A file is read here, once, so a bad one is an error before any work starts: MeasurerError. So is
    a bad address; nothing is connected yet. `should_stop` is asked by those who wait for others.
    """
    kind, _, path = spec.partition(":")
    if kind == "dask" and path:
        from .fleet.measurer import read_fleet  # Start-up: most runs have no fleet

        return read_fleet(path, should_stop)
    factory = factory_here(spec)
    if factory is None:
        raise MeasurerError(f"measurer must be {CHOICES}; got {spec!r}")
    return factory
