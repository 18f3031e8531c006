"""What is installed here to make kernels with, as records name it."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

from tilewright.schedules.record import Toolchain
from tilewright.tuner.codegen.version import CODEGEN_VERSION, llvmlite_version

_ASK = "import llvmlite.binding as b; print('.'.join(map(str, b.llvm_version_info)))"


@cache
def toolchain() -> Toolchain:
    """The toolchain installed here, without loading LLVM; `llvm` is "" (llvmlite fixes it).

    Looked up once: a process goes on with the code it has loaded, whatever is installed later.
    """
    return Toolchain(codegen_version=CODEGEN_VERSION, llvmlite=llvmlite_version(), llvm="")


def toolchain_name(made_by: Toolchain) -> str:
    """What stands for a toolchain in keys: code generator and llvmlite."""
    return f"codegen {made_by.codegen_version}, llvmlite {made_by.llvmlite}"


@cache
def llvm_version() -> str:
    """The release of LLVM that llvmlite brings, "" where it brings none. A process of its own
    looks: LLVM takes 50 MB of each that loads it."""
    said = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def real_toolchain() -> Toolchain:
    """The toolchain installed here in full, as records name it. Loads LLVM."""
    # Start-up: a query names its toolchain without what measures.
    from tilewright.tuner.emit.object_code import toolchain

    return toolchain()
