"""Measurement on this machine by compile workers and a runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from tilewright.schedules.record import MeasureResult, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from .. import timeouts
from ..backend.registry import backend_for
from ..compiling.pool import CompilePool
from ..compiling.worker import DEFAULT_COMPILER
from ..emit.object_code import toolchain
from ..judge.cases import DEFAULT_CASES, refuse_unaffordable
from ..machine.bound import Bound
from ..process.control import Control
from ..process.environment import openmp_environment
from ..process.host import cpu_affinity
from .checking.batch import Batch
from .checking.full_check import begin_full_check, predicted_secs
from .checking.limits import TimeLimits, refuse_too_large, runner_bytes
from .checking.objects import MeasuredObjects
from .checking.processes import Processes
from .checking.runner_client import RunnerClient
from .checking.running_check import RunningCheck
from .compile_workers import compile_pool, overlaps
from .protocol import MeasureRequest, OnResult

_CHECK_SHARE = 0.25  # fraction of a run's time budget that the reference of a full check may use


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """Settings that do not depend on the workload."""

    compile_workers: int | None = None
    """None means one worker for each CPU that compiles."""
    compile_deadline_secs: float = timeouts.COMPILE_DEADLINE_SECS
    run_deadline_secs: float | None = None
    final_secs: float = 0.03
    lock_path: Path | None = None
    """None means the machine's lock."""
    compiler: str = DEFAULT_COMPILER
    """The name of a function as "module:function" (see `compiling.worker`)."""
    cases: str = DEFAULT_CASES
    """The name of a function as "module:function" (see `judge.cases`)."""
    check_secs: float = timeouts.REFERENCE_SECS
    """The limit of the predicted time of the reference in a full check."""


def pool_for(target: Target, settings: MeasureSettings) -> CompilePool:
    """Return the compile workers for measuring on `target`, not started."""
    return compile_pool(
        target.threads,
        settings.compile_workers,
        settings.compile_deadline_secs,
        settings.compiler,
    )


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
    runner, and `on_timing` before it times a kernel.
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
        on_timing: Callable[[LocalMeasurer], None] = lambda measurer: None,
    ) -> None:
        backend = backend_for(target)
        backend.refuse_foreign(target)
        refuse_too_large(workload)
        settings = settings or MeasureSettings()
        if settings.cases == DEFAULT_CASES:
            refuse_unaffordable(workload, settings.check_secs)
        self._workload = workload
        self._workload_document = workload.to_json()
        self._target_document = target.to_json()
        self._owns_pool = pool is None
        self._pool = pool_for(target, settings) if pool is None else pool
        self._on_use = on_use
        self._check: RunningCheck | MeasureResult | None = None
        self._runner = RunnerClient(
            {
                "cases": settings.cases,
                "check_secs": settings.check_secs,
                "workload": self._workload_document,
                "seed": seed,
                "lanes": max(target.vector_bits // 32, 1),
                "cpus": cpu_affinity()[-1:],
            },
            program=backend.checker,
            environment=openmp_environment(target.threads),
        )
        self._objects = MeasuredObjects()
        self._processes = Processes(
            pool=self._pool,
            runner=self._runner,
            limits=TimeLimits(workload, target, settings.run_deadline_secs, bound_secs),
            document_of=self._document,
            overlaps=overlaps(target.threads),
            final_secs=settings.final_secs,
            lock_path=settings.lock_path,
            on_timing=partial(on_timing, self),
        )

    def __enter__(self) -> LocalMeasurer:
        self._on_use(self)
        self._pool.start()
        self._runner.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owns_pool:
            self._pool.close()
        self._end_check()
        self._runner.close()
        self._objects.drop()

    @property
    def costs(self) -> list[dict[str, float]]:
        """The seconds that each checked candidate took, by part of the work."""
        return self._processes.costs

    @property
    def runner_bytes(self) -> int:
        """The memory of the runner process, about; 0 without one."""
        return runner_bytes(self._workload) if self._runner.running else 0

    @property
    def checks(self) -> bool:
        """Whether a full check runs beside the work of the caller."""
        return isinstance(self._check, RunningCheck) and self._check.running

    def settle(self) -> None:
        """Wait for the end of a full check that runs beside the work of the caller."""
        if isinstance(self._check, RunningCheck):
            self._check.settle()

    def rest(self) -> None:
        """End the runner process, which starts again with the next candidate."""
        self._runner.close()

    def attach(self, control: Control) -> None:
        """Obey `control`. Its `abort` kills compile workers and the runner. The reference may take
        only a fraction of the run's time budget."""
        self._processes.control = control
        control.on_abort(self._processes.kill)
        if control.allowed_secs < inf:
            secs = min(_CHECK_SHARE * control.allowed_secs, timeouts.REFERENCE_SECS)
            self._runner.document["check_secs"] = secs

    def take_bound(self, bound: Bound) -> None:
        """Set the bound (see `TakesBound`). Without this call, it is computed when it is needed."""
        self._processes.limits.known_bound = bound

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
        self._on_use(self)
        self._pool.start()
        on_result = on_result or _ignore_result
        return Batch(self._processes, tuple(requests), on_result, self._objects).run()

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Build twice in new processes, compare the object files with the measured one, and check
        in full (see `Measurer.confirm`)."""
        try:
            check = self._check or self._begin_check(request)
            return check.result() if isinstance(check, RunningCheck) else check
        finally:
            self._end_check()

    def begin_confirm(self, request: MeasureRequest) -> bool:
        """Begin `confirm`, and return when only cases are left that are not timed (see
        `ConfirmsBeside`)."""
        try:
            check = self._begin_check(request)
            return isinstance(check, RunningCheck) and check.leave()
        except BaseException:
            self._end_check()
            raise

    def _begin_check(self, request: MeasureRequest) -> RunningCheck | MeasureResult:
        self._on_use(self)
        self._check = begin_full_check(self._processes, self._objects, request)
        return self._check

    def _end_check(self) -> None:
        check, self._check = self._check, None
        if isinstance(check, RunningCheck):
            check.close()

    def confirm_secs(self, result: MeasureResult) -> float:
        """Return the predicted seconds of `confirm` (see `PredictsCheck`)."""
        return predicted_secs(self._processes, result)

    def _document(self, trace: Trace) -> dict[str, Any]:
        """Return the request to a compile worker."""
        return {
            "workload": self._workload_document,
            "trace": trace.to_json(),
            "target": self._target_document,
        }


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
