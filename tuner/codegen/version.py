"""The code generator's version, which programs that generate no code import too."""

from __future__ import annotations

from importlib import import_module

CODEGEN_VERSION = 8
"""Increased with every change of generated code; records of another version are verified again."""

EMIT_VERSION = 2
"""Increased with every change of an emitted object around the kernel's code: entries, header.
Records do not depend on it; the bytes of emitted files do."""


def llvmlite_version() -> str:
    """The installed release of llvmlite, "" if none. Its package is imported, which does not load
    LLVM; reading the metadata of the installed package takes ten times as long."""
    try:
        return str(import_module("llvmlite").__version__)
    except ImportError:
        return ""
