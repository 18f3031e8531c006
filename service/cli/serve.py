"""The command `serve`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.service import database
from tilewright.service.cli.options import Common, command
from tilewright.service.monitoring import monitoring_dir

FLEET_ADDRESS = "tcp://127.0.0.1:8786"
"""Default address of a fleet's scheduler, on Dask's default port."""


def add_commands(app: typer.Typer) -> None:
    @command(app, "monitoring-dir")
    def monitoring(common: Common = Common()) -> None:  # noqa: B008  # a frozen value
        """Print the folder of grafana.json and alerts.yml: a dashboard and alert rules."""
        folder = str(monitoring_dir())
        common.output().text({"monitoring_dir": folder}, folder)

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
                help="Port; 0 selects a free port.",
            ),
        ] = 8470,
        measurer_folder: Annotated[
            Path | None,
            typer.Option(
                "--measurer-folder",
                metavar="DIR",
                envvar="TILEWRIGHT_MEASURER_FOLDER",
                help="Jobs may use replay: and simulated: files in this folder.",
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
                help="Permit a public address without keys; anybody may then submit jobs.",
            ),
        ] = False,
        require_keys: Annotated[
            bool | None,
            typer.Option(
                "--require-keys/--no-require-keys",
                help="Whether requests need a key. By default they do on a public address, and on "
                "a local one after the first key was created.",
            ),
        ] = None,
        allow_host: Annotated[
            list[str] | None,
            typer.Option(
                "--allow-host", metavar="NAME", help="An additional host name, such as a proxy's."
            ),
        ] = None,
        allow_origin: Annotated[
            list[str] | None,
            typer.Option(
                "--allow-origin",
                metavar="ORIGIN",
                help="Pages of this origin may use the service, e.g. https://ci.example.org.",
            ),
        ] = None,
        trusted_proxy: Annotated[
            list[str] | None,
            typer.Option(
                "--trusted-proxy",
                metavar="ADDRESS",
                help="Address or network of a proxy whose X-Forwarded-* headers are used.",
            ),
        ] = None,
        fleet: Annotated[
            bool,
            typer.Option(
                "--fleet",
                help="Also start a fleet's scheduler. The machines that join it measure the jobs "
                "with the measurer `dask`.",
            ),
        ] = False,
        fleet_address: Annotated[
            str,
            typer.Option(
                "--fleet-address",
                metavar="ADDRESS",
                help=f"The scheduler's address; by default {FLEET_ADDRESS}. tls:// needs "
                "certificates.",
                show_default=False,
            ),
        ] = "",
        fleet_machine: Annotated[
            bool,
            typer.Option(
                "--fleet-machine/--no-fleet-machine", help="Whether this machine joins the fleet."
            ),
        ] = True,
        fleet_unprotected: Annotated[
            bool,
            typer.Option(
                "--fleet-unprotected",
                help="Permit a public scheduler without certificates. Anybody can then run code "
                "here and on every machine of the fleet.",
            ),
        ] = False,
        common: Common = Common(),  # noqa: B008  # a frozen value
    ) -> None:
        """Serve the API and run its jobs, until Ctrl-C or SIGTERM."""
        # Start-up: a command loads what it needs when it runs.
        from tilewright.service.cli.server import serve as run
        from tilewright.service.settings import Settings

        database.database_url(common.db)
        given: dict[str, Any] = {
            "require_keys": require_keys,
            "allow_host": tuple(allow_host or ()) or None,
            "allow_origin": tuple(allow_origin or ()) or None,
            "trusted_proxy": tuple(trusted_proxy or ()) or None,
            "json_log": True if common.json else None,
        }
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
            **{name: value for name, value in given.items() if value is not None},
        )
        raise typer.Exit(run(settings, common.output()))
