"""The lock file: the kernels of a build, each pinned to records and to the bytes of its files.

The format is made for review: one value per line, sorted, and a value changes only on request.
Reading the file needs neither NumPy nor a compiler. With the records, it determines all bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Self

from tilewright.schedules.canonical import canonical_bytes
from tilewright.service.errors import ExitCode, ServiceError
from tilewright.service.grade import Grade

VERSION = 1
SEAL = "entry_sha256"
"""The member of an entry that contains the SHA-256 of all other members."""

LINKS = ("openmp",)
"""Libraries that a kernel may need."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_DIGITS = re.compile(r"[0-9a-f]{64}")


class LockError(ServiceError):
    """A lock file or bundle that cannot be used. The message gives the place and the reason."""

    code = "bad_lock"
    status = 422
    exit_code = ExitCode.USAGE
    title = "Invalid lock file"
    advice = "`tilewright lock` writes lock files, `tilewright export --bundle` bundles."


class Inconsistent(LockError):  # noqa: N818  # the name says the condition
    """A lock file whose parts contradict each other, because it was edited or merged."""

    code = "inconsistent_lock"
    status = 409
    exit_code = ExitCode.VERIFICATION
    title = "Inconsistent lock file"
    advice = "Restore it from version control, or remove the entry and run `tilewright lock` again."


