"""Measurement of a batch: its candidates are compiled, checked and timed.

A serial kernel is timed on the last CPU while the other CPUs compile. For kernels of several
threads, or on a machine with one CPU, the whole batch is compiled first, then timed.
"""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from tilewright.schedules.record import MeasureResult, MeasureStatus

from ... import timeouts
from ...compiling.pool import Compiled
from ...process.control import Activity
from ..protocol import MeasureRequest, OnResult
from .limits import run_limit_secs
from .objects import MeasuredObjects
from .processes import Processes


@dataclass(slots=True)
class Batch:
    """One call of `measure`. Keys are positions in `requests`.

    Candidates of a race whose code is in `objects` are not compiled again.
    """

    processes: Processes
    requests: Sequence[MeasureRequest]
    on_result: OnResult
    objects: MeasuredObjects
    results: dict[int, MeasureResult] = field(default_factory=dict)
    _ready: list[Compiled] = field(default_factory=list)
    _built: dict[int, Compiled] = field(default_factory=dict)
    _running: Compiled | None = None
    _cut: bool = False
    _unreported: list[int] = field(default_factory=list)

    @property
    def _done(self) -> bool:
        return len(self.results) == len(self.requests)

    def run(self) -> list[MeasureResult]:
        """Return one result per request, in order (see `Measurer.measure`)."""
        try:
            self._run()
        except BaseException:
            # Otherwise these processes would return the unfinished results to the next call.
            self.processes.pool.drop()
            if self.processes.runner.busy:
                self.processes.runner.close()
            raise
        finally:
            for i, compiled in self._built.items():
                self.objects.add(self.requests[i].trace, compiled, self.results.get(i))
        return [self.results[i] for i in range(len(self.requests))]

    def _run(self) -> None:
        for i, request in enumerate(self.requests):
            kept = self.objects.compiled(request.trace, i) if request.compared else None
            if kept is None:
                self.processes.pool.submit(i, self.processes.document_of(request.trace))
            else:
                self._queue_compiled([kept])
        control = self.processes.control
        while not self._done:
            self._prepare()
            if self._done:
                return
            with self.processes.machine():
                while not self._done:
                    self._advance()
                    if control.is_wanted() and not self.processes.runner.busy:
                        break
                self._report_results()
            if not self._done:
                control.pause()  # compilation continues during the pause

    def _prepare(self) -> None:
        """Wait until a candidate is compiled and the reference is computed. Other runs may use the
        machine during the wait."""
        while self.processes.pool.pending and not (self._ready and self.processes.overlaps):
            self.processes.doing(Activity("compiling", "compiling"))
            self._queue_compiled(self.processes.compiled(timeouts.MEASURE_POLL_SECS))
            self._report_results()
            self.processes.let_others()
        if self._ready:
            self.processes.until_open()

    def _advance(self) -> None:
        """Wait for the next compiled or timed candidate and handle it.

        Results are reported while the next candidate runs, unless that candidate uses every CPU.
        Raise OutOfTime if the remaining time does not suffice for the next candidate.
        """
        processes = self.processes
        if not processes.overlaps:
            self._report_results()
        if not processes.runner.busy and self._ready:
            self._begin(self._ready[0])
        self._report_results()
        self._wait()
        self._queue_compiled(processes.compiled(0.0))
        if self._running is not None and processes.runner.has_answer():
            compiled, self._running = self._running, None
            self._end(compiled)

    def _begin(self, compiled: Compiled) -> None:
        """Submit the candidate `compiled`, the first of those that are ready."""
        processes, control = self.processes, self.processes.control
        if not control.may_begin():
            self._report_results()
            raise control.used_up()
        self._running = self._ready.pop(0)
        request = self.requests[compiled.key]
        processes.doing(_activity_of(request))
        usual_secs = processes.limits.deadline_secs(compiled.threads)
        left_secs = run_limit_secs(control)
        self._cut = left_secs < usual_secs
        processes.runner.submit(
            processes.job(compiled, request.trace) | {"finalist": request.compared},
            compiled.object_bytes,
            min(usual_secs, left_secs),
        )

    def _end(self, compiled: Compiled) -> None:
        """Take the runner's answer for the candidate `compiled`."""
        processes, control = self.processes, self.processes.control
        result = processes.result(compiled, processes.answer(control.check))
        if result.status is MeasureStatus.RUN_TIMEOUT and self._cut:
            # the time budget ended, so the candidate may be fast enough
            raise control.used_up() if control.reserve_secs else control.out_of_time()
        processes.limits.learn(result)
        self._settle(compiled.key, result)

    def _wait(self) -> None:
        """Wait for a message of a compile worker or the runner, or for the next deadline."""
        pool, runner = self.processes.pool, self.processes.runner
        ends = [pool.secs_to_deadline(), max(self.processes.control.killed_in_secs, 0.0)]
        known = [secs for secs in ends if secs is not None and secs < inf]
        with selectors.DefaultSelector() as selector:
            for fd in pool.filenos():
                selector.register(fd, selectors.EVENT_READ)
            if runner.busy:
                selector.register(runner.fileno(), selectors.EVENT_READ)
            if selector.get_map():
                selector.select(min(known, default=None))

    def _queue_compiled(self, outcomes: Sequence[Compiled]) -> None:
        """Queue compiled candidates to be timed. A candidate that failed to compile gets its
        result."""
        for outcome in outcomes:
            if outcome.status is MeasureStatus.OK:
                self._ready.append(outcome)
                self._built[outcome.key] = outcome
            else:
                failed = MeasureResult(
                    outcome.status, compile_secs=outcome.secs, detail=outcome.detail
                )
                self._settle(outcome.key, failed)

    def _settle(self, key: int, result: MeasureResult) -> None:
        self.results[key] = result
        self._unreported.append(key)

    def _report_results(self) -> None:
        while self._unreported:
            key = self._unreported.pop(0)
            self.on_result(key, self.results[key])


def _activity_of(request: MeasureRequest) -> Activity:
    if request.compared:
        return Activity("race", "final race")
    return Activity("measuring", f"measuring trial {request.trial}")
