"""Consistency of a lock file: each field of an entry is compared with everything else that
determines it, so that no field can be replaced alone.


- its own sha256, when the file is read (`lock_file`)
- keys of workload and targets, with these
- threads and CPUs, with the targets; grades, with what is pinned
- kernel, workload, object, records and toolchain, with the header, which is pinned by its bytes
- records, where they are available
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tilewright.schedules.errors import TargetError, TilewrightError, WorkloadError
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.target import Target
from tilewright.service.build.lock_file import Inconsistent, LockedKernel, LockedVariant, LockFile
from tilewright.service.grade import Grade

# Start-up: reading a lock file needs no workload parser.

NO_RECORD = "none, the schedule chosen without measuring"
_RECORD_LINE = re.compile(r"^ \* record: (.*)$", re.MULTILINE)


def check_parts(lock: LockFile, where: str) -> LockFile:
    """Return `lock` if its parts agree; queries nothing else. Raise Inconsistent, which names the
    first part that does not."""
    targets: dict[str, Target] = {}
    for key, document in lock.targets.items():
        try:
            targets[key] = Target.from_json(document)
        except TargetError as error:
            raise Inconsistent(f"{where}: target {key[:12]}: {error}") from error
        if targets[key].key != key:
            raise Inconsistent(f"{where}: target {key[:12]}: its description has another key")
    for kernel in lock.kernels:
        for stated_values in _contradictions(kernel, targets):
            raise Inconsistent(f"{where}: {kernel.name}: {stated_values}")
    return lock


def check_header(kernel: LockedKernel, header: bytes) -> None:
    """Raise Inconsistent if the header of `kernel`, whose bytes match the lock, names another
    kernel, workload, object, record or toolchain."""
    text = header.decode(errors="replace")
    tools = kernel.toolchain
    on_openmp = ", on OpenMP's runtime" if "openmp" in kernel.links else ".\n"
    wanted = {
        "name": f"/* {kernel.name}: ",
        "workload_key": f"\n * workload: {kernel.workload_key}\n",
        "object": f"\n * object sha256: {kernel.object.sha256}\n",
        "number of threads": f"\n * Threads: up to {kernel.threads}{on_openmp}",
        "toolchain": f"\n * codegen {tools['codegen']}.{tools.get('emit', 1)},"
        f" llvmlite {tools['llvmlite']}, LLVM {tools['llvm']}\n",
    }
    for field, line in wanted.items():
        if line not in text:
            raise Inconsistent(f"{kernel.name}: its header is of another {field}")
    records = _RECORD_LINE.findall(text)
    if records != [variant.record_key or NO_RECORD for variant in kernel.variants]:
        raise Inconsistent(f"{kernel.name}: its header is of another record_key")


def check_record(kernel: LockedKernel, variant: LockedVariant, record: dict[str, Any]) -> None:
    """Raise Inconsistent if an exported record is not the one that `variant` describes."""
    try:
        found = TuningRecord.from_json(record)
    except (KeyError, TypeError, ValueError) as error:
        raise Inconsistent(f"{kernel.name}: {variant.record_key} is no record ({error})") from error
    stated_values = {
        "record_key": (found.key, variant.record_key),
        "workload_key": (found.workload_key, kernel.workload_key),
        "run_secs": (found.result.run_secs_estimate, variant.run_secs),
    }
    for field, (true, stated) in stated_values.items():
        if true != stated:
            raise Inconsistent(f"{kernel.name}: {field} is not that of its record")


def _contradictions(kernel: LockedKernel, targets: dict[str, Target]) -> Iterator[str]:
    from tilewright.service.resolve.workloads import workload_of

    try:
        key = workload_of(kernel.workload).key
    except WorkloadError as error:
        yield f"its workload is none ({error})"
        return
    except TilewrightError as error:
        yield f"its workload cannot be read ({error})"
        return
    if key != kernel.workload_key:
        yield "its workload is not the one its workload_key stands for"
    known = [targets[v.target_key] for v in kernel.variants if v.target_key in targets]
    if len(known) != len(kernel.variants):
        yield "its target is not described"
        return
    if max(target.threads for target in known) != kernel.threads:
        yield "threads is not that of its target"
    for variant, target in zip(kernel.variants, known, strict=True):
        if variant.cpu and variant.cpu != target.cpu:
            yield "cpu is not that of its target"
        if (variant.record_key is None) != (variant.grade == Grade.DEFAULT):
            yield f"grade {variant.grade} goes with no such record_key"
        if variant.record_key is None and variant.run_secs is not None:
            yield "run_secs is of no record"
        if variant.record_key is not None and variant.trace is not None:
            yield "trace is of a schedule without a record"
    grade = Grade(kernel.variants[0].grade)
    if not kernel.every_cpu and not grade.satisfies(Grade(kernel.min_grade)):
        yield f"grade {grade} is less than its min_grade"
