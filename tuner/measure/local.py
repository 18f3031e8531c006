"""Measurement on this machine by compile workers and a runner.

A serial kernel is timed on the last CPU while the other CPUs compile. For kernels of several
threads, or on a machine with one CPU, the whole batch is compiled first, then timed.
"""

from __future__ import annotations

import hashlib
import selectors
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import psutil

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import Evidence, MeasureResult, MeasureStatus, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from .. import timeouts
from ..backend.registry import backend_for
from ..compiling.pool import Compiled, CompilePool
from ..compiling.worker import DEFAULT_COMPILER
from ..emit.object_code import toolchain
from ..judge.cases import DEFAULT_CASES, refuse_unaffordable
from ..machine.bound import Bound
from ..machine.machine_lock import machine_lock
from ..machine.roofline import bound_for
from ..process.control import Activity, Control, OutOfTime, rounded_up
from ..process.environment import openmp_environment
from ..process.host import cpu_affinity
from .checking.requests import checked_in_full, full_check_calls, kernel_job
from .checking.runner_client import RunnerClient
from .protocol import MeasureRequest, OnResult

_DEADLINE_RATIO = 10  # a candidate is stopped if it is slower than the incumbent by this factor
_IMPLAUSIBLE_RATIO = 8.0
"""If a checked kernel is faster than its operations allow by this factor, the clock was wrong.
Clock drift, busy probes and costs that a bound ignores cause smaller errors. A kernel that is
faster by a smaller factor proves the bound wrong (`session/roofline_bound.py`)."""

_CONFIRM_SECS = 0.15  # of timing: three times as long as the timing of a finalist
# fraction of the reserve that a candidate may use if it runs when the reserve begins
_OVERRUN_SHARE = 0.25
_CHECK_SHARE = 0.25  # fraction of a run's time budget that the reference of a full check may use
_QUICK_CHECKS_PER_CALL = 1.5  # time of a call in a full check / time of a quick check
_CALLS_AT_BOUND = 20.0  # predicted time of an unknown kernel's quick check / bound
_PROCESS_BYTES = 64 << 20  # of a runner, with NumPy
_MAX_OVER_PREDICTED = 10.0
"""In a run without a time budget, a full check ends after this many times its predicted time, but
not before `timeouts.MAX_FULL_CHECK_SECS`."""


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """Settings that do not depend on the workload."""

    compile_workers: int | None = None
    """None means one worker for each CPU that compiles."""
    compile_deadline_secs: float = timeouts.COMPILE_DEADLINE_SECS
    run_deadline_secs: float | None = None
    final_secs: float = 0.05
    lock_path: Path | None = None
    """None means the machine's lock."""
    compiler: str = DEFAULT_COMPILER
    """The name of a function as "module:function" (see `compiling.worker`)."""
    cases: str = DEFAULT_CASES
    """The name of a function as "module:function" (see `judge.cases`)."""
    check_secs: float = timeouts.REFERENCE_SECS
    """The limit of the predicted time of the reference in a full check."""


def compile_pool(target: Target, settings: MeasureSettings) -> CompilePool:
    """Return the compile workers for measuring on `target`, not started."""
    cpus = cpu_affinity()
    compile_cpus = cpus[:-1] if _overlaps(target) else cpus
    return CompilePool(
        workers=settings.compile_workers or len(compile_cpus),
        cpus=tuple(compile_cpus),
        deadline_secs=settings.compile_deadline_secs,
        compiler=settings.compiler,
    )


def _overlaps(target: Target) -> bool:
    """Return whether kernels are timed while others are compiled."""
    return target.threads == 1 and len(cpu_affinity()) > 1


