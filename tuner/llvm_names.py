"""The CPUs and features that LLVM knows of an architecture, as LLVM itself lists them.

    python -m tuner.llvm_names TRIPLE

What LLVM does not know it names on standard error, and goes on with a CPU that has nothing, or ends
the process. Its list it gives once a process, and to standard error: so one is started for it.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache

from schedules.errors import TargetError
from schedules.target import Target

from .child_command import module_command

_CPUS = "Available CPUs for this target:"
_FEATURES = "Available features for this target:"
_ENTRY = re.compile(r"^  +(\S+) +- ", re.MULTILINE)
_DEADLINE_SECS = 20.0


def check_names(target: Target) -> None:
    """TargetError for a CPU or a feature that LLVM does not know, and what it may have been."""
    cpus, features = names_of(target.triple)
    if target.cpu not in cpus:
        raise TargetError(_unknown("CPU", target.cpu, target.triple, cpus))
    for feature in target.features:
        if feature not in features:
            raise TargetError(_unknown("feature", feature, target.triple, features))


@lru_cache(maxsize=16)
def names_of(triple: str) -> tuple[frozenset[str], frozenset[str]]:
    """CPUs and features of the architecture of `triple`. TargetError if LLVM has none such, or
    would not say."""
    from .measure.compile_pool import child_environment

    try:
        found = subprocess.run(
            module_command("tuner.llvm_names", triple),
            env=child_environment(1),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEADLINE_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TargetError(f"LLVM did not tell in time what it knows of {triple}") from error
    text = found.stderr.decode(errors="replace")
    if _CPUS not in text:
        raise TargetError(f"LLVM tells nothing of {triple}: {text.strip()[-200:]}")
    cpus, _, features = text.partition(_FEATURES)
    return frozenset(_ENTRY.findall(cpus)), frozenset(_ENTRY.findall(features))


def _unknown(what: str, name: str, triple: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"LLVM knows no {what} {name[:80]!r} for {triple}{hint}"


def main() -> None:
    """Have LLVM list them on standard error."""
    from .codegen.emit import llvm_target

    llvm_target(sys.argv[1]).create_target_machine(cpu="help", features="")


if __name__ == "__main__":
    main()
