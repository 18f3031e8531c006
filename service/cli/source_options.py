"""Options that select the source of kernels and records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from .options import COMMON_PANEL


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The service to use; without one, the local database is used."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            envvar="TILEWRIGHT_URL",
            help="The service to use; by default, the local database.",
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
            help="The key of the service; the environment is safer than the command line.",
            rich_help_panel=COMMON_PANEL,
            show_default=False,
        ),
    ] = None