class LocalMeasurer:
    """A `Measurer` that uses processes of this machine.

    A time far below `bound_secs` gets the status IMPLAUSIBLE. By default, this bound is the time of
    the operations at the probed peak if the workload is compute-bound. A checked kernel may be
    faster than the bound by a smaller factor. `seed` determines the inputs.

    Raise TargetError if this machine cannot run code for `target`. Raise WorkloadError if verifying
    `workload` takes more memory than the machine has, or more time than
    `MeasureSettings.check_secs`. Entering the context starts all processes, without waiting for
    them. Several measurers of one target may share the compile workers `pool`, which the caller
    ends; only one of them measures at a time. `on_use` is called before a measurer needs its
    runner.
    """

    def __init__(
        self,
        workload: Workload,
        target: Target,
        seed: int,
        *,
        bound_secs: float | None = None,
        settings: MeasureSettings | None = None,
        pool: CompilePool | None = None,
        on_use: Callable[[LocalMeasurer], None] = lambda measurer: None,
    ) -> None:
        backend = backend_for(target)
        backend.refuse_foreign(target)
        _check_fits(workload, psutil.virtual_memory().available)
        settings = settings or MeasureSettings()
        if settings.cases == DEFAULT_CASES:
            refuse_unaffordable(workload, settings.check_secs)
        self._workload, self._target, self._settings = workload, target, settings
        self._workload_document = workload.to_json()
        self._target_document = target.to_json()
        self._bound: Bound | None = None
        self._bound_secs = bound_secs
        cpus = cpu_affinity()
        self._overlaps = _overlaps(target)
        self._owns_pool = pool is None
        self._pool = compile_pool(target, settings) if pool is None else pool
        self._on_use = on_use
        self._runner = RunnerClient(
            {
                "cases": settings.cases,
                "check_secs": settings.check_secs,
                "workload": self._workload_document,
                "seed": seed,
                "lanes": max(target.vector_bits // 32, 1),
                "cpus": cpus[-1:],
            },
            program=backend.checker,
            environment=openmp_environment(target.threads),
        )
        self._control = Control()
        self._incumbent_secs: float | None = None
        self._last_ok: MeasureResult | None = None
        self._built: dict[Trace, str] = {}
        self.costs: list[dict[str, float]] = []

    def __enter__(self) -> LocalMeasurer:
        self._on_use(self)
        self._pool.start()
        self._runner.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owns_pool:
            self._pool.close()
        self._runner.close()

    @property
    def runner_bytes(self) -> int:
        """The memory of the runner process, about; 0 without one."""
        if not self._runner.running:
            return 0
        return _PROCESS_BYTES + memory_bytes(self._workload)

    def rest(self) -> None:
        """End the runner process, which starts again with the next candidate."""
        self._runner.close()

    def attach(self, control: Control) -> None:
        """Obey `control`. Its `abort` kills compile workers and the runner. The reference may take
        only a fraction of the run's time budget."""
        self._control = control
        control.on_abort(self._kill)
        if control.allowed_secs < inf:
            secs = min(_CHECK_SHARE * control.allowed_secs, timeouts.REFERENCE_SECS)
            self._runner.document["check_secs"] = secs

    def take_bound(self, bound_for: Bound) -> None:
        """Set the bound (see `TakesBound`). Without this call, it is computed when it is needed."""
        self._bound = bound_for

    def _bound_of_work(self) -> Bound:
        if self._bound is None:
            self._bound = bound_for(self._workload, self._target)
        return self._bound

    def _least_secs(self) -> float:
        """Return the bound for IMPLAUSIBLE. Return 0.0 if it is unknown, so that no time is
        implausible."""
        if self._bound_secs is not None:
            return self._bound_secs
        found = self._bound_of_work()
        return found.least_secs if found.probed and found.binds == "compute" else 0.0

    def _kill(self) -> None:
        self._pool.kill()
        self._runner.kill()

    @property
    def toolchain(self) -> Toolchain:
        return toolchain()

    @property
    def process_ids(self) -> list[int]:
        return [*self._pool.process_ids, self._runner.pid]

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        """Return one result per request, in order (see `Measurer.measure`)."""
        batch = _Batch(tuple(r.trace for r in requests), on_result or _ignore_result)
        self._on_use(self)
        self._pool.start()
        try:
            self._run(batch, requests)
        except BaseException:
            # Otherwise these processes would return the unfinished results to the next call.
            self._pool.drop()
            if self._runner.busy:
                self._runner.close()
            raise
        finally:
            for i, object_sha256 in batch.objects.items():
                self._built[requests[i].trace] = object_sha256
        return [batch.results[i] for i in range(batch.total)]

    def _run(self, batch: _Batch, requests: Sequence[MeasureRequest]) -> None:
        for i, request in enumerate(requests):
            self._pool.submit(i, self._document(request.trace))
        while len(batch.results) < batch.total:
            self._prepare(batch)
            if len(batch.results) == batch.total:
                return
            with self._machine():
                while len(batch.results) < batch.total:
                    self._advance(batch, requests)
                    if self._control.is_wanted() and not self._runner.busy:
                        break
                batch.report_results()
            if len(batch.results) < batch.total:
                self._control.pause()  # compilation continues during the pause

    def _prepare(self, batch: _Batch) -> None:
        """Wait until a candidate is compiled and the reference is computed. Other runs may use the
        machine during the wait."""
        while self._pool.pending and not (batch.ready and self._overlaps):
            self._doing(Activity("compiling", "compiling"))
            batch.queue_compiled(self._compiled(timeouts.MEASURE_POLL_SECS))
            batch.report_results()
            self._let_others()
        if batch.ready:
            self._until_open()

    def _until_open(self) -> None:
        """Wait until the runner has computed the reference. Raise OutOfTime if this takes too
        long."""
        start = self._control.clock()
        if not self._runner.running:
            self._runner.start()
        while not self._runner.opened and not self._runner.has_answer(timeouts.MEASURE_POLL_SECS):
            self._doing(Activity("reference", "computing the reference"))
            self._end_late(start, timeouts.MAX_REFERENCE_SECS)
            self._let_others()

    def _let_others(self) -> None:
        self._control.check()
        if self._control.is_wanted():
            with self._runner.in_background():
                self._control.pause()

    def _end_late(self, start: float, most_secs: float) -> None:
        """Raise OutOfTime if the time budget is used up.

        If the run has no time budget, raise it if the activity that began at `start` has taken
        `most_secs`.
        """
        self._control.check()
        if self._control.allowed_secs == inf and self._control.clock() - start > most_secs:
            would_do = rounded_up(5 * most_secs)
            raise OutOfTime(
                f"stopped: {self._control.activity} took longer than {most_secs:.3g} s; allow more"
                f" time with `tune --seconds {would_do:g}`, or make the workload smaller",
                would_do,
            )

    def _doing(self, activity: Activity) -> None:
        if str(activity) != str(self._control.activity):
            self._control.doing(activity)

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """Hold the machine's lock for the block. Raise MeasurementAborted if the run is aborted
        during the wait."""
        reported = ""

        def on_wait(text: str) -> None:
            nonlocal reported
            self._control.check()
            if text != reported:
                reported = text
                self._control.waiting(text)

        self._control.check()
        with ExitStack() as held:
            with self._control.locked_out():
                held.enter_context(machine_lock(self._settings.lock_path, on_wait=on_wait))
            if reported:
                self._control.waiting("")
            yield

    def _compiled(self, timeout_secs: float | None) -> list[Compiled]:
        """Return outcomes of the pool. Raise MeasurementAborted if an abort killed its workers."""
        outcomes = self._pool.poll(timeout_secs)
        self._control.check()
        return outcomes

    def _answer(self, look: Callable[[], None]) -> dict[str, Any]:
        """Return the runner's answer. Raise MeasurementAborted if an abort killed the runner.

        `look` is called repeatedly during the wait. An exception that it raises ends the wait.
        """
        try:
            while not self._runner.has_answer(timeouts.MEASURE_POLL_SECS):
                look()
            return self._runner.result()
        finally:
            self._control.check()

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Build twice in new processes, compare the object files with the measured one, and check
        in full (`requests.checked_in_full`)."""
        what = f"the full check of trial {request.trial}"
        self._on_use(self)
        self._doing(Activity("full check", f"building twice in new processes for {what}"))
        document = self._document(request.trace)
        first, second = self._pool.fresh(document, builds=2, look=self._control.check)
        self._control.check()
        for built in (first, second):
            if built.status is not MeasureStatus.OK:
                return MeasureResult(built.status, compile_secs=built.secs, detail=built.detail)
        known = self._built.get(request.trace, _sha256(first.object_bytes))
        if not known == _sha256(first.object_bytes) == _sha256(second.object_bytes):
            return MeasureResult(
                MeasureStatus.WRONG_RESULT,
                compile_secs=first.secs,
                detail="two builds of one trace gave different object files",
            )
        job = checked_in_full(self._job(first, request.trace)) | {
            "incumbent_secs": None,
            "final_secs": max(_CONFIRM_SECS, self._settings.final_secs),
        }
        deadline_secs = full_check_calls(job) * self._deadline_secs(first.threads)
        self._until_open()
        self._runner.submit(job, first.object_bytes, deadline_secs, op="check")
        try:
            return self._result(first, self._checked(what))
        finally:
            if self._runner.busy:  # a check is still running, and its result is not needed
                self._runner.close()

    def _checked(self, what: str) -> dict[str, Any]:
        """Return the answer of the full check that is running.

        The machine's lock is held from the first case on. It is released between two cases if
        another run needs it.
        """
        start = self._control.clock()
        known = self._last_ok or MeasureResult(
            MeasureStatus.OK, verify_secs=_CALLS_AT_BOUND * self._bound_of_work().secs
        )
        predicted_secs = self.confirm_secs(known)
        most_secs = max(timeouts.MAX_FULL_CHECK_SECS, _MAX_OVER_PREDICTED * predicted_secs)
        held, holds = ExitStack(), False

        def on_note(note: dict[str, Any]) -> None:
            nonlocal holds
            self._doing(Activity("full check", what, note["case"], note["of"], predicted_secs))
            self._control.check()
            if self._control.is_wanted():
                held.close()
                holds = False
                with self._runner.in_background():
                    self._control.pause()
            if not holds:
                held.enter_context(self._machine())
                holds = True

        self._doing(Activity("full check", what, predicted_secs=predicted_secs))
        self._runner.on_note = on_note
        with held:
            return self._answer(lambda: self._end_late(start, most_secs))

    def confirm_secs(self, result: MeasureResult) -> float:
        """Return the predicted seconds of `confirm` (see `PredictsCheck`).

        They consist of two builds in new processes, a reference per case that takes as long as the
        first one, and the calls on all cases. Most of the calls are on the first case.
        """
        opening = self._runner.opening
        cases = max(int(opening.get("cases", 0)), 1)
        most_secs = float(self._runner.document.get("check_secs", timeouts.REFERENCE_SECS))
        reference_secs = min(cases * float(opening.get("quick_secs", 0.0)), most_secs)
        calls_secs = (cases + full_check_calls({"threads": self._target.threads})) * (
            _QUICK_CHECKS_PER_CALL * result.verify_secs
        )
        builds_secs = self._pool.start_secs + result.compile_secs
        return builds_secs + reference_secs + calls_secs + _CONFIRM_SECS

    def _advance(self, batch: _Batch, requests: Sequence[MeasureRequest]) -> None:
        """Wait for the next compiled or timed candidate and handle it.

        Results are reported while the next candidate runs, unless that candidate uses every CPU.
        Raise OutOfTime if the remaining time does not suffice for the next candidate.
        """
        if not self._overlaps:
            batch.report_results()
        if not self._runner.busy and batch.ready:
            if not self._control.may_begin():
                batch.report_results()
                raise self._control.used_up()
            compiled = batch.ready.pop(0)
            batch.running = compiled
            self._doing(_activity_of(requests[compiled.key]))
            usual_secs, left_secs = self._deadline_secs(compiled.threads), self._run_limit_secs()
            batch.cut = left_secs < usual_secs
            deadline_secs = min(usual_secs, left_secs)
            job = self._job(compiled, batch.traces[compiled.key])
            self._runner.submit(job, compiled.object_bytes, deadline_secs)
        batch.report_results()
        self._wait()
        batch.queue_compiled(self._compiled(0.0))
        if batch.running is not None and self._runner.has_answer():
            compiled, batch.running = batch.running, None
            result = self._result(compiled, self._answer(self._control.check))
            if result.status is MeasureStatus.RUN_TIMEOUT and batch.cut:
                # the time budget ended, so the candidate may be fast enough
                control = self._control
                raise control.used_up() if control.reserve_secs else control.out_of_time()
            if result.ok and result.run_secs_estimate is not None:
                self._incumbent_secs = min(self._incumbent_secs or inf, result.run_secs_estimate)
                self._last_ok = result
            batch.settle(compiled.key, result)

    def _run_limit_secs(self) -> float:
        """Return the seconds that one candidate may take.

        They are the time before the reserve and a fraction of the reserve. If there is no final
        check, they are all remaining time.
        """
        reserve_secs = self._control.reserve_secs
        if not reserve_secs:
            return max(self._control.killed_in_secs, timeouts.MEASURE_POLL_SECS)
        left_secs = self._control.left_secs - reserve_secs
        return max(left_secs, 0.0) + max(_OVERRUN_SHARE * reserve_secs, timeouts.MIN_OVERRUN_SECS)

    def _wait(self) -> None:
        """Wait for a message of a compile worker or the runner, or for the next deadline."""
        ends = [self._pool.secs_to_deadline(), max(self._control.killed_in_secs, 0.0)]
        known = [secs for secs in ends if secs is not None and secs < inf]
        with selectors.DefaultSelector() as selector:
            for fd in self._pool.filenos():
                selector.register(fd, selectors.EVENT_READ)
            if self._runner.busy:
                selector.register(self._runner.fileno(), selectors.EVENT_READ)
            if selector.get_map():
                selector.select(min(known, default=None))

    def _document(self, trace: Trace) -> dict[str, Any]:
        """Return the request to a compile worker."""
        return {
            "workload": self._workload_document,
            "trace": trace.to_json(),
            "target": self._target_document,
        }

    def _job(self, compiled: Compiled, trace: Trace) -> dict[str, Any]:
        return kernel_job(compiled.symbol, compiled.threads, compiled.needs, trace) | {
            "incumbent_secs": self._incumbent_secs,
            "final_secs": self._settings.final_secs,
        }

    def _deadline_secs(self, threads: int) -> float:
        """Return the wall time in seconds that one candidate may take on one case, including
        verification."""
        if self._settings.run_deadline_secs is not None:
            return self._settings.run_deadline_secs
        calls = 5 + 4 * threads  # the shares of threads run one after the other, some of them twice
        if self._incumbent_secs is None:
            return max(timeouts.FIRST_RUN_DEADLINE_SECS, 50 * calls * self._bound_of_work().secs)
        return max(timeouts.RUN_DEADLINE_SECS, _DEADLINE_RATIO * calls * self._incumbent_secs)

    def _result(self, compiled: Compiled, answer: dict[str, Any]) -> MeasureResult:
        costs = ("fork_secs", "child_secs", "load_secs", "verify_secs", "measure_secs")
        spent = {name: float(answer.get(name, 0.0)) for name in costs}
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
        estimate = result.run_secs_estimate
        least_secs = self._least_secs() if result.ok else 0.0
        if result.ok and estimate is not None and estimate * _IMPLAUSIBLE_RATIO < least_secs:
            return MeasureResult(
                MeasureStatus.IMPLAUSIBLE,
                compile_secs=compiled.secs,
                verify_secs=spent["verify_secs"],
                detail=f"the measured {estimate:.3g} s per call are wrong: they are less than an"
                f" eighth of the bound, {least_secs:.3g} s",
            )
        return result


@dataclass(slots=True)
class _Batch:
    """The state of one call of `measure`. The keys of the dictionaries are positions in the
    batch."""

    traces: tuple[Trace, ...]
    on_result: OnResult
    ready: list[Compiled] = field(default_factory=list)
    running: Compiled | None = None
    cut: bool = False
    results: dict[Any, MeasureResult] = field(default_factory=dict)
    objects: dict[Any, str] = field(default_factory=dict)
    unreported: list[Any] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.traces)

    def settle(self, key: Any, result: MeasureResult) -> None:
        self.results[key] = result
        self.unreported.append(key)

    def report_results(self) -> None:
        while self.unreported:
            key = self.unreported.pop(0)
            self.on_result(key, self.results[key])

    def queue_compiled(self, outcomes: list[Compiled]) -> None:
        """Queue compiled candidates to be timed. A candidate that failed to compile gets its
        result."""
        for outcome in outcomes:
            if outcome.status is MeasureStatus.OK:
                self.ready.append(outcome)
                self.objects[outcome.key] = _sha256(outcome.object_bytes)
            else:
                failed = MeasureResult(
                    outcome.status, compile_secs=outcome.secs, detail=outcome.detail
                )
                self.settle(outcome.key, failed)


def _activity_of(request: MeasureRequest) -> Activity:
    if request.compared:
        return Activity("race", "final race")
    return Activity("measuring", f"measuring trial {request.trial}")


def _ignore_result(position: int, result: MeasureResult) -> None:
    """The default of `on_result`."""


def verify_full(
    workload: Workload,
    trace: Trace,
    target: Target,
    seed: int = 0,
    settings: MeasureSettings | None = None,
) -> MeasureResult:
    """Rebuild a schedule in new processes and check it in full."""
    with LocalMeasurer(workload, target, seed, settings=settings) as measurer:
        return measurer.confirm(MeasureRequest(1, trace))


def _check_fits(workload: Workload, available_bytes: int) -> None:
    """Raise WorkloadError if the workload needs more memory than is available."""
    needed = memory_bytes(workload)
    if needed > available_bytes:
        raise WorkloadError(
            f"measuring needs about {needed / 2**30:.1f} GiB of memory, of which "
            f"{available_bytes / 2**30:.1f} GiB are available: make the tensors smaller or "
            "measure on a machine with more memory",
            code="too_large",
        )


def memory_bytes(workload: Workload) -> int:
    """Return the memory that measuring the workload needs, about, without the processes."""
    # Inputs exist as arrays, twice guarded, flat, and in float64 for the reference. Outputs exist
    # guarded, flat, for comparison, and as values and bounds of the reference. Stages exist only in
    # the reference.
    inputs = sum(t.bytes for t in workload.inputs)
    outputs = sum(t.bytes for t in workload.output_tensors)
    stages = sum(s.tensor.bytes for s in workload.stages)
    packed = sum(t.bytes for t in workload.constants)  # guarded and flat
    return 6 * inputs + 10 * outputs + 4 * stages + 2 * packed


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
