"""Stores the files of the best record (object, header, LLVM IR) by hash, for builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.db.values.records import Artefact, ArtefactFile
from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import objects
from tilewright.service.answers.links import MEDIA_TYPES, links
from tilewright.tuner.emit.variant import Variant

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.tuner.session.report import TuneReport

KINDS = frozenset({"object", "header", "llvm"})
"""Kinds of files stored for every best record."""


@dataclass(frozen=True, slots=True)
class Published:
    """The stored files of a record by kind (see `links`). Its field `warning` states why files are
    missing, or is ""."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    warning: str = ""


def publish(
    store: Store, workload: Workload, target: Target, record_key: str, trace: Trace
) -> Published:
    """Build and store the files of a stored record, unless they are stored already. The record is
    valid without them, so a failure is returned as a warning."""
    try:
        known = store.artefacts(record_key)
        if _complete(store, known):
            return Published(links(known))
        return Published(links(_built(store, workload, target, record_key, trace)))
    except (TilewrightError, OSError, MemoryError) as error:
        return Published(warning=f"the best is stored, its object file is not: {error}")


def _complete(store: Store, known: Iterable[Artefact]) -> bool:
    """Return whether every file is stored and intact."""
    sound = {artefact.kind for artefact in known if store.blob(artefact.sha256) is not None}
    return sound >= KINDS


def _built(
    store: Store, workload: Workload, target: Target, record_key: str, trace: Trace
) -> list[Artefact]:
    variant = Variant(target.cpu, trace, target, record_key)
    symbol = objects.symbol_name(None, workload)
    files = objects.build(workload, variant, symbol, ll=True, asm=False)
    return store.add_artefacts(
        record_key,
        [ArtefactFile(f.kind, f.name, MEDIA_TYPES[f.kind], f.data) for f in files],
    )


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
