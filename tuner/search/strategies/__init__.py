"""Strategies by name, for `--strategy` and the field of a job.

Each is the `STRATEGY` of a module of this package and has the module's name: one
more is one file more.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.schedules.errors import ErrorCategory, TilewrightError

if TYPE_CHECKING:
    from tilewright.schedules.space import ScheduleSpace

    from ..base import SearchGoal, SearchStrategy

# Start-up: programs that only choose one by name need no NumPy and no model.


def _names() -> list[str]:
    """The other modules of this package."""
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in found if not name.startswith("_"))


class Strategy(StrEnum):
    """The names, the usual one first."""

    ANNEALING = "annealing"
    vars().update({name.upper(): name for name in _names() if name != "annealing"})


class StrategyError(TilewrightError):
    """There is no strategy of that name."""

    code = "bad_strategy"
    category = ErrorCategory.INVALID
    title = "Unknown strategy"
    advice = "See `tilewright tune --help`."


def make_strategy(name: str, space: ScheduleSpace, goal: SearchGoal) -> SearchStrategy:
    """The strategy called `name`; StrategyError names the choices."""
    try:
        chosen = Strategy(name)
    except ValueError:
        choices = ", ".join(sorted(Strategy))
        raise StrategyError(f"strategy must be one of {choices}; got {name!r}") from None
    made: SearchStrategy = import_module(f"{__name__}.{chosen}").STRATEGY(space, goal)
    return made
