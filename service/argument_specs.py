"""Options and arguments of commands, described without Typer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `minimum` is the smallest number that it accepts. `envvar` is the environment
    variable that is read if the option is not given. `panel` is its heading in the help text."""

    flag: str
    metavar: str | None = None
    minimum: int | None = None
    envvar: str | None = None
    help: str = ""
    panel: str | None = None
    shows_default: bool = True


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument."""

    metavar: str
    help: str = ""
    shows_default: bool = True
