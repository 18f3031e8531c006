"""Stores the files of the best record (object, header, LLVM IR) by hash, for builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.db.values.records import Artefact, ArtefactFile
from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import objects
from tilewright.service.answers.links import MEDIA_TYPES, links
from tilewright.service.answers.objects import BuiltFile
from tilewright.tuner.emit.variant import Variant

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.tuner.emit.emitted import EmittedKernel
    from tilewright.tuner.session.report import TuneReport

KINDS = frozenset({"object", "header", "llvm"})
"""Kinds of files stored for every best record."""


@dataclass(frozen=True, slots=True)
class Published:
    """The stored files of a record by kind (see `links`). Its field `warning` states why files are
    missing, or is ""."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    warning: str = ""


Build: TypeAlias = "Callable[[Workload, Variant], list[BuiltFile]]"
"""A function that returns the files of a schedule."""


def publish(
    store: Store,
    workload: Workload,
    target: Target,
    record_key: str,
    trace: Trace,
    build: Build | None = None,
) -> Published:
    """Build and store the files of a stored record, unless they are stored already. The record is
    valid without them, so a failure is returned as a warning. `build` is `built_files` by
    default."""
    try:
        known = store.artefacts(record_key)
        if _complete(store, known):
            return Published(links(known))
        variant = Variant(target.cpu, trace, target, record_key)
        return Published(links(_stored(store, variant, (build or built_files)(workload, variant))))
    except (TilewrightError, OSError, MemoryError) as error:
        return Published(warning=f"the best is stored, its object file is not: {error}")


def _complete(store: Store, known: Iterable[Artefact]) -> bool:
    """Return whether every file is stored and intact."""
    sound = {artefact.kind for artefact in known if store.blob(artefact.sha256) is not None}
    return sound >= KINDS


def _stored(store: Store, variant: Variant, files: Iterable[BuiltFile]) -> list[Artefact]:
    return store.add_artefacts(
        variant.record_key,
        [ArtefactFile(f.kind, f.name, MEDIA_TYPES[f.kind], f.data) for f in files],
    )


def built_files(workload: Workload, variant: Variant) -> list[BuiltFile]:
    """Return the files of `KINDS`. Raise DeadlineError, CompileError or TargetError."""
    symbol = objects.symbol_name(None, workload)
    return objects.build(workload, variant, symbol, ll=True, asm=False)


class BuildAhead:
    """A `publish` for one workload and target that builds in a thread, before there is a record.

    `begin` starts to build the files of a schedule. If another one is published, or the build
    failed, publishing builds them itself. Leaving the context waits for the thread.
    """

    def __init__(self, workload: Workload, target: Target) -> None:
        self._workload, self._target = workload, target
        self._thread = ThreadPoolExecutor(1)
        self._begun: tuple[Trace, Future[tuple[EmittedKernel, list[BuiltFile]]]] | None = None

    def __enter__(self) -> BuildAhead:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.shutdown()

    def begin(self, trace: Trace) -> None:
        self._begun = trace, self._thread.submit(self._build, trace)

    def _build(self, trace: Trace) -> tuple[EmittedKernel, list[BuiltFile]]:
        symbol = objects.symbol_name(None, self._workload)
        variant = Variant(self._target.cpu, trace, self._target)
        kernel, _ = objects.emitted(self._workload, [variant], symbol)
        return kernel, objects.texts(self._workload, variant, symbol, ll=True, asm=False)

    def __call__(
        self, store: Store, workload: Workload, target: Target, record_key: str, trace: Trace
    ) -> Published:
        return publish(store, workload, target, record_key, trace, self._files)

    def _files(self, workload: Workload, variant: Variant) -> list[BuiltFile]:
        if self._begun is None:
            return built_files(workload, variant)
        trace, building = self._begun
        if trace != variant.trace or building.exception() is not None:
            return built_files(workload, variant)
        kernel, texts = building.result()
        own = replace(kernel.variants[0], record_key=variant.record_key)
        named = replace(kernel, variants=(own,))  # the header has the record's key
        return [*objects.kernel_files(workload, named), *texts]


Publish = Callable[["Store", Workload, Target, str, Trace], Published]


def result_document(
    store: Store,
    workload: Workload,
    target: Target,
    report: TuneReport,
    publish: Publish = publish,
) -> dict[str, Any]:
    """Store the files of the report's best. Return the report with links to these files: the
    document of `tune --json` and of a job's `result`. Its field `warning` states why there are no
    files, or is ""."""
    document = report.to_json()
    if report.best is None:
        return document
    best = report.best
    published = publish(store, workload, target, best.record_key, Trace.from_json(best.trace))
    return {**document, "artefacts": published.files, "warning": published.warning}
