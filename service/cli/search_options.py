"""Options of commands that search, described without Typer, as in `option_groups`."""

from __future__ import annotations

from typing import Annotated

from tilewright.service.argument_specs import Option
from tilewright.tuner.search.strategies import Strategy

SecondsOption = Annotated[
    float | None,
    Option("--seconds", metavar="S", minimum=0, help="Limit on the wall time of the run."),
]
StrategyOption = Annotated[Strategy, Option("--strategy", help="The search strategy.")]
