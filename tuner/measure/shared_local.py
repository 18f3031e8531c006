"""Local measurers of several workloads, which share compile workers."""

from __future__ import annotations

import psutil

from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ..compiling.pool import CompilePool
from .local import LocalMeasurer, MeasureSettings, pool_for

RUNNERS_SHARE = 0.25
"""Fraction of the available memory for idle runner processes. A runner has the arrays and the
reference of its workload."""


class SharedLocal:
    """A `MeasurerFactory` for one target; leaving its context ends the compile workers.

    When a measurer begins to measure, the runners that were idle for the longest time are ended if
    all of them need more than `runner_bytes`. They start again when they are needed.
    """

    def __init__(
        self, settings: MeasureSettings | None = None, runner_bytes: int | None = None
    ) -> None:
        available = psutil.virtual_memory().available
        self._bytes = int(RUNNERS_SHARE * available) if runner_bytes is None else runner_bytes
        self._settings = settings or MeasureSettings()
        self._pool: CompilePool | None = None
        self._running: list[LocalMeasurer] = []

    def __call__(self, workload: Workload, target: Target, seed: int) -> LocalMeasurer:
        if self._pool is None:
            self._pool = pool_for(target, self._settings)
        return LocalMeasurer(
            workload,
            target,
            seed,
            settings=self._settings,
            pool=self._pool,
            on_use=self._used,
            on_timing=self._alone,
        )

    def __enter__(self) -> SharedLocal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def _used(self, measurer: LocalMeasurer) -> None:
        others = [one for one in self._running if one is not measurer and one.runner_bytes]
        idle = [one for one in others if not one.checks]
        while idle and sum(one.runner_bytes for one in others) > self._bytes:
            resting = idle.pop(0)
            resting.rest()
            others.remove(resting)
        self._running = [*others, measurer]

    def _alone(self, measurer: LocalMeasurer) -> None:
        """Wait for the full checks of other measurers, because `measurer` times a kernel now."""
        for one in self._running:
            if one is not measurer:
                one.settle()
