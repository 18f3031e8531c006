"""Groups of options that several commands have. A command takes a group as one argument.

The groups are described without Typer, whose import takes longer than a fast command.
`tilewright.service.cli.options` converts them for Typer; `tilewright.service.cli.fast_path` parses
them directly. The group for a workload is `tilewright.service.resolve.spelling.WorkloadSpelling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilewright.service.argument_specs import Option
from tilewright.service.cli.output import Output

MACHINE_PANEL = "Machine"
COMMON_PANEL = "General"


@dataclass(frozen=True, slots=True)
class Common:
    """Options of every command."""

    json: Annotated[
        bool,
        Option(
            "--json",
            help="Print only one JSON document.",
            panel=COMMON_PANEL,
        ),
    ] = False
    db: Annotated[
        str | None,
        Option(
            "--db",
            metavar="URL",
            help="Database: a URL or a file. Default: TILEWRIGHT_DB, or the user's data folder.",
            panel=COMMON_PANEL,
        ),
    ] = None

    def output(self) -> Output:
        return Output(as_json=self.json)


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Options for the machine and the measurement."""

    target: Annotated[
        str,
        Option(
            "--target",
            metavar="native|FILE",
            help="The hardware for which a kernel is made; in a fleet also the name of a machine "
            "or the beginning of a key.",
            panel=MACHINE_PANEL,
        ),
    ] = "native"
    threads: Annotated[
        int | None,
        Option(
            "--threads",
            metavar="N",
            minimum=1,
            help="Threads that a kernel may use; by default 1 or the number in the target file.",
            panel=MACHINE_PANEL,
        ),
    ] = None
    seed: Annotated[
        int,
        Option(
            "--seed",
            metavar="N",
            minimum=0,
            help="Seed of all random choices.",
            panel=MACHINE_PANEL,
        ),
    ] = 0
    measurer: Annotated[
        str,
        Option(
            "--measurer",
            metavar="local|replay:FILE|simulated:FILE|dask:ADDRESS",
            help="The source of timings.",
            panel=MACHINE_PANEL,
        ),
    ] = "local"


@dataclass(frozen=True, slots=True)
class Service:
    """Options that select a service."""

    url: Annotated[
        str,
        Option(
            "--url",
            metavar="URL",
            envvar="TILEWRIGHT_URL",
            help="The service to use.",
            panel=COMMON_PANEL,
        ),
    ] = "http://127.0.0.1:8470"
    api_key: Annotated[
        str | None,
        Option(
            "--api-key",
            metavar="KEY",
            envvar="TILEWRIGHT_API_KEY",
            help="The key of the service; the environment is safer than the command line.",
            panel=COMMON_PANEL,
            shows_default=False,
        ),
    ] = None
