"""`serve`: API and workers on one machine, one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Common, command


def add_commands(app: typer.Typer) -> None:
    """Register this group's commands."""

    @command(app, "serve")
    def serve(
        *,
        host: Annotated[
            str,
            typer.Option(
                "--host", metavar="ADDRESS", envvar="TILEWRIGHT_HOST", help="Address to listen on."
            ),
        ] = "127.0.0.1",
        port: Annotated[
            int,
            typer.Option(
                "--port",
                metavar="N",
                min=0,
                max=65535,
                envvar="TILEWRIGHT_PORT",
                help="0 takes a free one.",
            ),
        ] = 8470,
        measurer_folder: Annotated[
            Path | None,
            typer.Option(
                "--measurer-folder",
                metavar="DIR",
                envvar="TILEWRIGHT_MEASURER_FOLDER",
                help="Jobs may use replay: and simulated: files below this folder.",
            ),
        ] = None,
        workers: Annotated[
            bool,
            typer.Option(
                "--workers/--no-workers",
                envvar="TILEWRIGHT_WORKERS",
                help="Run jobs, or only serve the API.",
            ),
        ] = True,
        allow_unauthenticated: Annotated[
            bool,
            typer.Option(
                "--allow-unauthenticated",
                envvar="TILEWRIGHT_ALLOW_UNAUTHENTICATED",
                help="Listen on an address others can reach although anybody may then submit.",
            ),
        ] = False,
        common: Common = Common(),  # noqa: B008  # a frozen value
    ) -> None:
        """Serve the API and run its jobs, until Ctrl-C or SIGTERM."""
        from service import database
        from service.cli.server import serve as run
        from service.settings import Settings

        database.database_url(common.db)
        settings = Settings(
            host=host,
            port=port,
            measurer_folder=measurer_folder,
            workers=workers,
            allow_unauthenticated=allow_unauthenticated,
            db=common.db or "",
            json_log=common.json or Settings().json_log,
        )
        raise typer.Exit(run(settings, common.output()))
