"""The strategies by name, for `--strategy` and the field of a job.

Each module of this package is a strategy. The module's name is the strategy's name, and `STRATEGY`
in the module is its class, so a new strategy needs only a new file.
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

# Start-up: programs that only choose a strategy by name need neither NumPy nor a model.


def _names() -> list[str]:
    """Return the names of the modules in this package."""
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in found if not name.startswith("_"))


class Strategy(StrEnum):
    """The names of strategies, the default first."""

    ANNEALING = "annealing"
    vars().update({name.upper(): name for name in _names() if name != "annealing"})


class StrategyError(TilewrightError):
    """There is no strategy of that name."""

    code = "bad_strategy"
    category = ErrorCategory.INVALID
    title = "Unknown strategy"
    advice = "See `tilewright tune --help`."


def make_strategy(name: str, space: ScheduleSpace, goal: SearchGoal) -> SearchStrategy:
    """Return the strategy called `name`. Raise StrategyError, with the choices, if there is
    none."""
    try:
        chosen = Strategy(name)
    except ValueError:
        choices = ", ".join(sorted(Strategy))
        raise StrategyError(f"strategy must be one of {choices}; got {name!r}") from None
    made: SearchStrategy = import_module(f"{__name__}.{chosen}").STRATEGY(space, goal)
    return made
