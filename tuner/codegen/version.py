"""The version of the code generator, in a module that does not import code generation."""

from __future__ import annotations

from importlib import import_module

CODEGEN_VERSION = 8
"""Raised with every change of generated code; records of another version are verified again."""

EMIT_VERSION = 2
"""Raised with every change of the entry points or header around a kernel's code. Records do not
depend on it; the bytes of emitted files do."""


def llvmlite_version() -> str:
    """The installed release of llvmlite, "" if there is none. It imports the package, which does
    not load LLVM; reading package metadata would take ten times as long."""
    try:
        return str(import_module("llvmlite").__version__)
    except ImportError:
        return ""
