"""What is installed here to make kernels with, as records name it."""

from __future__ import annotations

from functools import cache

from schedules.record import Toolchain
from tuner.codegen.version import CODEGEN_VERSION, llvmlite_version


@cache
def toolchain() -> Toolchain:
    """The toolchain installed here, without loading LLVM; `llvm` is "" (llvmlite fixes it).

    Looked up once: a process goes on with the code it has loaded, whatever is installed later.
    """
    return Toolchain(codegen_version=CODEGEN_VERSION, llvmlite=llvmlite_version(), llvm="")


def toolchain_name(made_by: Toolchain) -> str:
    """What stands for a toolchain in keys: code generator and llvmlite."""
    return f"codegen {made_by.codegen_version}, llvmlite {made_by.llvmlite}"


def real_toolchain() -> Toolchain:
    """The toolchain installed here in full, as records name it. Loads LLVM."""
    # Start-up: a query names its toolchain without what measures.
    from tuner.emit.object_code import toolchain

    return toolchain()
