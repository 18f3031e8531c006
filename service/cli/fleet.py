"""`worker` and `fleet`: join a fleet of machines that measure, and list its machines."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.service.cli.options import Common, command

# Start-up: a command loads what it needs when it runs.


def add_commands(app: typer.Typer) -> None:
    @command(app, "worker")
    def worker(
        *,
        join: Annotated[
            str,
            typer.Option(
                "--join",
                metavar="ADDRESS",
                help="The fleet's scheduler: tcp://HOST:PORT or tls://HOST:PORT.",
            ),
        ],
        name: Annotated[
            str, typer.Option("--name", metavar="NAME", help="Its name; by default the host's.")
        ] = "",
        measurer: Annotated[
            str,
            typer.Option(
                "--measurer",
                metavar="local|replay:FILE|simulated:FILE",
                help="The source of timings; mocked timings are for tests.",
            ),
        ] = "local",
        target: Annotated[
            str,
            typer.Option(
                "--target",
                metavar="native|FILE",
                help="The hardware of the mocked timings.",
            ),
        ] = "native",
        common: Common = Common(),  # noqa: B008  # a frozen value
    ) -> None:
        """Let this machine measure for a fleet, one candidate at a time, until Ctrl-C or SIGTERM.

        Whoever controls the scheduler can run code on this machine.
        """
        from tilewright.service.fleet.worker import join as join_fleet

        on_wait = common.output().remark
        raise typer.Exit(
            join_fleet(join, measurer=measurer, target=target, name=name, on_wait=on_wait)
        )

    @command(app, "fleet")
    def fleet(
        address: Annotated[
            str, typer.Argument(metavar="ADDRESS", help="The scheduler, e.g. tcp://HOST:8786.")
        ],
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """List the machines of a fleet, with their hardware and current activity."""
        from tilewright.service.cli.render import fleet_table
        from tilewright.tuner.measure.fleet.machines import fleet_status

        machines = [machine.to_json() for machine in fleet_status(address)]
        common.output().result({"machines": machines}, fleet_table(machines))
