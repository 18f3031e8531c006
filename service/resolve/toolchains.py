"""The installed toolchain, as records name it."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

from tilewright.schedules.record import Toolchain
from tilewright.tuner.codegen.version import CODEGEN_VERSION, llvmlite_version

_ASK = "import llvmlite.binding as b; print('.'.join(map(str, b.llvm_version_info)))"


@cache
def toolchain() -> Toolchain:
    """Return the installed toolchain, without loading LLVM; `llvm` is "" (llvmlite determines it).

    Detected once: a process keeps the code it has loaded, whatever is installed later.
    """
    return Toolchain(codegen_version=CODEGEN_VERSION, llvmlite=llvmlite_version(), llvm="")


def toolchain_name(made_by: Toolchain) -> str:
    """Return a toolchain in keys: code generator and llvmlite."""
    return f"codegen {made_by.codegen_version}, llvmlite {made_by.llvmlite}"


@cache
def llvm_version() -> str:
    """Return the release of LLVM in llvmlite, or "" if there is none. A separate process detects
    it: LLVM takes 50 MB of each process that loads it."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def real_toolchain() -> Toolchain:
    """Return the complete installed toolchain, as records name it. Loads LLVM."""
    # Start-up: naming the toolchain of a query loads no measuring code.
    from tilewright.tuner.emit.object_code import toolchain

    return toolchain()
