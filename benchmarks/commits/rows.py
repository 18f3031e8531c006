"""What two commits are compared on: `rows.jsonl`, a computation a line.

A line has a `name`, a `family` and the `words` that a command line takes. Most are cases of the
operator suite, some at narrow types; those of the family `expressions` are in no list.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilewright.schedules import Workload, parse_workload

FILE = Path(__file__).with_name("rows.jsonl")
OWN_FAMILY = "expressions"


@dataclass(frozen=True)
class Row:
    """One computation. Equal `words` are the same computation in every commit's hands: both get
    the document that this one makes of them."""

    name: str
    family: str
    words: tuple[str, ...]

    @cached_property
    def workload(self) -> Workload:
        if self.words[0] != "--expr":
            return parse_workload(self.words[0])
        flags, values = self.words[::2], self.words[1::2]
        given = list(zip(flags, values, strict=True))
        return parse_workload(
            expr=given[0][1],
            tensors=[value for flag, value in given if flag == "--tensor"],
            ranges=[value for flag, value in given if flag == "--range"],
        )


def rows(file: Path = FILE) -> tuple[Row, ...]:
    """All of them, in the order of the file."""
    lines = (json.loads(line) for line in file.read_text().splitlines())
    return tuple(Row(line["name"], line["family"], tuple(line["words"])) for line in lines)


def spread_out(chosen: Sequence[Row], count: int | None) -> list[Row]:
    """`count` of the rows, evenly spread over the file, or all of them."""
    if count is None or count >= len(chosen):
        return list(chosen)
    return [chosen[n * len(chosen) // count] for n in range(count)]
