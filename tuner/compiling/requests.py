"""Functions of helper processes that need LLVM. Each takes a JSON document.

A caller passes the name of a function ("tilewright.tuner.compiling.requests:compile_text"). So only
the helper imports this module, and LLVM with it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..backend.registry import BACKENDS, backend_for
from ..emit.emitted import build_object
from ..emit.kernel import CompiledKernel
from ..emit.object_code import emit_assembly, emit_object
from ..machine.llvm_names import check_names
from ..process.frames import Frame


def warm_up() -> None:
    for backend in BACKENDS:
        backend.warm_up()


def compile_document(document: dict[str, Any]) -> CompiledKernel:
    """Return the kernel of `workload`, `trace` and `target`. Raise ScheduleError if the trace is
    not legal."""
    target = Target.from_json(document["target"])
    workload = _workload(json.dumps(document["workload"]))
    return backend_for(target).generate(workload, Trace.from_json(document["trace"]), target)


@lru_cache(maxsize=8)
def _workload(text: str) -> Workload:
    """Return the workload of a JSON text. All candidates of a run have the same."""
    return Workload.from_json(json.loads(text))


def compile_text(document: dict[str, Any]) -> Frame:
    """Return the object code of the LLVM module `text` for `target`, or its assembly if `asm`."""
    target = Target.from_json(document["target"])
    check_names(target)
    if document["asm"]:
        return Frame({}, emit_assembly(document["text"], target).encode())
    return Frame({}, emit_object(document["text"], target))


def build_parts(document: dict[str, Any]) -> Frame:
    """Return the object code for a document of `emit.emitted.emit_kernel`, and the CPU features
    that each variant needs."""
    blob, needs = build_checked(document)
    return Frame({"needs": needs}, blob)


def build_checked(document: dict[str, Any]) -> tuple[bytes, list[tuple[str, ...]]]:
    """Return the object code and the features of each variant. Raise TargetError for names that
    LLVM does not have."""
    for part in document["parts"]:
        check_names(Target.from_json(part["target"]))
    return build_object(document)
