"""Finds pins of a lock file whose schedule failed a full check after it was pinned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.schedules.full_checks import FullCheck
from tilewright.schedules.record import Toolchain
from tilewright.service.answers.failed_checks import record_refusal
from tilewright.service.build.lock_file import LockedKernel, LockedVariant, LockError

if TYPE_CHECKING:
    from tilewright.db import Store


@dataclass(frozen=True, slots=True)
class RefusedPin:
    """A locked kernel whose schedule failed its full check, and that check."""

    name: str
    check: FullCheck

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "full_check": self.check.to_json()}


def refused_pins(store: Store, kernels: Iterable[LockedKernel]) -> list[RefusedPin]:
    """Return the kernels that must not be used any more. A kernel whose record is not stored here
    is not among them."""
    return [
        RefusedPin(kernel.name, failed)
        for kernel in kernels
        for variant in kernel.variants
        if (failed := _failed(store, kernel, variant)) is not None
    ]


def _failed(store: Store, kernel: LockedKernel, variant: LockedVariant) -> FullCheck | None:
    made_by = _made_by(kernel)
    if variant.record_key is None:
        if variant.trace is None:
            return None
        checks = store.full_checks(kernel.workload_key, variant.target_key)
        return checks.refusal(variant.trace, made_by)
    record = store.record(variant.record_key)
    if record is None or record.workload_key != kernel.workload_key:
        return None
    return record_refusal(store, record, variant.target_key, made_by)


def _made_by(kernel: LockedKernel) -> Toolchain:
    """Return the toolchain that made the object. Raise LockError if the entry does not have it."""
    codegen, llvmlite = kernel.toolchain.get("codegen"), kernel.toolchain.get("llvmlite")
    if not isinstance(codegen, int) or not isinstance(llvmlite, str):
        raise LockError(f"{kernel.name}: toolchain lacks the code generator or llvmlite")
    return Toolchain(codegen, llvmlite, str(kernel.toolchain.get("llvm", "")))
