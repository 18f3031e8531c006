"""Registers commands with Typer. Groups of options are expanded into single options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from tilewright.service.argument_specs import Argument, Option
from tilewright.service.cli.option_groups import (
    COMMON_PANEL,
    MACHINE_PANEL,
    Common,
    MachineOptions,
    Service,
)


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[..., Callable[..., None]]:
    """Return a decorator that registers a function as command `name`. A parameter that is a group
    becomes one option per field."""

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
    """Return the groups among the parameters, by name, and the parameters with the groups
    expanded."""
    hints = get_type_hints(function, vars(sys.modules[function.__module__]), include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if not (isinstance(hint, type) and is_dataclass(hint)):
            parameters.append(
                parameter.replace(annotation=_for_typer(hint), kind=inspect.Parameter.KEYWORD_ONLY)
            )
            continue
        groups[parameter.name] = hint
        field_hints = get_type_hints(hint, include_extras=True)
        parameters += [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=f.default,
                annotation=_for_typer(field_hints[f.name]),
            )
            for f in fields(hint)
        ]
    return groups, parameters


def _for_typer(hint: Any) -> Any:
    """Return `hint` with its `Option` or `Argument` converted for Typer."""
    if get_origin(hint) is not Annotated:
        return hint
    plain, *notes = get_args(hint)
    (found, *_) = [*(_typer_parameter(n) for n in notes if isinstance(n, Option | Argument)), None]
    return hint if found is None else Annotated[plain, found]


def _typer_parameter(spec: Option | Argument) -> Any:
    if isinstance(spec, Argument):
        return typer.Argument(metavar=spec.metavar, help=spec.help, show_default=spec.shows_default)
    return typer.Option(
        spec.flag,
        metavar=spec.metavar,
        min=spec.minimum,
        envvar=spec.envvar,
        help=spec.help,
        rich_help_panel=spec.panel,
        show_default=spec.shows_default,
    )


__all__ = [
    "COMMON_PANEL", "MACHINE_PANEL", "Common", "MachineOptions", "Service", "command",
]  # fmt: skip
