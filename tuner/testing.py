"""Tuning with mocked timings, for the test suites of projects that use Tilewright.

    def test_my_build(tilewright_simulated):
        report = tilewright_simulated.tune("matmul:M=64,N=64,K=64", trials=16)
        assert report.best.verified

`tilewright_simulated` tunes on a simulated machine, `tilewright_replay` from recorded timings
(`tilewright_replay.use("timings.jsonl")`). Search, traces and records are real; only the times are
mocked, so no special hardware is needed and results are the same on every machine. See
`docs/mocked_timings.md`; the fixtures are in `tilewright.pytest_plugin`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tilewright.schedules.target import Target
    from tilewright.schedules.workload.workload import Workload

    from .measure.protocol import MeasurerFactory
    from .session.memory_sink import MemorySink
    from .session.report import TuneReport

# Start-up: a fixture that is requested and not used must load little.


def _memory_sink() -> MemorySink:
    from .session.memory_sink import MemorySink

    return MemorySink()


@dataclass
class MockedTuner:
    """A tuner with mocked timings; `sink` stores the results of one test."""

    factory: MeasurerFactory | None
    sink: MemorySink = field(default_factory=_memory_sink)

    def use(self, source: str | Path | dict[str, Any]) -> MockedTuner:
        """Take timings from a file instead, or from a simulated machine with these settings.

        Raise MeasurerError if the file or a setting is invalid.
        """
        from .measure.mocked.replay import read_replay
        from .measure.mocked.simulated import machine_from_json, read_simulated

        if isinstance(source, dict):
            self.factory = machine_from_json(source, "settings")
        elif str(source).endswith(".json"):
            self.factory = read_simulated(source)
        else:
            self.factory = read_replay(source)
        return self

    def tune(
        self,
        workload: str | Workload,
        *,
        trials: int = 16,
        strategy: str = "annealing",
        seed: int = 0,
        target: Target | None = None,
    ) -> TuneReport:
        """Tune and return the report; `target` defaults to `mocked_target()`.

        `workload` is a Workload, or text as on the command line ("matmul:M=64,N=64,K=64").
        """
        from .session.report import Budget
        from .tuning import tune

        if self.factory is None:
            pytest.fail("call tilewright_replay.use(FILE) with a file of recorded timings first")
        return tune(
            _workload(workload),
            target or mocked_target(),
            budget=Budget(trials=trials),
            strategy=strategy,
            seed=seed,
            measurer=self.factory,
            sink=self.sink,
        )


def mocked_target(threads: int = 1) -> Target:
    """Return a fixed 4-core machine with AVX2, the same wherever the tests run."""
    from tilewright.schedules.target import Cache, Target

    return Target(
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64-v3",
        features=("avx", "avx2", "fma"),
        vector_bits=256,
        vector_registers=16,
        caches=(Cache(32768, 8), Cache(524288, 8), Cache(16 << 20, 16, shared=True)),
        cores=4,
        threads=threads,
    )


def _workload(spelled: str | Workload) -> Workload:
    if not isinstance(spelled, str):
        return spelled
    from tilewright.schedules.spelling import parse_workload

    return parse_workload(spelled)
