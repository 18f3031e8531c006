"""The lock file: which kernels a build links, each pinned to records and to the bytes of its files.

Made for review: one value a line, sorted, nothing that changes by itself. Reading it needs neither
NumPy nor a compiler, and it tells all that making the same bytes again needs, but the records.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from schedules.errors import TilewrightError

VERSION = 1
LINKS = ("openmp",)
"""What else a program may have to link."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_DIGITS = re.compile(r"[0-9a-f]{64}")


class LockError(TilewrightError):
    """A lock file or bundle that cannot be used; the message says where and why."""

    code = "bad_lock"


class NotTheBytes(LockError):  # noqa: N818  # the name says the condition
    """What was found or made is not what the lock file names."""

    code = "not_the_bytes"


@dataclass(frozen=True, slots=True)
class FileRef:
    """Bytes by their sha256, 64 hex digits."""

    sha256: str
    size_bytes: int

    def check(self, data: bytes, what: str) -> bytes:
        """`data`, if it is what this names. NotTheBytes."""
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise NotTheBytes(f"{what}: sha256 {found} is not the {self.sha256} that is locked")
        if len(data) != self.size_bytes:
            raise NotTheBytes(f"{what}: {len(data)} bytes are not the {self.size_bytes} locked")
        return data

    def to_json(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "bytes": self.size_bytes}

    @classmethod
    def from_json(cls, document: Any) -> Self:
        found = cls(str(_member(document, "sha256")), _member(document, "bytes"))
        if not _DIGITS.fullmatch(found.sha256) or not isinstance(found.size_bytes, int):
            raise LockError(f"sha256 and bytes of a file are needed, got {str(document)[:80]}")
        return found


@dataclass(frozen=True, slots=True)
class LockedVariant:
    """One CPU's part of a kernel. `record_key` and `run_secs` (seconds a call, measured) are None
    for a schedule that was chosen without measuring; then `trace` is that schedule, as no record
    has it: None in files of versions that did not pin it."""

    cpu: str
    target_key: str
    grade: str
    record_key: str | None
    run_secs: float | None
    trace: list[Any] | None = None

    def to_json(self) -> dict[str, Any]:
        document = {
            "cpu": self.cpu,
            "target_key": self.target_key,
            "grade": self.grade,
            "record_key": self.record_key,
            "run_secs": self.run_secs,
        }
        return document if self.trace is None else {**document, "trace": self.trace}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        record_key = _member(document, "record_key")
        trace = document.get("trace")
        return cls(
            cpu=str(document.get("cpu", "")),
            target_key=str(_member(document, "target_key")),
            grade=str(_member(document, "grade")),
            record_key=None if record_key is None else str(record_key),
            run_secs=_member(document, "run_secs"),
            trace=None if trace is None else list(trace),
        )


@dataclass(frozen=True, slots=True)
class LockedKernel:
    """One kernel: what it computes, where each variant comes from, the files it became.

    `name` is the C function. `workload` is its shortest spelling that a service reads: text, or a
    document. `min_grade` is what was asked for and is asked for again. `variants` are in the order
    in which a CPU is asked; the file shows the first one as the kernel's own. `toolchain` made the
    object; `links` is a part of `LINKS`.
    """

    name: str
    workload: str | dict[str, Any]
    workload_key: str
    threads: int
    min_grade: str
    variants: tuple[LockedVariant, ...]
    toolchain: dict[str, Any]
    object: FileRef
    header: FileRef
    links: tuple[str, ...] = ()

    @property
    def every_cpu(self) -> bool:
        """Whether the object chooses among variants, the last of which every CPU can run."""
        return len(self.variants) > 1

    @property
    def files(self) -> dict[str, FileRef]:
        """What a build needs, by file name."""
        return {f"{self.name}.o": self.object, f"{self.name}.h": self.header}

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "name": self.name,
            "workload": self.workload,
            "workload_key": self.workload_key,
            "threads": self.threads,
            "min_grade": self.min_grade,
            **self.variants[0].to_json(),
            "toolchain": self.toolchain,
            "object": self.object.to_json(),
            "header": self.header.to_json(),
            "links": list(self.links),
        }
        if self.every_cpu:
            document["variants"] = [variant.to_json() for variant in self.variants]
        return document

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """LockError names what is missing or will not do."""
        name = str(_member(document, "name"))
        if not _NAME.fullmatch(name):
            raise LockError(f"a kernel's name must be a C name, got {name[:80]!r}")
        variants = document.get("variants") or [document]
        links = tuple(document.get("links", ()))
        if not set(links) <= set(LINKS):
            raise LockError(f"{name}: links {links} are not known to this version")
        return cls(
            name=name,
            workload=_member(document, "workload"),
            workload_key=str(_member(document, "workload_key")),
            threads=int(_member(document, "threads")),
            min_grade=str(document.get("min_grade", "exact")),
            variants=tuple(LockedVariant.from_json(variant) for variant in variants),
            toolchain=dict(_member(document, "toolchain")),
            object=FileRef.from_json(_member(document, "object")),
            header=FileRef.from_json(_member(document, "header")),
            links=links,
        )


