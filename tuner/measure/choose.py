"""Measurers by name: what `--measurer` and a job's field choose from."""

from __future__ import annotations

from collections.abc import Callable

from schedules.errors import TilewrightError

from .protocol import MeasurerFactory

CHOICES = "local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT"


class MeasurerError(TilewrightError):
    """A measurer that does not exist, or a file of timings that cannot be used."""


def parse_measurer(spec: str, should_stop: Callable[[], bool] | None = None) -> MeasurerFactory:
    """The factory for `local`, `replay:FILE`, `simulated:FILE` or `dask:ADDRESS`.

    A file is read here, once, so a bad one is an error before any work starts: MeasurerError. So is
    a bad address; nothing is connected yet. `should_stop` is asked by those who wait for others.
    """
    kind, _, path = spec.partition(":")
    if kind == "local" and not path:
        from .local import LocalMeasurer

        return LocalMeasurer
    if kind == "replay" and path:
        from .mocked.replay import read_replay

        return read_replay(path)
    if kind == "simulated" and path:
        from .mocked.simulated import read_simulated

        return read_simulated(path)
    if kind == "dask" and path:
        from .fleet.measurer import read_fleet

        return read_fleet(path, should_stop)
    raise MeasurerError(f"measurer must be {CHOICES}; got {spec!r}")
