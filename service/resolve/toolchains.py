"""What is installed here to make kernels with, as records name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedules.record import Toolchain


def toolchain() -> Toolchain:
    """The toolchain installed here, without loading LLVM; `llvm` is "" (llvmlite fixes it)."""
    from importlib.metadata import PackageNotFoundError, version

    from schedules.record import Toolchain
    from tuner.codegen.version import CODEGEN_VERSION

    try:
        llvmlite = version("llvmlite")
    except PackageNotFoundError:
        llvmlite = ""
    return Toolchain(codegen_version=CODEGEN_VERSION, llvmlite=llvmlite, llvm="")


def real_toolchain() -> Toolchain:
    """The toolchain installed here in full, as records name it. Loads LLVM."""
    from tuner.measure.local import local_toolchain

    return local_toolchain()
