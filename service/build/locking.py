"""Updates of a lock file: add kernels, keep or move pins, report changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.service.atomic_files import write_atomically
from tilewright.service.build.consistency import check_parts
from tilewright.service.build.lock_file import LockedKernel, LockFile
from tilewright.service.errors import NoAnswer, UsageProblem, VerificationFailed
from tilewright.service.resolve.workloads import workload_of

from .source import Builder, build_request

Document = dict[str, Any]

NOTHING_NOW = ("record_key",)
"""The fields of a change if no acceptable answer is stored any more."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one kernel. `what` is "added", "kept", "moved", or "stale": kept although a
    build would now differ. `fields` are the differing fields."""

    name: str
    what: str
    kernel: LockedKernel
    fields: tuple[str, ...] = ()

    def to_json(self) -> Document:
        return {"name": self.name, "change": self.what, "fields": list(self.fields)}


@dataclass(frozen=True, slots=True)
class LockUpdate:
    lock: LockFile
    changes: tuple[Change, ...]

    @property
    def up_to_date(self) -> bool:
        return all(change.what == "kept" for change in self.changes)


def read_lock(path: Path) -> LockFile | None:
    """Return the lock file at `path`, or None if there is none. Raise LockError if it is invalid or
    its parts contradict each other, UsageProblem if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageProblem(f"cannot read {path}: {error.strerror or error}") from error
    return check_parts(LockFile.from_text(text, str(path)), str(path))


def write_lock(path: Path, lock: LockFile) -> None:
    """Write a lock file atomically; a symbolic link is followed. Raise UsageProblem if that
    fails."""
    try:
        write_atomically(path.resolve(), lock.to_text().encode())
    except OSError as error:
        raise UsageProblem(f"cannot write {path}: {error.strerror or error}") from error


def locked(
    lock: LockFile, requests: Sequence[Mapping[str, Any]], builder: Builder, *, upgrade: bool
) -> LockUpdate:
    """Return `lock` with the requested kernels (`BuildIn` documents). A kernel that is already
    locked keeps its records, unless the request differs, its schedule failed a full check, or
    `upgrade` is set. With `upgrade`, all other kernels are also built again."""
    changes = []
    named = {str(document["name"]) for document in requests}
    again = [kernel for kernel in lock.kernels if upgrade and kernel.name not in named]
    for document in [*map(dict, requests), *(build_request(lock, kernel) for kernel in again)]:
        new, targets = builder.build(document)
        old = lock.kernel(new.name)
        fields = () if old is None else differing_fields(old, new)
        if old is None:
            change = Change(new.name, "added", new)
        elif not fields:
            change = Change(new.name, "kept", old)
        elif upgrade or _is_another_request(old, new) or _is_refused(old, builder):
            change = Change(new.name, "moved", new, fields)
        elif not is_stale(old, new):
            change = Change(new.name, "kept", old)
        else:
            change = Change(new.name, "stale", old, fields)
        if change.kernel is new:
            lock = lock.with_kernel(new, targets)
        changes.append(change)
    return LockUpdate(lock, tuple(changes))


def checked(lock: LockFile, builder: Builder) -> LockUpdate:
    """Compare the pinned kernels with the kernels that would be locked now."""
    changes = []
    for kernel in lock.kernels:
        try:
            new, _ = builder.build(build_request(lock, kernel))
            stale = is_stale(kernel, new) or _is_refused(kernel, builder)
            fields = differing_fields(kernel, new) if stale else ()
        except NoAnswer:
            fields = NOTHING_NOW
        changes.append(Change(kernel.name, "stale" if fields else "kept", kernel, fields))
    return LockUpdate(lock, tuple(changes))


def not_pinned(lock: LockFile, requests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the reasons why a build cannot use `lock` for the requested kernels. No database or
    service is read."""
    problems = []
    for document in requests:
        old = lock.kernel(str(document["name"]))
        if old is None:
            problems.append(f"{document['name']}: is not in the lock file")
        elif workload_of(document["workload"]).key != old.workload_key:
            problems.append(f"{old.name}: is locked for another workload, {_spelled(old)}")
        elif document.get("threads", old.threads) != old.threads:
            problems.append(f"{old.name}: is locked for {old.threads} threads")
    return problems


def _spelled(kernel: LockedKernel) -> str:
    spelled = kernel.workload
    return spelled if isinstance(spelled, str) else str(spelled.get("name", "an expression"))


def is_stale(old: LockedKernel, new: LockedKernel) -> bool:
    """Return whether the object would differ now. The header alone may differ: another database can
    have a different record, with another time, of the same schedule."""
    return old.object != new.object


def differing_fields(old: LockedKernel, new: LockedKernel) -> tuple[str, ...]:
    before, after = old.to_json(), new.to_json()
    return tuple(sorted(n for n in {*before, *after} if before.get(n) != after.get(n)))


def _is_refused(kernel: LockedKernel, builder: Builder) -> bool:
    """Return whether the schedule failed a full check after it was pinned."""
    try:
        builder.refuse_failed([kernel])
    except VerificationFailed:
        return True
    return False


def _is_another_request(old: LockedKernel, new: LockedKernel) -> bool:
    def requests(kernel: LockedKernel) -> tuple[Any, ...]:
        keys = [variant.target_key for variant in kernel.variants]
        return kernel.workload_key, kernel.threads, kernel.min_grade, keys

    return requests(old) != requests(new)
