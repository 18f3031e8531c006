"""Bundles: a lock file with the records and files that it names, in one file for builds without a
network.

A bundle is a zip archive without compression, which CMake can extract:

    tilewright.lock.json     the lock file
    records.jsonl            the records, as `export` writes them
    blobs/sha256/HEX         objects and headers

The same lock file and records give the same bytes. Every member is checked against its hash when it
is read.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.db.values.whole import FORMAT, FORMAT_VERSION
from tilewright.schedules.canonical import canonical_bytes
from tilewright.service.answers.links import MEDIA_TYPES
from tilewright.service.build.consistency import check_header, check_parts
from tilewright.service.build.lock_file import LockedKernel, LockError, LockFile, NotTheBytes

from .source import Source

if TYPE_CHECKING:
    from tilewright.db import Store

LOCK_NAME = "tilewright.lock.json"
RECORDS_NAME = "records.jsonl"
BLOBS = "blobs/sha256/"
MAX_MEMBER_BYTES = 256 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
MAGIC = b"PK\x03\x04"


def bundle_bytes(lock: LockFile, source: Source) -> bytes:
    """Return the bundle of `lock`. Raise NotTheBytes if a file is not available."""
    source.refuse_failed(lock.kernels)
    members = {LOCK_NAME: lock.to_text().encode()}
    members[RECORDS_NAME] = "".join(_record_lines(lock, source)).encode()
    for kernel in lock.kernels:
        for name, ref in kernel.files.items():
            members[BLOBS + ref.sha256] = ref.check(source.file(lock, kernel, name), name)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(members.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # otherwise the bytes depend on this machine
            archive.writestr(entry, data)
    return out.getvalue()


def _record_lines(lock: LockFile, source: Source) -> Iterator[str]:
    """Yield the lines of an export of the records that `lock` names, with workloads and targets.
    Records that `source` does not have are omitted."""
    # Start-up: reading a bundle needs neither the database nor the workload parser.
    from tilewright.service.resolve.workloads import workload_of

    def line(entry: dict[str, Any]) -> str:
        return canonical_bytes(entry).decode() + "\n"

    yield line({"format": FORMAT, "version": FORMAT_VERSION})
    written: set[str] = set()
    for kernel in lock.kernels:
        for variant in kernel.variants:
            key = variant.record_key
            record = source.record(key) if key is not None and key not in written else None
            if key is None or record is None:
                continue
            made_for = record["target_key"]
            target = lock.targets.get(made_for) or source.target(made_for)
            if target is None:
                continue
            if kernel.workload_key not in written:
                workload = workload_of(kernel.workload)
                yield line({
                    "kind": "workload", "key": workload.key, "name": workload.name,
                    "flops": workload.flops, "document": workload.to_json(),
                })  # fmt: skip
            if made_for not in written:
                target = {name: value for name, value in target.items() if name != "probes"}
                yield line({"kind": "target", "key": made_for, "document": target})
            yield line({"kind": "record", "key": key, "record": record})
            written |= {key, kernel.workload_key, made_for}


def is_bundle(path: Path) -> bool:
    """Return whether the file is an archive. Return False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk, which is a complete `Source`."""

    path: Path

    def lock(self) -> LockFile:
        """Return the lock file of the bundle. Raise LockError if it is invalid."""
        text = self._member(LOCK_NAME).decode(errors="replace")
        return check_parts(LockFile.from_text(text, str(self.path)), str(self.path))

    def file(self, lock: LockFile, kernel: LockedKernel, name: str) -> bytes:
        ref = kernel.files[name]
        try:
            data = self._member(BLOBS + ref.sha256)
        except KeyError:
            raise NotTheBytes(f"{self.path}: {name} (sha256 {ref.sha256}) is not in it") from None
        return ref.check(data, f"{self.path}: {name}")

    def refuse_failed(self, kernels: Sequence[LockedKernel]) -> None:
        """Do nothing: a bundle has no information on later failures of checks."""

    def record(self, key: str) -> dict[str, Any] | None:
        return self._entries("record").get(key)

    def target(self, key: str) -> dict[str, Any] | None:
        return self._entries("target").get(key)

    def records_text(self) -> str:
        """Return the records, as `export` writes them."""
        return self._member(RECORDS_NAME).decode(errors="surrogateescape")

    def _entries(self, kind: str) -> dict[str, dict[str, Any]]:
        entries = [json.loads(line) for line in self.records_text().splitlines()]
        member = "document" if kind == "target" else kind
        return {entry["key"]: entry[member] for entry in entries if entry.get("kind") == kind}

    def _member(self, name: str) -> bytes:
        """Return the bytes of a member. Raise LockError if the archive is damaged, KeyError if it
        has no such member."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                entry = archive.getinfo(name)
                if entry.file_size > MAX_MEMBER_BYTES:
                    raise LockError(f"{self.path}: {name} has {entry.file_size} bytes")
                return archive.read(entry)
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
            raise LockError(f"{self.path}: not a bundle, or damaged ({error})") from error
        except KeyError:
            if name in (LOCK_NAME, RECORDS_NAME):
                raise LockError(f"{self.path}: not a bundle, it has no {name}") from None
            raise


def import_bundle(store: Store, path: Path) -> dict[str, Any]:
    """Import the records and files of a bundle. The files can then be fetched from this database.
    The records are claims, as in any import, until they are verified here."""
    bundle = Bundle(path)
    lock = bundle.lock()
    report = store.import_(bundle.records_text().splitlines(keepends=True))
    blobs = 0
    for kernel in lock.kernels:
        check_header(kernel, bundle.file(lock, kernel, f"{kernel.name}.h"))
        for kind, name in (("object", f"{kernel.name}.o"), ("header", f"{kernel.name}.h")):
            store.put_blob(bundle.file(lock, kernel, name), MEDIA_TYPES[kind])
            blobs += 1
    return {
        "added": report.added,
        "known": report.known,
        "blobs": blobs,
        "bad": [{"line": bad.line, "reason": bad.reason} for bad in report.bad],
    }
