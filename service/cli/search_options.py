"""How a search is done: options that `tune` and `submit` share."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.tuner.search.strategies import Strategy

SecondsOption = Annotated[
    float | None,
    typer.Option("--seconds", metavar="S", min=0.0, help="Stop after this wall time."),
]
StrategyOption = Annotated[Strategy, typer.Option("--strategy", help="How candidates are chosen.")]
