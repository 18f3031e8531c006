"""Commands to copy that reproduce a page's content in a terminal."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache

from tilewright.schedules.errors import TilewrightError
from tilewright.service.resolve import workloads


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and its effect."""

    text: str
    does: str


@lru_cache(maxsize=1024)
def spelling(name: str, key: str) -> str | None:
    """The workload of `key` as a shell argument; None if its name is not its spelling."""
    try:
        return shlex.quote(name) if workloads.workload_of(name).key == key else None
    except TilewrightError:
        return None


def record_commands(
    name: str, workload_key: str, record_key: str, threads: int, *, best: bool, native: bool
) -> tuple[Command, ...]:
    """Commands for a record: show it and, if it is the best here, emit and verify it.

    `native`: the record is of the machine this service runs on; another target needs a file first.
    """
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
            ]
    return tuple(commands)
