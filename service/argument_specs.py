"""What the command line takes, described by values that need no library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """An option `flag`. `minimum` is the least number it takes, `envvar` where it is read from if
    it is not given, `panel` the heading it stands under in help."""

    flag: str
    metavar: str | None = None
    minimum: int | None = None
    envvar: str | None = None
    help: str = ""
    panel: str | None = None
    shows_default: bool = True


@dataclass(frozen=True, slots=True)
class Argument:
    """What stands alone, without a flag."""

    metavar: str
    help: str = ""
    shows_default: bool = True
