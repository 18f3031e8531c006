"""Keep the winner's files where builds can fetch them: object, header, LLVM IR, by hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schedules.trace import Trace

from . import artefacts, wiring
from .answer import Answer, Grade
from .job_requests import JobRequest

if TYPE_CHECKING:
    from db import Store
    from tuner.report import BestFound

MEDIA_TYPES = {
    "object": "application/x-object",
    "header": "text/x-c; charset=utf-8",
    "llvm": "text/x-llvm; charset=utf-8",
    "asm": "text/x-asm; charset=utf-8",
}


def publish(store: Store, request: JobRequest, best: BestFound) -> dict[str, Any]:
    """Build the winner's files and store them; kind -> name, key, size and URL."""
    answer = Answer(
        grade=Grade.EXACT,
        workload=wiring.workload_summary(request.workload),
        target=wiring.target_summary(request.target),
        trace=Trace.from_json(best.trace),
        record_key=best.record_key,
        run_secs=best.run_secs,
        verified=best.verified,
    )
    symbol = artefacts.symbol_name(None, request.workload)
    files = artefacts.build(request.workload, answer, request.target, symbol, ll=True, asm=False)
    published = {}
    for file in files:
        key = "sha256:" + store.put_blob(file.data, MEDIA_TYPES[file.kind])
        published[file.kind] = {
            "name": file.name,
            "key": key,
            "bytes": len(file.data),
            "url": f"/v1/blobs/{key}",
        }
    return published
