"""Strategies by name: what `--strategy` and the field of a job choose from. One more is a module of
its own, and a name and a case here."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from schedules.errors import TilewrightError

if TYPE_CHECKING:
    from schedules.space import ScheduleSpace

    from .base import SearchGoal, SearchStrategy

# Start-up: programs that only choose one by name need no NumPy and no model.


class Strategy(StrEnum):
    """The names, the usual one first."""

    ANNEALING = "annealing"
    EVOLUTION = "evolution"
    RANDOM = "random"
    GRID = "grid"


class StrategyError(TilewrightError):
    """There is no strategy of that name."""


def make_strategy(name: str, space: ScheduleSpace, goal: SearchGoal) -> SearchStrategy:
    """The strategy called `name`; StrategyError names the choices."""
    try:
        strategy = Strategy(name)
    except ValueError:
        choices = ", ".join(sorted(Strategy))
        raise StrategyError(f"strategy must be one of {choices}; got {name!r}") from None
    match strategy:
        case Strategy.ANNEALING:
            from .annealing import AnnealingStrategy

            return AnnealingStrategy(space, goal)
        case Strategy.EVOLUTION:
            from .evolution import EvolutionStrategy

            return EvolutionStrategy(space, goal)
        case Strategy.RANDOM:
            from .random_search import RandomStrategy

            return RandomStrategy(space, goal)
        case Strategy.GRID:
            from .grid import GridStrategy

            return GridStrategy(space, goal)
    assert_never(strategy)
