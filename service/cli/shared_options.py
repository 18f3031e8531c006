"""Options of several commands, for Typer."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.service.errors import UsageProblem
from tilewright.service.grade import Grade

from .options import MACHINE_PANEL

CpusOption = Annotated[
    str | None,
    typer.Option(
        "--cpu",
        metavar="LIST",
        help="One object with a kernel for each of these CPUs, such as "
        "x86-64-v3,x86-64-v4,native. It also runs on all others.",
        rich_help_panel=MACHINE_PANEL,
        show_default=False,
    ),
]

LeastGrade = Annotated[
    Grade | None,
    typer.Option(
        "--min-grade",
        help="The lowest acceptable grade; by default exact, with --cpu same-cpu.",
        show_default=False,
    ),
]


def split_names(cpus: str) -> list[str]:
    """Return the distinct names in `cpus`. Raise UsageProblem if there are none."""
    names = [name.strip() for name in cpus.split(",") if name.strip()]
    if not names:
        raise UsageProblem("--cpu needs names such as x86-64-v3,x86-64-v4,native")
    return list(dict.fromkeys(names))
