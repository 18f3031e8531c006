"""The processes that compile and check the candidates of one workload, and the waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from tilewright.schedules.record import Evidence, MeasureResult, MeasureStatus
from tilewright.schedules.trace import Trace

from ... import timeouts
from ...compiling.pool import Compiled, CompilePool
from ...machine.machine_lock import machine_lock
from ...process.control import Activity, Control, OutOfTime, rounded_up
from .limits import TimeLimits
from .requests import kernel_job
from .runner_client import RunnerClient


@dataclass(slots=True)
class Processes:
    """The compile workers and the runner of one measurer. Batches and full checks share them."""

    pool: CompilePool
    runner: RunnerClient
    limits: TimeLimits
    document_of: Callable[[Trace], dict[str, Any]]
    """Returns the request to a compile worker."""
    overlaps: bool
    """Whether kernels are timed while others are compiled."""
    final_secs: float
    lock_path: Path | None
    """None means the machine's lock."""
    on_timing: Callable[[], None] = lambda: None
    """Called before the machine's lock is acquired."""
    control: Control = field(default_factory=Control)
    costs: list[dict[str, float]] = field(default_factory=list)
    """The seconds that each checked kernel took, by part of the work."""

    def kill(self) -> None:
        self.pool.kill()
        self.runner.kill()

    def until_open(self) -> None:
        """Wait until the runner has computed the reference. Raise OutOfTime if this takes too
        long."""
        start = self.control.clock()
        if not self.runner.running:
            self.runner.start()
        while not self.runner.opened and not self.runner.has_answer(timeouts.MEASURE_POLL_SECS):
            self.doing(Activity("reference", "computing the reference"))
            self.end_late(start, timeouts.MAX_REFERENCE_SECS)
            self.let_others()

    def let_others(self) -> None:
        self.control.check()
        if self.control.is_wanted():
            with self.runner.in_background():
                self.control.pause()

    def end_late(self, start: float, most_secs: float) -> None:
        """Raise OutOfTime if the time budget is used up.

        If the run has no time budget, raise it if the activity that began at `start` has taken
        `most_secs`.
        """
        self.control.check()
        if self.control.allowed_secs == inf and self.control.clock() - start > most_secs:
            would_do = rounded_up(5 * most_secs)
            raise OutOfTime(
                f"stopped: {self.control.activity} took longer than {most_secs:.3g} s; allow more"
                f" time with `tune --seconds {would_do:g}`, or make the workload smaller",
                would_do,
            )

    def doing(self, activity: Activity) -> None:
        if str(activity) != str(self.control.activity):
            self.control.doing(activity)

    @contextmanager
    def machine(self) -> Iterator[None]:
        """Hold the machine's lock for the block. Raise MeasurementAborted if the run is aborted
        during the wait."""
        reported = ""

        def on_wait(text: str) -> None:
            nonlocal reported
            self.control.check()
            if text != reported:
                reported = text
                self.control.waiting(text)

        self.control.check()
        self.on_timing()
        with ExitStack() as held:
            with self.control.locked_out():
                held.enter_context(machine_lock(self.lock_path, on_wait=on_wait))
            if reported:
                self.control.waiting("")
            yield

    def compiled(self, timeout_secs: float | None) -> list[Compiled]:
        """Return outcomes of the pool. Raise MeasurementAborted if an abort killed its workers."""
        outcomes = self.pool.poll(timeout_secs)
        self.control.check()
        return outcomes

    def answer(self, look: Callable[[], None]) -> dict[str, Any]:
        """Return the runner's answer. Raise MeasurementAborted if an abort killed the runner.

        `look` is called repeatedly during the wait. An exception that it raises ends the wait.
        """
        try:
            while not self.runner.has_answer(timeouts.MEASURE_POLL_SECS):
                look()
            return self.runner.result()
        finally:
            self.control.check()

    def job(self, compiled: Compiled, trace: Trace) -> dict[str, Any]:
        return kernel_job(compiled.symbol, compiled.threads, compiled.needs, trace) | {
            "incumbent_secs": self.limits.incumbent_secs,
            "final_secs": self.final_secs,
        }

    def result(self, compiled: Compiled, answer: dict[str, Any]) -> MeasureResult:
        """Return the result of a checked kernel from the runner's answer, and note its costs."""
        names = ("fork_secs", "child_secs", "load_secs", "verify_secs", "measure_secs")
        spent = {name: float(answer.get(name, 0.0)) for name in names}
        self.costs.append({"compile_secs": compiled.secs, **spent})
        evidence = answer.get("evidence")
        result = MeasureResult(
            status=MeasureStatus(answer["status"]),
            run_secs=tuple(answer.get("run_secs", ())),
            run_secs_estimate=answer.get("run_secs_estimate"),
            run_secs_with_packing=answer.get("with_packing_run_secs_estimate"),
            compile_secs=compiled.secs,
            verify_secs=spent["verify_secs"],
            measure_secs=spent["measure_secs"],
            detail=answer.get("detail") or "",
            error_found=answer.get("error_found"),
            evidence=Evidence(**evidence) if evidence else None,
        )
        return self.limits.plausible(result)
