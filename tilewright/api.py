"""The public functions: parse a workload, tune one or many, build a kernel, open the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.service.database import database_url

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.schedules.target import Target
    from tilewright.schedules.trace import Trace
    from tilewright.schedules.workload.assemble import Output
    from tilewright.schedules.workload.workload import Workload
    from tilewright.tuner.kernel import Kernel
    from tilewright.tuner.many.report import ManyEvent, ManyReport
    from tilewright.tuner.measure.protocol import MeasurerFactory
    from tilewright.tuner.session.report import Budget, TrialEvent, TuneReport

# Start-up: parsing a workload loads no database, and opening a database no compiler.

IN_MEMORY = ":memory:"
"""The value of `database` for a call that reads and writes no stored data."""


def parse(
    text: str,
    *,
    tensors: Sequence[str] = (),
    ranges: Sequence[str] | Mapping[str, int] = (),
    constants: Sequence[str] = (),
    allow_error: float | None = None,
    name: str = "",
) -> Workload:
    """Parse `text` as a workload, as on the command line.

    `text` is an operator ("matmul:M=512,N=512,K=512"), the path of a JSON document, or index
    notation ("C[i,j] += A[i,k] * B[k,j]"). Index notation needs `tensors` ("A=f32[512,512]", in
    argument order), and `ranges` ("r=3", or a mapping) for extents that no shape determines.
    `constants` names inputs whose values do not change between calls. `allow_error` permits
    rewrites that change rounding, up to that relative error. `name` is the workload's name in
    reports. Raise WorkloadError, whose message names the error, its position and the accepted
    notation.
    """
    from tilewright.schedules.spelling import parse_workload

    notation = bool(tensors or ranges)
    workload = parse_workload(
        name if notation else text,
        expr=text if notation else None,
        tensors=tensors,
        ranges=ranges,
        constants=constants,
        allow_error=allow_error,
        read_file=lambda path: Path(path).read_bytes(),
    )
    return workload.named(name) if name else workload


def tune(
    workload: Workload | Output | str,
    target: Target | str = "native",
    *,
    threads: int | None = None,
    budget: Budget | None = None,
    strategy: str = "annealing",
    seed: int = 0,
    measurer: str | MeasurerFactory = "local",
    database: Store | str | Path | None = None,
    fresh: bool = False,
    on_event: Callable[[TrialEvent], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> TuneReport:
    """Search for the fastest correct schedule of `workload` on `target`, and store every trial.

    `workload` may be text ("matmul:M=512,N=512,K=512") or a tensor or array, the output of the
    workload; its inputs are in order of first use. `target` is a `Target`, "native" (this
    machine), or the path of a target file; `threads` is the number of threads that a kernel may
    use, by default `target.threads`. `budget` defaults to 64 trials; trials of earlier runs count,
    so a second call with the same arguments measures nothing. `measurer` is "local", "replay:FILE",
    "simulated:FILE", "dask:ADDRESS", or a factory.

    `database` is a URL or path, an open store, or ":memory:" to store nothing; the default is
    `TILEWRIGHT_DB`, or the user's own database if that is not set. `fresh` ignores the measurements
    of earlier runs. `on_event` is called with every trial once it is stored; `should_stop` is
    called between trials, and the search ends if it returns True.

    Raise WorkloadError or TargetError for invalid arguments, StrategyError or MeasurerError for an
    unknown name, TypeError or ValueError for another budget or seed. The report counts candidates
    that failed; its `best` is None if no candidate passed.
    """
    from tilewright.schedules.trace import Trace
    from tilewright.service.answers.publish import publish
    from tilewright.service.jobs.tuning import check_measurable, register
    from tilewright.service.resolve import targets
    from tilewright.tuner.measure.measurer_spec import measured_target
    from tilewright.tuner.process.control import Control
    from tilewright.tuner.tuning import tune as tune_into

    workload = _workload(workload)
    budget, seed = _checked(budget, seed)
    control = Control()
    control.allow(budget.seconds)
    named = measurer if isinstance(measurer, str) else ""
    if isinstance(target, str):
        target = measured_target(named, target, threads, control)
    elif threads is not None:
        target = target.with_threads(threads)
    check_measurable(target, named)
    if named == "local":
        targets.check_fits(workload)
    with _opened(database) as store:
        if store is not None:
            register(store, workload, target)
        report = tune_into(
            workload,
            target,
            budget=budget,
            strategy=strategy,
            seed=seed,
            measurer=measurer,
            sink=store,
            on_event=on_event,
            should_stop=should_stop,
            fresh=fresh,
            control=control,
        )
        if store is not None and report.best is not None and control.killed_in_secs > 0.0:
            trace = Trace.from_json(list(report.best.trace))
            publish(store, workload, target, report.best.record_key, trace)
    return report


def _checked(budget: Budget | None, seed: int) -> tuple[Budget, int]:
    """Return `budget`, or the default one, and `seed`, both with Python's numbers. Raise TypeError
    or ValueError if one of them is something else."""
    from tilewright.schedules.python_numbers import as_number, as_whole_number
    from tilewright.tuner.session.report import Budget

    found = Budget() if budget is None else budget
    wanted = "Budget(trials=64, seconds=30)"
    if not isinstance(found, Budget):
        raise TypeError(f"budget must be a tilewright.Budget, such as {wanted}; got {found!r}")
    trials, seconds = as_whole_number(found.trials), as_number(found.seconds)
    if trials is None or not isinstance(seconds, int | float | None):
        raise TypeError(f"a budget has whole trials and a number of seconds; got {found}")
    if trials < 1 or (seconds is not None and not seconds > 0):
        raise ValueError(f"a budget has at least one trial and more than 0 seconds; got {found}")
    number = as_whole_number(seed)
    if number is None:
        raise TypeError(f"seed must be an integer; got {seed!r}")
    if not 0 <= number < 2**63:  # as records have it
        raise ValueError(f"seed must be in 0..2**63-1; got {seed}")
    return replace(found, trials=trials, seconds=seconds), number


def tune_many(
    workloads: Sequence[Workload | Output | str | Mapping[str, Any]],
    target: Target | str = "native",
    *,
    threads: int | None = None,
    budget: Budget | None = None,
    strategy: str = "annealing",
    seed: int = 0,
    measurer: str | MeasurerFactory = "local",
    database: Store | str | Path | None = None,
    fresh: bool = False,
    on_event: Callable[[ManyEvent], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> ManyReport:
    """Tune several workloads under one budget, and store every trial.

    An entry of `workloads` is a `Workload`, text or an array as for `tune`, or a mapping with one
    of them, or a JSON document, as "workload", and optionally "weight" (calls per run of the whole
    program; default 1) and "name". Equal workloads are tuned once, and their weights are
    added. `budget.trials` limits each workload and `budget.seconds` the whole call. The next trials
    go to the workload with the greatest expected gain in weighted seconds per second of tuning; the
    call ends when the rest is not worth its cost. A workload that fails does not end the others:
    its `error` in the report says why.

    The other arguments are those of `tune`; `on_event` is called with every trial, and whenever a
    task begins a batch or ends. Raise `TilewrightError` for an invalid list; the message names the
    entry.
    """
    from tilewright.schedules.trace import Trace
    from tilewright.service.answers.publish import publish
    from tilewright.service.jobs.tuning import check_measurable, register
    from tilewright.service.resolve.entries import read_entries
    from tilewright.tuner.measure.measurer_spec import measured_target
    from tilewright.tuner.process.control import Control
    from tilewright.tuner.tuning import tune_many as tune_into

    entries = read_entries(list(workloads), _entry_workload)
    budget, seed = _checked(budget, seed)
    control = Control()
    control.allow(budget.seconds)
    named = measurer if isinstance(measurer, str) else ""
    if isinstance(target, str):
        target = measured_target(named, target, threads, control)
    elif threads is not None:
        target = target.with_threads(threads)
    check_measurable(target, named)
    with _opened(database) as store:
        if store is not None:
            for entry in entries:
                register(store, entry.workload, target)
        report = tune_into(
            entries,
            target,
            budget=budget,
            strategy=strategy,
            seed=seed,
            measurer=measurer,
            sink=store,
            on_event=on_event,
            should_stop=should_stop,
            fresh=fresh,
            control=control,
        )
        for task in report.tasks:
            if store is not None and task.best is not None and control.killed_in_secs > 0.0:
                workload = entries[task.entries[0]].workload
                trace = Trace.from_json(list(task.best.trace))
                publish(store, workload, target, task.best.record_key, trace)
    return report


def build(
    workload: Workload | Output | str,
    target: Target | str = "native",
    *,
    threads: int | None = None,
    trace: Trace | Sequence[Any] | None = None,
    database: Store | str | Path | None = None,
) -> Kernel:
    """Build a kernel of `workload` for this process, to be called as `kernel(a, b, out=c)` on NumPy
    arrays.

    Its schedule is `trace` if given (`report.best.trace`), otherwise the best record for this
    target in `database`, otherwise the default schedule, which needs no measurement. `workload`,
    `target`, `threads` and `database` have the types and defaults that `tune` describes.

    Raise ScheduleError if `trace` is not legal; LoadError if the kernel was made for another
    machine, or OpenMP's runtime is missing; DeadlineError if LLVM takes too long.
    """
    from tilewright.schedules.target import Target
    from tilewright.service.answers import stored
    from tilewright.service.resolve import targets
    from tilewright.tuner.kernel import compile as compile_kernel

    workload = _workload(workload)
    if not isinstance(target, Target):
        # Probes rank schedules, so they are needed only if no schedule is stored.
        target = targets.read_target(target, threads, probe=trace is None)
    elif threads is not None:
        target = target.with_threads(threads)
    if trace is None and database != IN_MEMORY:
        url = _url(database)
        trace = stored.answer(url, workload, target, "default").trace
    return compile_kernel(workload, trace, target)


def open_database(url: str | Path | None = None, *, create: bool = True) -> Store:
    """Open the database at `url`: a path, `sqlite:///FILE` or `postgresql://USER@HOST/NAME`. The
    default is `TILEWRIGHT_DB`, or the user's own database if that is not set. Without `create`,
    raise StoreMissing if it does not exist. Close the database, or use it in a `with` statement."""
    from tilewright.db import open_store

    return open_store(_url(url), create=create)


def _workload(spelled: Workload | Output | str) -> Workload:
    from tilewright.schedules.workload.workload import Workload

    if isinstance(spelled, Workload):
        return spelled
    return parse(spelled) if isinstance(spelled, str) else Workload.of(spelled)


def _entry_workload(spelled: Any) -> Workload:
    from tilewright.schedules.workload.assemble import Output
    from tilewright.schedules.workload.workload import Workload
    from tilewright.service.resolve.workloads import workload_of

    if isinstance(spelled, Workload):
        return spelled
    if isinstance(spelled, str):
        return parse(spelled)
    return Workload.of(spelled) if isinstance(spelled, Output) else workload_of(spelled)


def _url(database: Store | str | Path | None) -> str | None:
    if database is None or isinstance(database, str | Path):
        return database_url(None if database is None else str(database))
    return database.url


@contextmanager
def _opened(database: Store | str | Path | None) -> Iterator[Store | None]:
    """Yield the store that `database` names, or None for ":memory:". A store that the caller opened
    is not closed."""
    if database == IN_MEMORY:
        yield None
    elif database is None or isinstance(database, str | Path):
        with open_database(database) as store:
            yield store
    else:
        yield database
