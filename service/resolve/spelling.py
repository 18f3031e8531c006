"""The notations of a workload (operator, index notation, file), as options of the command line and
as parts of requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.workload.strict_json import parse_json_text
from tilewright.service.argument_specs import Argument, Option
from tilewright.service.errors import InvalidField, UsageProblem

WORKLOAD_PANEL = "Workload"
_ASSIGNMENT = re.compile(r"[\s;]*\w+\s*\[")


@dataclass(frozen=True, slots=True)
class WorkloadSpelling:
    """One computation in any notation. `workloads.read_workload` parses it for the command line,
    `workloads.workload_of` for requests."""

    workload: Annotated[
        str | None,
        Argument(
            metavar="WORKLOAD",
            help=r"OPERATOR:NAME=VALUE,..., index notation, workload.json, or FILE.py:FUNCTION.",
            shows_default=False,
        ),
    ] = None
    expr: Annotated[
        str | None,
        Option(
            "--expr",
            metavar="TEXT",
            help=r"Index notation, e.g. 'C\[i,j] += A\[i,k] * B\[k,j]'.",
            panel=WORKLOAD_PANEL,
        ),
    ] = None
    tensor: Annotated[
        list[str] | None,
        Option(
            "--tensor",
            metavar="NAME=TYPE[SHAPE]",
            help=r"A tensor of --expr, e.g. A=f32\[512,512].",
            panel=WORKLOAD_PANEL,
        ),
    ] = None
    range: Annotated[
        list[str] | None,
        Option(
            "--range",
            metavar="AXIS=N",
            help="The extent of an axis that no shape determines, e.g. r=3.",
            panel=WORKLOAD_PANEL,
        ),
    ] = None
    constant: Annotated[
        list[str] | None,
        Option(
            "--constant",
            metavar="NAME",
            help="An input whose values never change. It may be packed before the first call.",
            panel=WORKLOAD_PANEL,
        ),
    ] = None
    allow_error: Annotated[
        float | None,
        Option(
            "--allow-error",
            metavar="E",
            help="Allow rewrites with a proven relative error up to E, e.g. 1e-3 (Winograd).",
            panel=WORKLOAD_PANEL,
        ),
    ] = None

    @property
    def notation(self) -> str | None:
        """The index notation, given with or without `--expr`, or None for other notations."""
        if self.expr is None and self.workload is not None and _ASSIGNMENT.match(self.workload):
            return self.workload
        return self.expr


def check_one_spelling(spelling: WorkloadSpelling) -> None:
    """Raise UsageProblem unless exactly one of WORKLOAD and --expr is given."""
    if (spelling.workload is None) == (spelling.expr is None):
        raise UsageProblem(
            "give one workload: WORKLOAD (such as matmul:M=512,N=512,K=512) or --expr TEXT",
            advice="`tilewright ops` lists the operators.",
        )
    if spelling.notation is None and (spelling.tensor or spelling.range):
        raise UsageProblem("--tensor and --range describe index notation (--expr); there is none")


def assignments(values: list[str] | None, option: str) -> dict[str, str]:
    """Parse `["A=f32[2,2]"]` as a dict. Raise UsageProblem if a text is not NAME=VALUE, or a name
    is repeated."""
    found: dict[str, str] = {}
    for text in values or []:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or not value:
            raise UsageProblem(f"{option} {text!r}: must be NAME=VALUE")
        if name in found:
            raise UsageProblem(f"{option} {name} is given twice")
        found[name] = value
    return found


def ranges(values: list[str] | None) -> dict[str, int]:
    """Parse `["r=3"]` as a dict of extents."""
    found: dict[str, int] = {}
    for name, value in assignments(values, "--range").items():
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise UsageProblem(f"--range {name}={value}: must be a whole number >= 1")
        found[name] = int(value)
    return found


def read_text(path: Path) -> str:
    """Return a file's text. Raise UsageProblem if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageProblem(f"cannot read {path}: {reason}") from error


def read_json(path: Path) -> Any:
    """Return a file's JSON, parsed as strictly as requests. Raise InvalidField if it is invalid."""
    try:
        return parse_json_text(read_text(path))
    except WorkloadError as error:
        raise InvalidField(f"{path}: {error}", code=error.code) from error


def is_python(text: str) -> bool:
    """Return whether a workload is given as `FILE.py:FUNCTION`."""
    return ".py:" in text