@dataclass(frozen=True, slots=True)
class LockFile:
    """Kernels by name, sorted, and the descriptions of their targets by key (without probes)."""

    kernels: tuple[LockedKernel, ...] = ()
    targets: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def kernel(self, name: str) -> LockedKernel | None:
        return next((kernel for kernel in self.kernels if kernel.name == name), None)

    def with_kernel(self, kernel: LockedKernel, targets: Mapping[str, dict[str, Any]]) -> LockFile:
        """With `kernel` in the place of the one of its name, if there is one."""
        others = [other for other in self.kernels if other.name != kernel.name]
        kernels = tuple(sorted([*others, kernel], key=lambda kernel: kernel.name))
        used = {variant.target_key for kernel in kernels for variant in kernel.variants}
        known = {**targets, **self.targets}  # what is there stays as it was written
        return replace(
            self, kernels=kernels, targets={key: known[key] for key in sorted(used & set(known))}
        )

    def to_text(self) -> str:
        """The file: the same kernels give the same text."""
        document = {
            "version": VERSION,
            "kernels": [kernel.to_json() for kernel in self.kernels],
            "targets": dict(self.targets),
        }
        return _lines(document, "") + "\n"

    @classmethod
    def from_text(cls, text: str, where: str) -> Self:
        """LockError says what of the file `where` will not do."""
        try:
            document = json.loads(text)
            version = _member(document, "version")
            if version != VERSION:
                raise LockError(f"this Tilewright reads version {VERSION}, found {version!r}")
            kernels = tuple(LockedKernel.from_json(k) for k in _member(document, "kernels"))
            targets = document.get("targets", {})
            names = [kernel.name for kernel in kernels]
            if len(set(names)) < len(names):
                raise LockError("a name stands for two kernels")
            return cls(kernels, {str(key): dict(targets[key]) for key in targets})
        except LockError as error:
            raise LockError(f"{where}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise LockError(f"{where}: not a lock file ({error})") from error


def _member(document: Any, name: str) -> Any:
    if not isinstance(document, Mapping) or name not in document:
        raise LockError(f"{name!r} is missing")
    return document[name]


LINE_WIDTH = 100


def _lines(value: Any, indent: str) -> str:
    """JSON with sorted members: what holds plain values alone stays on a line it fits on, or is no
    object; everything else has a line for each part."""
    parts = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(parts, list | tuple) or not any(map(_has_parts, parts)):
        line = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
        if not isinstance(value, Mapping) or len(indent) + len(line) <= LINE_WIDTH:
            return line
    inner = indent + "  "
    if isinstance(value, Mapping):
        rows = [f"{inner}{json.dumps(key)}: {_lines(value[key], inner)}" for key in sorted(value)]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    rows = [f"{inner}{_lines(item, inner)}" for item in value]
    return "[\n" + ",\n".join(rows) + f"\n{indent}]"


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)
