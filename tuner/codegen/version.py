"""The code generator's version. Programs that generate no code import this module too."""

from __future__ import annotations

from importlib import import_module

CODEGEN_VERSION = 15
"""The version of generated code. Every change of the generated code increases it.

Records of another version are verified again.
"""

EMIT_VERSION = 2
"""The version of emitted files. Every change of entries or header increases it.

Records do not depend on it, but the bytes of emitted files do.
"""


def llvmlite_version() -> str:
    """Return the installed release of llvmlite, or "" if it is not installed.

    Importing its package does not load LLVM. Reading the metadata of the package instead would
    take ten times as long.
    """
    try:
        return str(import_module("llvmlite").__version__)
    except ImportError:
        return ""
