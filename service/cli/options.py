"""Options shared by commands, as groups: a command takes a group as one argument.

`command` flattens the groups into the options Typer sees, and turns errors of the table in
`service/errors.py` into one line and an exit code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from service.cli.output import Output

WORKLOAD_PANEL = "Workload"
MACHINE_PANEL = "Machine"
COMMON_PANEL = "General"


@dataclass(frozen=True, slots=True)
class Common:
    """What every command takes."""

    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON document and nothing else.",
            rich_help_panel=COMMON_PANEL,
        ),
    ] = False
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            metavar="URL",
            help="Database, a URL or a file; else TILEWRIGHT_DB, else the user's data folder.",
            rich_help_panel=COMMON_PANEL,
        ),
    ] = None

    def output(self) -> Output:
        return Output(as_json=self.json)


@dataclass(frozen=True, slots=True)
class WorkloadSpelling:
    """One computation in any of its spellings."""

    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="OPERATOR:NAME=VALUE,..., a workload.json, or FILE.py:FUNCTION.",
            show_default=False,
        ),
    ] = None
    expr: Annotated[
        str | None,
        typer.Option(
            "--expr",
            metavar="TEXT",
            help=r"Index notation, e.g. 'C\[i,j] += A\[i,k] * B\[k,j]'.",
            rich_help_panel=WORKLOAD_PANEL,
        ),
    ] = None
    tensor: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor",
            metavar="NAME=TYPE[SHAPE]",
            help=r"A tensor of --expr, e.g. A=f32\[512,512].",
            rich_help_panel=WORKLOAD_PANEL,
        ),
    ] = None
    range: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="AXIS=N",
            help="An axis no shape tells, e.g. r=3.",
            rich_help_panel=WORKLOAD_PANEL,
        ),
    ] = None
    constant: Annotated[
        list[str] | None,
        typer.Option(
            "--constant",
            metavar="NAME",
            help="An input whose values do not change: it may be packed ahead of calls.",
            rich_help_panel=WORKLOAD_PANEL,
        ),
    ] = None
    allow_error: Annotated[
        float | None,
        typer.Option(
            "--allow-error",
            metavar="E",
            help="Allow rewrites with a proven relative error up to E, e.g. 1e-3 (Winograd).",
            rich_help_panel=WORKLOAD_PANEL,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and how measurements are made."""

    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="native|FILE",
            help="The hardware a kernel is made for; in a fleet also the name of a machine or the "
            "beginning of a key.",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = "native"
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            min=1,
            help="Threads a kernel may use; left out, 1 or what the target file says.",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = None
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            help="Fixes every choice made by chance.",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = 0
    measurer: Annotated[
        str,
        typer.Option(
            "--measurer",
            metavar="local|replay:FILE|simulated:FILE|dask:ADDRESS",
            help="Where timings come from.",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = "local"


@dataclass(frozen=True, slots=True)
class Service:
    """Which service to talk to."""

    url: Annotated[
        str,
        typer.Option(
            "--url",
            metavar="URL",
            envvar="TILEWRIGHT_URL",
            help="A running service.",
            rich_help_panel=COMMON_PANEL,
        ),
    ] = "http://127.0.0.1:8470"
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar="TILEWRIGHT_API_KEY",
            help="Its key; better in the environment than on a command line.",
            rich_help_panel=COMMON_PANEL,
            show_default=False,
        ),
    ] = None


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[..., Callable[..., None]]:
    """Register a function as command `name`; parameters typed as a group become its fields."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        groups, parameters = _flatten(function)

        def run(**values: Any) -> None:
            for group_name, group in groups.items():
                names = [f.name for f in fields(group)]
                values[group_name] = group(**{n: values.pop(n) for n in names})
            function(**values)

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by Typer
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name, **settings)(run)
        return function

    return register


def _flatten(
    function: Callable[..., None],
) -> tuple[dict[str, type[Any]], list[inspect.Parameter]]:
    """The groups among `function`'s parameters, and the flat parameters in their stead."""
    hints = get_type_hints(function, vars(sys.modules[function.__module__]), include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if not (isinstance(hint, type) and is_dataclass(hint)):
            parameters.append(
                parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY)
            )
            continue
        groups[parameter.name] = hint
        field_hints = get_type_hints(hint, include_extras=True)
        parameters += [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=f.default,
                annotation=field_hints[f.name],
            )
            for f in fields(hint)
        ]
    return groups, parameters
