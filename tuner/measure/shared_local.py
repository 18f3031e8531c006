"""Local measurers of several workloads, which share compile workers."""

from __future__ import annotations

from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ..compiling.pool import CompilePool
from .local import LocalMeasurer, MeasureSettings, compile_pool

MAX_RUNNERS = 6
"""Number of measurers with a runner process. A runner has the arrays and the reference of its
workload."""


class SharedLocal:
    """A `MeasurerFactory` for one target; leaving its context ends the compile workers.

    When a measurer begins to measure, the runner of the measurer that was idle for the longest time
    is ended if there are more than `MAX_RUNNERS`. It starts again when it is needed.
    """

    def __init__(self, settings: MeasureSettings | None = None) -> None:
        self._settings = settings or MeasureSettings()
        self._pool: CompilePool | None = None
        self._running: list[LocalMeasurer] = []

    def __call__(self, workload: Workload, target: Target, seed: int) -> LocalMeasurer:
        if self._pool is None:
            self._pool = compile_pool(target, self._settings)
        return LocalMeasurer(
            workload,
            target,
            seed,
            settings=self._settings,
            pool=self._pool,
            on_use=self._used,
        )

    def __enter__(self) -> SharedLocal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def _used(self, measurer: LocalMeasurer) -> None:
        self._running = [
            other for other in self._running if other is not measurer and other.running
        ]
        for idle in self._running[: max(len(self._running) + 1 - MAX_RUNNERS, 0)]:
            idle.rest()
        self._running.append(measurer)
