"""The CPUs and features that LLVM knows of an architecture, as LLVM itself lists them.

LLVM says on standard error what it does not know, and goes on with a CPU that has nothing, or ends
the process. llvmlite gives the list to nobody but a terminal. So this is for a helper process,
whose standard error is nobody else's.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Iterable
from functools import lru_cache

from schedules.errors import TargetError
from schedules.target import Target

_ENTRY = re.compile(r"^  +(\S+) +- ", re.MULTILINE)
_FEATURES = "Available features for this target:"


def check_names(target: Target) -> None:
    """TargetError for a CPU or a feature that LLVM has no name like, and what it may have been."""
    cpus, features = names_of(target.triple)
    if target.cpu not in cpus:
        raise TargetError(_unknown("CPU", target.cpu, target.triple, cpus))
    for feature in target.features:
        if feature not in features:
            raise TargetError(_unknown("feature", feature, target.triple, features))


@lru_cache(maxsize=16)
def names_of(triple: str) -> tuple[frozenset[str], frozenset[str]]:
    """CPUs and features of the architecture of `triple`. TargetError if LLVM knows none such."""
    from .emit import llvm_target

    try:
        target = llvm_target(triple)
    except RuntimeError as error:
        raise TargetError(f"triple {triple!r}: {str(error).strip()[:200]}") from error
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            target.create_target_machine(cpu="help", features="")
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        cpus, _, features = file.read().decode(errors="replace").partition(_FEATURES)
    return frozenset(_ENTRY.findall(cpus)), frozenset(_ENTRY.findall(features))


def _unknown(what: str, name: str, triple: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"LLVM knows no {what} {name[:80]!r} for {triple}{hint}"
