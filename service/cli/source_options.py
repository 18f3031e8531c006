"""Options that select the source of kernels and records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from .options import COMMON_PANEL


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A service if one is named, else the local database."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            envvar="TILEWRIGHT_URL",
            help="A running service; left out, the database here.",
            rich_help_panel=COMMON_PANEL,
            show_default=False,
        ),
    ] = None
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
