"""The code generator's version, where programs that generate no code can read it too."""

from __future__ import annotations

CODEGEN_VERSION = 6
"""Raised with every change of generated code; records of another version are verified again."""

EMIT_VERSION = 1
"""Raised with every change of what an emitted object has around a kernel's code: entries, header.
Records do not depend on it; the bytes of files that are emitted again do."""
