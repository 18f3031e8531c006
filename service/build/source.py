"""Sources of locked kernels: a local database or a bundle. (`cli.service_source` uses a
service.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.service.answers.failed_checks import refuse_pins
from tilewright.service.answers.links import MEDIA_TYPES
from tilewright.service.build.lock_file import FileRef, LockedKernel, LockFile, NotTheBytes

from .pins import refused_pins

if TYPE_CHECKING:
    from tilewright.db import Store

# Start-up: only a build without a service compiles.

Document = dict[str, Any]


class Source(Protocol):
    """A source of the files and records of locked kernels, for `fetch` and bundles."""

    def file(self, lock: LockFile, kernel: LockedKernel, name: str) -> bytes:
        """Return the bytes of `name`, a name in `kernel.files`. Raise NotTheBytes if they are not
        available."""
        ...

    def refuse_failed(self, kernels: Sequence[LockedKernel]) -> None:
        """Raise VerificationFailed if a schedule of `kernels` is known to have failed a full
        check."""
        ...

    def record(self, key: str) -> Document | None:
        """Return a record's document as in an export, or None if it is not available."""
        ...

    def target(self, key: str) -> Document | None:
        """Return the description of a record's target, or None if it is not available."""
        ...


class Builder(Source, Protocol):
    """A source that can also build a kernel from the current best records."""

    def build(self, request: Document) -> tuple[LockedKernel, dict[str, Document]]:
        """Return the kernel of a `BuildIn` document, and the descriptions of its targets by key.
        Raise NoAnswer, WorkloadError or another error of the request."""
        ...


def build_request(lock: LockFile, kernel: LockedKernel, *, pinned: bool = False) -> Document:
    """Return the `BuildIn` document that builds `kernel`; with `pinned`, from the same records."""
    request: Document = {
        "name": kernel.name,
        "workload": kernel.workload,
        "targets": [lock.targets[variant.target_key] for variant in kernel.variants],
        "threads": kernel.threads,
        "min_grade": kernel.min_grade,
        "every_cpu": kernel.every_cpu,
    }
    if pinned:
        request["records"] = [variant.record_key for variant in kernel.variants]
        traces = [variant.trace for variant in kernel.variants]
        if any(trace is not None for trace in traces):  # older services refuse `traces`
            request["traces"] = traces
    return request


class LocalSource:
    """The database `store` (None if there is none) and the installed compiler."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._made: dict[str, bytes] = {}

    def build(self, request: Document) -> tuple[LockedKernel, dict[str, Document]]:
        from tilewright.service.resolve.requests import read_model

        from .kernels import BuildIn, build_kernel

        built = build_kernel(self._store, read_model(BuildIn, request))
        self._made |= {file.sha256: file.data for file in built.files}
        return built.kernel, built.targets

    def keep(self, store: Store, kernel: LockedKernel) -> None:
        """Store a kernel that was built here, so that a service on that database can serve it."""
        for kind, ref in (("object", kernel.object), ("header", kernel.header)):
            if ref.sha256 in self._made:
                store.put_blob(self._made[ref.sha256], MEDIA_TYPES[kind])

    def file(self, lock: LockFile, kernel: LockedKernel, name: str) -> bytes:
        ref = kernel.files[name]
        data = self._kept(ref)
        if data is None:
            self.build(build_request(lock, kernel, pinned=True))
            data = self._kept(ref)
        if data is None:
            raise NotTheBytes(
                f"{name}: sha256 {ref.sha256} is not stored, and a new build has other bytes"
                f" (locked: {_made_by(kernel)})"
            )
        return ref.check(data, name)

    def refuse_failed(self, kernels: Sequence[LockedKernel]) -> None:
        if self._store is not None:
            refuse_pins((pin.name, str(pin.check)) for pin in refused_pins(self._store, kernels))

    def _kept(self, ref: FileRef) -> bytes | None:
        if ref.sha256 in self._made:
            return self._made[ref.sha256]
        blob = self._store.blob(ref.sha256) if self._store is not None else None
        return None if blob is None else blob.data

    def record(self, key: str) -> Document | None:
        record = self._store.record(key) if self._store is not None else None
        return None if record is None else record.to_json()

    def target(self, key: str) -> Document | None:
        return self._store.target(key) if self._store is not None else None


def _made_by(kernel: LockedKernel) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(kernel.toolchain.items()))
