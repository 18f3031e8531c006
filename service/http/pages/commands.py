"""Shell commands that reproduce a page's content in a terminal."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache

from tilewright.schedules.errors import TilewrightError
from tilewright.service.resolve import workloads


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    does: str


@lru_cache(maxsize=1024)
def spelling(name: str, key: str) -> str | None:
    """Return the name of the workload `key`, quoted for a shell, or None if the name does not
    define that workload."""
    try:
        return shlex.quote(name) if workloads.workload_of(name).key == key else None
    except TilewrightError:
        return None


def record_commands(
    name: str, workload_key: str, record_key: str, threads: int, *, best: bool, native: bool
) -> tuple[Command, ...]:
    """Return the commands that show a record. If the record is the best of this service, also
    return commands that emit, verify, bench and explain it. With `native`, the record's target is
    the machine of this service; otherwise the commands read the target from the file
    `target.json`."""
    found = spelling(name, workload_key)
    where = (f" --threads {threads}" if threads != 1 else "") if native else " --target target.json"
    commands: list[Command] = []
    if found is not None:
        shown = f"tilewright show {found} --record {record_key}{where}"
        commands.append(Command(f"{shown} --what asm", "the assembly of this schedule"))
        if best:
            commands += [
                Command(f"tilewright emit {found}{where} -o kernels", "object and header, for C"),
                Command(f"tilewright verify {found}{where}", "rebuild it and check it again"),
                Command(f"tilewright bench {found}{where}", "compare it with libraries"),
                Command(f"tilewright explain {found}{where}", "what each of its choices saves"),
            ]
    return tuple(commands)
