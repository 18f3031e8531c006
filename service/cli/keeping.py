"""`export`, `import`, `db upgrade`, `db check`: records in and out, migrations, consistency."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Common, command
from service.cli.output import writing
from service.cli.where import Where
from service.exit_codes import ExitCode


def add_commands(app: typer.Typer) -> None:
    """Register this group's commands."""

    @command(app, "export")
    def export(
        file: Annotated[
            Path | None,
            typer.Argument(metavar="[FILE]", help="Where to; standard output if left out or -."),
        ] = None,
        bundle: Annotated[
            Path | None,
            typer.Option(
                "--bundle",
                metavar="LOCKFILE",
                help="Instead: all that this lock file names, as one archive for builds.",
                show_default=False,
            ),
        ] = None,
        where: Where = Where(),  # noqa: B008  # a frozen value
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Write every record, workload and target as JSON lines.

        With --json the document on standard output tells what was written, so FILE is needed.
        With --bundle, an archive for `fetch --offline` and CMake, from a service (TILEWRIGHT_URL)
        or the database here.
        """
        from service import database
        from service.cli.render import facts
        from service.errors import UsageProblem

        if bundle is not None:
            from .locking import export_bundle

            export_bundle(bundle, file, where, common)
            return
        to_stdout = file is None or str(file) == "-"
        if to_stdout and common.json:
            raise UsageProblem("export --json needs a FILE: standard output holds the summary")
        with database.session(common.db) as store, writing() if to_stdout else nullcontext():
            counts = database.export_to(store, None if to_stdout else file)
        if to_stdout:
            sys.stderr.write(f"{_counts(counts)}\n")
            return
        document = {"file": str(file), **counts}
        common.output().result(document, facts([("exported", _counts(counts)), ("to", str(file))]))

    @command(app, "import")
    def import_(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote, or -.")],
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Read records in. What is there already is left alone; nothing becomes best unverified.
        FILE may be a bundle: its objects are kept too.

        Exit code 1 if lines were not taken; the others are.
        """
        from service import database
        from service.build.bundle import import_bundle, is_bundle
        from service.cli.render import facts

        with database.session(common.db) as store:
            if is_bundle(file):
                counts = import_bundle(store, file)
            else:
                counts = database.import_from(store, file)
        document = {"file": str(file), **counts}
        rows = [("imported", f"{counts['added']} new, {counts['known']} known already")]
        if "blobs" in counts:
            rows.append(("files", str(counts["blobs"])))
        rows += [(f"line {bad['line']}", str(bad["reason"])) for bad in counts["bad"]]
        common.output().result(document, facts(rows))
        if counts["bad"]:
            common.output().remark("tilewright: some lines were not taken; the others are stored")
            raise typer.Exit(ExitCode.FAILED)

    group = typer.Typer(help="Migrations and consistency of the database.")
    app.add_typer(group, name="db")

    @command(group, "upgrade")
    def upgrade(common: Common = Common()) -> None:  # noqa: B008
        """Bring the database to this version's schema."""
        from service import database
        from service.cli.render import facts

        document = database.upgrade(common.db)
        rows = [(name, str(value)) for name, value in document.items()]
        common.output().result(document, facts(rows))

    @command(group, "check")
    def check(common: Common = Common()) -> None:  # noqa: B008
        """Check every row against its hash and every pointer against its record.

        Exit code 4 if something is wrong.
        """
        from service import database
        from service.cli.render import facts

        document = database.check(common.db)
        rows = [
            (name, str(value)) for name, value in document.items() if not isinstance(value, list)
        ]
        rows += [("finding", str(finding)) for finding in document["findings"]]
        common.output().result(document, facts(rows))
        if document["findings"]:
            raise typer.Exit(ExitCode.DATABASE)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())
