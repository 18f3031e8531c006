"""The list of workloads of a command: in a file, or several spellings. It is not parsed here,
because a service parses what it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tilewright.service.argument_specs import Argument, Option
from tilewright.service.errors import UsageProblem
from tilewright.service.resolve.spelling import WorkloadSpelling, read_json

MoreWorkloads = Annotated[
    list[str] | None,
    Argument(
        metavar="WORKLOAD",
        help="More workloads, tuned under the same budget.",
        shows_default=False,
    ),
]

ManyOption = Annotated[
    str | None,
    Option(
        "--many",
        metavar="FILE",
        help="Instead of WORKLOAD: a JSON list of workloads with weights and names.",
        shows_default=False,
    ),
]


def spelled_list(spelling: WorkloadSpelling, more: Sequence[str], file: str | None) -> Any:
    """Return the JSON content of `file`, or the list of workloads on the command line. Raise
    UsageProblem if both are given, or options that describe one workload."""
    first = spelling.workload
    if spelling != WorkloadSpelling(first):
        raise UsageProblem(
            "options such as --expr and --allow-error describe one WORKLOAD: for several, write"
            ' {"expr": ..., "tensors": {...}} in the file of --many'
        )
    if file is None:
        return [first or "", *more]
    if first is not None:
        raise UsageProblem(f"give either --many FILE or WORKLOADs, not both; got {first!r} too")
    return read_json(Path(file))
