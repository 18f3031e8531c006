"""Consistency of a lock file. Each field of an entry is compared with all data that determine it,
so that no field can be changed separately:

- the entry, with its own SHA-256, when the file is read (`lock_file`)
- the keys of workload and targets, with workload and targets
- threads and CPUs, with the targets; grades, with the pinned records
- kernel, workload, object, records and toolchain, with the header, whose bytes are pinned
- records, with the stored records, if these are available
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
    """Return `lock` if its parts agree; nothing else is read. Raise Inconsistent, which names the
    first part that does not agree."""
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
    """Raise Inconsistent if the text of the header names another kernel, workload, object, record,
    number of threads or toolchain than `kernel`. The caller has already compared the hash of
    `header` with the lock file."""
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
    """Raise Inconsistent if an exported record is not the record that `variant` describes."""
    try:
        found = TuningRecord.from_json(record)
    except (KeyError, TypeError, ValueError) as error:
        raise Inconsistent(f"{kernel.name}: {variant.record_key} is invalid ({error})") from error
    stated_values = {
        "record_key": (found.key, variant.record_key),
        "workload_key": (found.workload_key, kernel.workload_key),
        "run_secs": (found.result.run_secs_estimate, variant.run_secs),
    }
    for field, (true, stated) in stated_values.items():
        if true != stated:
            raise Inconsistent(f"{kernel.name}: {field} differs from its record")


def _contradictions(kernel: LockedKernel, targets: dict[str, Target]) -> Iterator[str]:
    from tilewright.service.resolve.workloads import workload_of

    try:
        key = workload_of(kernel.workload).key
    except WorkloadError as error:
        yield f"its workload is invalid ({error})"
        return
    except TilewrightError as error:
        yield f"its workload cannot be read ({error})"
        return
    if key != kernel.workload_key:
        yield "its workload has another workload_key"
    known = [targets[v.target_key] for v in kernel.variants if v.target_key in targets]
    if len(known) != len(kernel.variants):
        yield "its target is not described"
        return
    if max(target.threads for target in known) != kernel.threads:
        yield "threads differs from its target"
    for variant, target in zip(kernel.variants, known, strict=True):
        if variant.cpu and variant.cpu != target.cpu:
            yield "cpu differs from its target"
        if (variant.record_key is None) != (variant.grade == Grade.DEFAULT):
            yield f"grade {variant.grade} contradicts its record_key"
        if variant.record_key is None and variant.run_secs is not None:
            yield "run_secs is given without a record"
        if variant.record_key is not None and variant.trace is not None:
            yield "trace is given although there is a record"
    grade = Grade(kernel.variants[0].grade)
    if not kernel.every_cpu and not grade.satisfies(Grade(kernel.min_grade)):
        yield f"grade {grade} is below its min_grade"
