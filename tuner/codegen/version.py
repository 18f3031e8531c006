"""The code generator's version, where programs that generate no code can read it too."""

from __future__ import annotations

from importlib import import_module

CODEGEN_VERSION = 8
"""Raised with every change of generated code; records of another version are verified again."""

EMIT_VERSION = 1
"""Raised with every change of what an emitted object has around a kernel's code: entries, header.
Records do not depend on it; the bytes of files that are emitted again do."""


def llvmlite_version() -> str:
    """The release of llvmlite that is installed, "" if none is. Its package is imported, which
    loads no LLVM: asking the metadata of what is installed takes ten times as long."""
    try:
        return str(import_module("llvmlite").__version__)
    except ImportError:
        return ""