class NotTheBytes(LockError):  # noqa: N818  # the name says the condition
    """A file does not have the hash in the lock file."""

    code = "not_the_bytes"
    status = 409
    exit_code = ExitCode.VERIFICATION
    title = "Hash mismatch with the lock file"
    advice = "Nothing was written. `tilewright lock --upgrade` pins the files that are built now."


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file by its SHA-256 (64 hexadecimal digits)."""

    sha256: str
    size_bytes: int

    def check(self, data: bytes, what: str) -> bytes:
        """Return `data` if its hash matches. Raise NotTheBytes if not."""
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise NotTheBytes(f"{what}: sha256 is {found}, but {self.sha256} is locked")
        if len(data) != self.size_bytes:
            raise NotTheBytes(f"{what}: {len(data)} bytes, but {self.size_bytes} are locked")
        return data

    def to_json(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "bytes": self.size_bytes}

    @classmethod
    def from_json(cls, document: Any) -> Self:
        digits, size = _member(document, "sha256"), _member(document, "bytes")
        if not _is_digest(digits) or not _is_count(size):
            raise LockError(f"a file must have sha256 and bytes, got {str(document)[:80]}")
        return cls(digits, size)


@dataclass(frozen=True, slots=True)
class LockedVariant:
    """The variant of a kernel for one CPU."""

    cpu: str
    target_key: str
    grade: str
    record_key: str | None
    """The record of a measured schedule, otherwise None."""
    run_secs: float | None
    """Seconds per call of a measured schedule, otherwise None."""
    trace: list[Any] | None = None
    """The schedule, if it was chosen without measurement; None otherwise, and in files of versions
    that did not pin it."""

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
        """Parse the JSON of a lock file. Raise LockError with the name of a member that is missing
        or invalid."""
        record_key, secs = _member(document, "record_key"), _member(document, "run_secs")
        trace, cpu = document.get("trace"), document.get("cpu", "")
        if record_key is not None and not _is_digest(record_key, "sha256:"):
            raise LockError(f"record_key: must be sha256:HEX or null, got {str(record_key)[:80]!r}")
        if secs is not None and not _is_duration(secs):
            raise LockError(f"run_secs: must be seconds or null, got {str(secs)[:80]!r}")
        if not (trace is None or isinstance(trace, list)) or not isinstance(cpu, str):
            raise LockError("cpu must be text, and trace a list")
        return cls(
            cpu=cpu,
            target_key=_digest(document, "target_key"),
            grade=_grade(_member(document, "grade")),
            record_key=record_key,
            run_secs=secs,
            trace=trace,
        )


@dataclass(frozen=True, slots=True)
class LockedKernel:
    """One kernel: its workload, its variants, and its files."""

    name: str
    """The name of the C function."""
    workload: str | dict[str, Any]
    """The shortest text or document that a service can parse."""
    workload_key: str
    threads: int
    min_grade: str
    """The requested grade, which upgrades use again."""
    variants: tuple[LockedVariant, ...]
    """In the order in which the object tests the CPU. In the file, the entry itself also contains
    the members of the first variant."""
    toolchain: dict[str, Any]
    """The toolchain that made the object."""
    object: FileRef
    header: FileRef
    links: tuple[str, ...] = ()
    """A subset of `LINKS`."""

    @property
    def every_cpu(self) -> bool:
        """Whether the object selects a variant at run time. Every CPU can then run the last one."""
        return len(self.variants) > 1

    @property
    def files(self) -> dict[str, FileRef]:
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
        """Parse the JSON of a lock file. Raise LockError with the name of a member that is missing
        or invalid."""
        name = str(_member(document, "name"))
        if not _NAME.fullmatch(name):
            raise LockError(f"a kernel's name must be a C name, got {name[:80]!r}")
        try:
            return cls(
                name=name,
                workload=_workload(document),
                workload_key=_digest(document, "workload_key"),
                threads=_threads(document),
                min_grade=_grade(document.get("min_grade", "exact")),
                variants=_variants(document),
                toolchain=_toolchain(document),
                object=FileRef.from_json(_member(document, "object")),
                header=FileRef.from_json(_member(document, "header")),
                links=_links(document),
            )
        except LockError as error:
            raise type(error)(f"{name}: {error}") from error


@dataclass(frozen=True, slots=True)
class LockFile:
    """Kernels, sorted by name, and the descriptions of their targets by key (without probes)."""

    kernels: tuple[LockedKernel, ...] = ()
    targets: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def kernel(self, name: str) -> LockedKernel | None:
        return next((kernel for kernel in self.kernels if kernel.name == name), None)

    def with_kernel(self, kernel: LockedKernel, targets: Mapping[str, dict[str, Any]]) -> LockFile:
        """Return a copy in which `kernel` replaces the entry of the same name, if there is one."""
        others = [other for other in self.kernels if other.name != kernel.name]
        kernels = tuple(sorted([*others, kernel], key=lambda kernel: kernel.name))
        used = {variant.target_key for kernel in kernels for variant in kernel.variants}
        known = {**targets, **self.targets}  # existing descriptions do not change
        return replace(
            self, kernels=kernels, targets={key: known[key] for key in sorted(used & set(known))}
        )

    def to_text(self) -> str:
        """Return the text of the file. Equal kernels give equal text."""
        entries = [kernel.to_json() for kernel in self.kernels]
        document = {
            "version": VERSION,
            "kernels": [{**entry, SEAL: entry_sha256(entry, self.targets)} for entry in entries],
            "targets": dict(self.targets),
        }
        return _lines(document, "") + "\n"

    @classmethod
    def from_text(cls, text: str, where: str) -> Self:
        """Parse a lock file. Raise LockError; `where` is the file's name in the message."""
        try:
            document = json.loads(text)
            version = _member(document, "version")
            if version != VERSION:
                raise LockError(f"this Tilewright reads version {VERSION}, found {version!r}")
            entries, targets = _member(document, "kernels"), document.get("targets", {})
            kernels = tuple(map(LockedKernel.from_json, entries))
            _check_seals(entries, targets)
            names = [kernel.name for kernel in kernels]
            if len(set(names)) < len(names):
                raise LockError("two kernels have the same name")
            return cls(kernels, {str(key): dict(targets[key]) for key in targets})
        except LockError as error:
            raise type(error)(f"{where}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise LockError(f"{where}: not a lock file ({error})") from error


def entry_sha256(entry: Mapping[str, Any], targets: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an entry of a lock file and of the targets that it names."""
    content = {name: value for name, value in entry.items() if name != SEAL}
    keys = sorted({variant["target_key"] for variant in entry.get("variants") or [entry]})
    return hashlib.sha256(
        canonical_bytes([content, [targets.get(key) for key in keys]])
    ).hexdigest()


def _check_seals(entries: Sequence[Mapping[str, Any]], targets: Mapping[str, Any]) -> None:
    """Raise Inconsistent if an entry was changed after it was written. Files of older versions have
    no hashes."""
    sealed = any(SEAL in entry for entry in entries)
    for entry in entries:
        if sealed and entry.get(SEAL) != entry_sha256(entry, targets):
            raise Inconsistent(f"{entry['name']}: {SEAL} does not match; the entry was edited")


def _member(document: Any, name: str) -> Any:
    if not isinstance(document, Mapping) or name not in document:
        raise LockError(f"{name!r} is missing")
    return document[name]


def _digest(document: Mapping[str, Any], name: str) -> str:
    found = _member(document, name)
    if not _is_digest(found):
        raise LockError(f"{name}: must be 64 hexadecimal digits, got {str(found)[:80]!r}")
    return str(found)


def _is_digest(value: Any, prefix: str = "") -> bool:
    if not isinstance(value, str) or not value.startswith(prefix):
        return False
    return _DIGITS.fullmatch(value.removeprefix(prefix)) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def _grade(value: Any) -> str:
    if value not in list(Grade):
        raise LockError(f"grade: must be one of {', '.join(Grade)}, got {str(value)[:80]!r}")
    return str(value)


def _workload(document: Mapping[str, Any]) -> str | dict[str, Any]:
    found = _member(document, "workload")
    if not isinstance(found, str | dict):
        raise LockError(f"workload: must be text or a document, got {str(found)[:80]}")
    return found


def _threads(document: Mapping[str, Any]) -> int:
    found = _member(document, "threads")
    if not _is_count(found) or found == 0:
        raise LockError(f"threads: must be a whole number of at least 1, got {str(found)[:80]!r}")
    return int(found)


def _toolchain(document: Mapping[str, Any]) -> dict[str, Any]:
    found = _member(document, "toolchain")
    kinds = {"codegen": int, "llvmlite": str, "llvm": str}
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name), kind) for name, kind in kinds.items()
    ):
        raise LockError(f"toolchain: must have {', '.join(kinds)}, got {str(found)[:80]}")
    return found


def _links(document: Mapping[str, Any]) -> tuple[str, ...]:
    found = document.get("links", [])
    if not isinstance(found, list) or not all(link in LINKS for link in found):
        raise LockError(f"links: this version does not know {str(found)[:80]}")
    return tuple(found)


def _variants(document: Mapping[str, Any]) -> tuple[LockedVariant, ...]:
    """Return the variants of an object for many CPUs, or the only variant, which is the entry
    itself. The first of many must agree with the entry."""
    own = LockedVariant.from_json(document)
    if "variants" not in document:
        return (own,)
    found = document["variants"]
    if not isinstance(found, list) or len(found) < 2:
        raise LockError("variants: must have at least two items")
    variants = tuple(map(LockedVariant.from_json, found))
    if variants[0] != own:
        raise Inconsistent("the entry differs from the first of its variants")
    return variants


LINE_WIDTH = 100


def _lines(value: Any, indent: str) -> str:
    """Format JSON with sorted members. A value without nested parts is one line if it fits, or if
    it is not an object. Any other value has one line per part."""
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
