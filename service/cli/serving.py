"""`serve`: API and workers on one machine, one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Common, command

FLEET_ADDRESS = "tcp://127.0.0.1:8786"
"""Where a fleet's scheduler listens unless told otherwise: on Dask's usual port."""


def add_commands(app: typer.Typer) -> None:
    """Register this group's commands."""

    @command(app, "serve")
    def serve(
        *,
        host: Annotated[
            str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
        ] = "127.0.0.1",
        port: Annotated[
            int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one.")
        ] = 8470,
        measurer_folder: Annotated[
            Path | None,
            typer.Option(
                "--measurer-folder",
                metavar="DIR",
                help="Jobs may use replay: and simulated: files below this folder.",
            ),
        ] = None,
        workers: Annotated[
            bool, typer.Option("--workers/--no-workers", help="Run jobs, or only serve the API.")
        ] = True,
        allow_unauthenticated: Annotated[
            bool,
            typer.Option(
                "--allow-unauthenticated",
                help="Listen on an address others can reach although anybody may then submit.",
            ),
        ] = False,
        fleet: Annotated[
            bool,
            typer.Option(
                "--fleet",
                help="Start a fleet's scheduler as well: jobs with the measurer `dask` are "
                "measured by the machines that join it.",
            ),
        ] = False,
        fleet_address: Annotated[
            str,
            typer.Option(
                "--fleet-address",
                metavar="ADDRESS",
                help=f"Where it listens, if not at {FLEET_ADDRESS}; tls:// needs certificates.",
                show_default=False,
            ),
        ] = "",
        fleet_machine: Annotated[
            bool,
            typer.Option(
                "--fleet-machine/--no-fleet-machine", help="Whether this machine joins it."
            ),
        ] = True,
        fleet_unprotected: Annotated[
            bool,
            typer.Option(
                "--fleet-unprotected",
                help="Let the scheduler listen without certificates on an address others can "
                "reach: they may then run code here and on every machine of the fleet.",
            ),
        ] = False,
        common: Common = Common(),  # noqa: B008  # a frozen value
    ) -> None:
        """Serve the API and run its jobs, until Ctrl-C or SIGTERM."""
        from service.cli.server import serve as run
        from service.settings import Settings

        settings = Settings(
            host=host,
            port=port,
            measurer_folder=measurer_folder,
            workers=workers,
            allow_unauthenticated=allow_unauthenticated,
            fleet=fleet_address or (FLEET_ADDRESS if fleet else ""),
            fleet_machine=fleet_machine,
            fleet_unprotected=fleet_unprotected,
            db=common.db or "",
            json_log=common.json,
        )
        raise typer.Exit(run(settings, common.output()))
