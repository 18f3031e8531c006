"""Strategies by name: what `--strategy` and the field of a job choose from."""

from __future__ import annotations

from collections.abc import Callable

from schedules.errors import TilewrightError
from schedules.space import ScheduleSpace

from .annealing import AnnealingStrategy
from .base import SearchGoal, SearchStrategy
from .evolution import EvolutionStrategy
from .grid import GridStrategy
from .random_search import RandomStrategy

STRATEGIES: dict[str, Callable[[ScheduleSpace, SearchGoal], SearchStrategy]] = {
    "annealing": AnnealingStrategy,
    "evolution": EvolutionStrategy,
    "random": RandomStrategy,
    "grid": GridStrategy,
}


class StrategyError(TilewrightError):
    """There is no strategy of that name."""


def make_strategy(name: str, space: ScheduleSpace, goal: SearchGoal) -> SearchStrategy:
    """The strategy called `name`; StrategyError names the choices."""
    try:
        made = STRATEGIES[name]
    except KeyError:
        choices = ", ".join(sorted(STRATEGIES))
        raise StrategyError(f"strategy must be one of {choices}; got {name!r}") from None
    return made(space, goal)
