"""The CPUs and features of an architecture, from LLVM's list.

    python -m tilewright.tuner.machine.llvm_names TRIPLE   lists them
    python -m tilewright.tuner.machine.llvm_names          compiles for the target on stdin

LLVM reports an unknown name and continues with a CPU without features, or ends the process. It
prints its list only once per process. Therefore a separate process requests the list, or compiles
for a new target. Results are cached.
"""

from __future__ import annotations

import difflib
import json
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterable
from functools import lru_cache

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Target

from .. import timeouts
from ..process.child_command import module_command
from ..process.environment import child_environment

_CPUS = "Available CPUs for this target:"
_FEATURES = "Available features for this target:"
_ENTRY = re.compile(r"^  +(\S+) +- ", re.MULTILINE)
_ONE_AT_A_TIME = threading.Lock()

# The module contains what every kernel has: loads, sums and stores of floats.
_SMALL_MODULE = """
define void @small(ptr %p) {
  %a = load float, ptr %p
  %b = fadd float %a, %a
  store float %b, ptr %p
  ret void
}
"""


def check_target(target: Target) -> None:
    """Raise TargetError if LLVM cannot compile for `target`, for example for a 32-bit CPU.
    Thread-safe.

    A result that is not cached takes a process. Only one process runs at a time.
    """
    with _ONE_AT_A_TIME:
        check_names(target)
        trouble = _fatal_message(target.triple, target.cpu, target.features)
    if trouble:
        raise TargetError(
            f"LLVM cannot compile for CPU {target.cpu!r} of {target.triple} with these features:"
            f" {trouble}"
        )


def check_names(target: Target) -> None:
    """Raise TargetError if LLVM does not have the CPU or a feature of `target`. The error lists
    similar names."""
    cpus, features = names_of(target.triple)
    if target.cpu not in cpus:
        raise TargetError(_unknown("CPU", target.cpu, target.triple, cpus))
    for feature in target.features:
        if feature not in features:
            raise TargetError(_unknown("feature", feature, target.triple, features))


def names_of(triple: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the CPUs and the features of an architecture. Raise TargetError if LLVM lacks the
    architecture."""
    # The list depends only on the architecture.
    return _names_of(f"{triple.partition('-')[0]}-unknown-linux-gnu")


@lru_cache(maxsize=16)
def _names_of(triple: str) -> tuple[frozenset[str], frozenset[str]]:
    text = _listed_by_llvm(triple, [triple], b"").stderr.decode(errors="replace")
    if _CPUS not in text:
        raise TargetError(f"LLVM has no list of names for {triple}: {text.strip()[-200:]}")
    cpus, _, features = text.partition(_FEATURES)
    return frozenset(_ENTRY.findall(cpus)), frozenset(_ENTRY.findall(features))


@lru_cache(maxsize=256)
def _fatal_message(triple: str, cpu: str, features: tuple[str, ...]) -> str:
    """Return the last line of LLVM's output if these names end its process, otherwise ""."""
    asked = json.dumps({"triple": triple, "cpu": cpu, "features": features})
    ended = _listed_by_llvm(triple, [], asked.encode())
    if not ended.returncode:
        return ""
    said = [line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
    return said[-1].strip()[:300] if said else f"it ended with code {ended.returncode}"


def _listed_by_llvm(
    triple: str, words: list[str], request: bytes
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            module_command("tilewright.tuner.machine.llvm_names", *words),
            env=child_environment(1),
            input=request,
            capture_output=True,
            timeout=timeouts.LLVM_NAMES_DEADLINE_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TargetError(f"LLVM did not answer in time for {triple}") from error


def _unknown(what: str, name: str, triple: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"LLVM has no {what} {name[:80]!r} for {triple}{hint}"


def main() -> None:
    """Make LLVM print its list to standard error, or compile for the target on standard input."""
    # Start-up: only the process started for this function loads LLVM.
    from ..emit.object_code import cleaned, llvm_target, machine_for

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.argv[1:]:
        llvm_target(sys.argv[1]).create_target_machine(cpu="help", features="")
        return
    request = json.load(sys.stdin)
    machine = machine_for(request["triple"], request["cpu"], request["features"])
    machine.emit_object(cleaned(_SMALL_MODULE, machine))


if __name__ == "__main__":
    main()
