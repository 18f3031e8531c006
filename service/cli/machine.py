"""`doctor`, `ops`, `target`: the environment, the operators, the hardware."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.service.cli.options import Common, MachineOptions, command
from tilewright.service.doctor import examine
from tilewright.service.errors import ExitCode
from tilewright.service.resolve import targets

# Start-up: a command loads what it needs when it runs.


def add_commands(app: typer.Typer) -> None:
    @command(app, "doctor")
    def doctor(common: Common = Common()) -> None:  # noqa: B008  # a frozen value
        """Check this machine and installation: noise, OpenMP, versions, database.

        The exit code is 1 if Tilewright cannot work.
        """
        from tilewright.service.cli.render import findings_table

        findings = examine(common.db)
        failed = any(finding.status == "fail" for finding in findings)
        documents = [finding.to_json() for finding in findings]
        document = {"ok": not failed, "findings": documents}
        common.output().result(document, findings_table(documents))
        if failed:
            raise typer.Exit(ExitCode.FAILED)

    @command(app, "ops")
    def ops(
        name: Annotated[
            str | None, typer.Argument(metavar="[NAME]", help="Only this operator.")
        ] = None,
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """List the operators with their parameters and layouts."""
        from tilewright.service.cli.render import operators_table
        from tilewright.service.resolve import workloads

        operators = workloads.operator_documents(name)
        common.output().result({"operators": operators}, operators_table(operators))

    @command(app, "target")
    def target(
        fresh: Annotated[
            bool, typer.Option("--fresh", help="Detect and probe again; ignore the cache.")
        ] = False,
        machine: MachineOptions = MachineOptions(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Print the hardware description with its probes. With --json, the output is a file for
        --target."""
        from tilewright.service.cli.render import target_facts
        from tilewright.tuner.measure.measurer_spec import measured_target

        fleet = targets.fleet_of(machine.measurer)
        with common.output().busy("probing this machine ..."):
            if fleet:
                found = measured_target(machine.measurer, machine.target, machine.threads)
            else:
                found = targets.read_target(machine.target, machine.threads, fresh=fresh)
        document = {**found.to_json(), "key": found.key}
        common.output().result(document, target_facts(document))
