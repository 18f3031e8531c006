"""The installed toolchain."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

from tilewright.schedules.record import Toolchain
from tilewright.tuner.codegen.version import CODEGEN_VERSION, llvmlite_version

_ASK = "import llvmlite.binding as b; print('.'.join(map(str, b.llvm_version_info)))"


@cache
def toolchain() -> Toolchain:
    """Return the installed toolchain without loading LLVM; its `llvm` is "" (llvmlite implies it).
    The result is cached, because a process keeps the code that it has loaded."""
    return Toolchain(codegen_version=CODEGEN_VERSION, llvmlite=llvmlite_version(), llvm="")


def toolchain_name(made_by: Toolchain) -> str:
    """Return the text by which keys identify a toolchain."""
    return f"codegen {made_by.codegen_version}, llvmlite {made_by.llvmlite}"


@cache
def llvm_version() -> str:
    """Return the release of LLVM in llvmlite, or "" without llvmlite. A separate process detects
    it, because LLVM takes 50 MB in each process that loads it."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def real_toolchain() -> Toolchain:
    """Return the installed toolchain with its LLVM release, for records. Loads LLVM."""
    # Start-up: naming the toolchain of a query loads no measuring code.
    from tilewright.tuner.emit.object_code import toolchain

    return toolchain()
