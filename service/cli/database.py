"""`export`, `import` and `db ...`: transfer of records, and maintenance of the database."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewright.db.values.whole import RecordState, Selection
from tilewright.service import database
from tilewright.service.access.keys import duration_of
from tilewright.service.cli.options import Common, command
from tilewright.service.cli.output import flushed_stdout
from tilewright.service.cli.source_options import SourceOptions
from tilewright.service.errors import ExitCode, UsageProblem
from tilewright.service.resolve.spelling import WorkloadSpelling
from tilewright.service.resolve.targets import read_target
from tilewright.service.resolve.workloads import read_workload

# Start-up: a command loads what it needs when it runs.


class State(StrEnum):
    """Values of `export --state`. A copy of `tilewright.db.whole.transfer.RecordState`, whose
    import takes long."""

    BEST = "best"
    VERIFIED = "verified"
    OK = "ok"
    FAILED = "failed"
    IMPORTED = "imported"
    WITHDRAWN = "withdrawn"


def add_commands(app: typer.Typer) -> None:
    @command(app, "export")
    def export(
        file: Annotated[
            Path | None,
            typer.Argument(metavar="[FILE]", help="Output file; by default, or with -, stdout."),
        ] = None,
        *,
        bundle: Annotated[
            Path | None,
            typer.Option(
                "--bundle",
                metavar="LOCKFILE",
                help="Instead write an archive of the files of this lock file, for builds.",
                show_default=False,
            ),
        ] = None,
        workload: Annotated[
            str | None,
            typer.Option("--workload", metavar="WORKLOAD|KEY", help="Records of this workload."),
        ] = None,
        target: Annotated[
            str | None,
            typer.Option("--target", metavar="native|FILE|KEY", help="Records of this target."),
        ] = None,
        threads: Annotated[
            int | None, typer.Option("--threads", min=1, help="Threads of --target.")
        ] = None,
        state: Annotated[
            State | None, typer.Option("--state", help="Records in this state.")
        ] = None,
        where: SourceOptions = SourceOptions(),  # noqa: B008  # a frozen value
        common: Common = Common(),  # noqa: B008  # a frozen value
    ) -> None:
        """Write all records, or a selection, with their workloads and targets, as JSON lines.

        With --json, FILE is required, because standard output has a summary.

        With --bundle, write an archive for `fetch --offline` and CMake. Its files come from a
        service (TILEWRIGHT_URL) or the local database.
        """
        from tilewright.service.cli.render import facts

        if bundle is not None:
            from .locking import export_bundle

            export_bundle(bundle, file, where, common)
            return
        chosen = Selection(
            workload_key=None if workload is None else _workload_key(workload),
            target_key=None if target is None else _target_key(target, threads),
            state=None if state is None else RecordState(state.value),
        )
        to_stdout = file is None or str(file) == "-"
        if to_stdout and common.json:
            raise UsageProblem("export --json needs a FILE: standard output has the summary")
        with database.session(common.db) as store, flushed_stdout() if to_stdout else nullcontext():
            counts = database.export_to(store, None if to_stdout else file, chosen)
        if to_stdout:
            sys.stderr.write(f"{_counts(counts)}\n")
            return
        document = {"file": str(file), **counts}
        common.output().result(document, facts([("exported", _counts(counts)), ("to", str(file))]))

    @command(app, "import")
    def import_(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="The output of `export`, or -.")],
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Import records. They must be verified before they can become best.

        Existing records do not change. FILE may be a bundle; its objects are then stored as well.

        The exit code is 1 if lines were refused; the other lines are imported.
        """
        from tilewright.service.build.bundle import import_bundle, is_bundle
        from tilewright.service.cli.render import facts

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
            common.output().remark("tilewright: some lines were refused; the others are stored")
            raise typer.Exit(ExitCode.FAILED)

    group = typer.Typer(help="Upgrade, check, copy and move the database.")
    app.add_typer(group, name="db")

    @command(group, "upgrade")
    def upgrade(common: Common = Common()) -> None:  # noqa: B008
        """Upgrade the database to this version's schema."""
        from tilewright.service.cli.render import facts

        document = database.upgrade(common.db)
        rows = [(name, str(value)) for name, value in document.items()]
        common.output().result(document, facts(rows))

    @command(group, "check")
    def check(common: Common = Common()) -> None:  # noqa: B008
        """Check the hash of every row and the record of every pointer.

        The exit code is 4 if something is wrong.
        """
        from tilewright.service.cli.render import facts

        document = database.check(common.db)
        rows = [
            (name, str(value)) for name, value in document.items() if not isinstance(value, list)
        ]
        rows += [("finding", str(finding)) for finding in document["findings"]]
        common.output().result(document, facts(rows))
        if document["findings"]:
            raise typer.Exit(ExitCode.DATABASE)

    @command(group, "backup")
    def backup(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Copy a consistent snapshot of the database, while other processes use it.

        FILE becomes a SQLite database, also if the original is on a server. Use it directly, or
        copy it to a server with `tilewright db move URL --db FILE`.
        """
        from tilewright.service.cli.render import facts

        document = database.backup(common.db, file)
        common.output().result(document, facts([(n, str(v)) for n, v in document.items()]))

    @command(group, "prune")
    def prune(
        *,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
        ] = False,
        built: Annotated[
            bool,
            typer.Option(
                "--built",
                help="Also delete files that were made for builds. Lock files may need them.",
            ),
        ] = False,
        older_than: Annotated[
            str, typer.Option("--older-than", metavar="LENGTH", help="Keep younger data.")
        ] = "1d",
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Delete unreferenced data: workloads and targets without records, and prepared answers for
        workloads that were never tuned, with their files. Answers are prepared again on demand."""
        from tilewright.service.cli.render import facts

        document = database.prune(
            common.db, dry_run=dry_run, built=built, older_than=duration_of(older_than)
        )
        common.output().result(document, facts([(n, str(v)) for n, v in document.items()]))

    @command(group, "stats")
    def stats(common: Common = Common()) -> None:  # noqa: B008
        """Print the amount of stored data, by table, kind and owner."""
        from tilewright.service.cli.render import database_stats

        document = database.stats(common.db)
        common.output().result(document, database_stats(document))

    @command(group, "upgraded")
    def upgraded(common: Common = Common()) -> None:  # noqa: B008
        """List what became more than 5 % slower with a newer version of Tilewright or LLVM.

        Compares the full checks of the same schedule before and after. `tilewright verify --all`
        makes the ones after.
        """
        from tilewright.service.cli.render import upgraded_table

        document = database.upgraded(common.db)
        common.output().result(document, lambda: upgraded_table(document))

    @command(group, "move")
    def move(
        url: Annotated[
            str, typer.Argument(metavar="URL", help="An empty database: postgresql://..., or FILE.")
        ],
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Copy everything into another database, in one transaction, and compare the two.

        This database is not changed. Select the other one with --db or TILEWRIGHT_DB afterwards.
        """
        from tilewright.service.cli.render import facts

        document = database.move(common.db, url)
        rows = [(name, str(document[name])) for name in ("from", "to")]
        rows += [(name, str(count)) for name, count in document["rows"].items()]
        common.output().result(document, facts(rows))


def _workload_key(text: str) -> str:
    """Return the key of a workload, which is given as its key or in any notation."""
    return _key(text) or read_workload(WorkloadSpelling(workload=text)).key


def _target_key(text: str, threads: int | None) -> str:
    """Return the key of a target, which is given as its key, as `native` or as a file."""
    return _key(text) or read_target(text, threads, probe=False).key


def _key(text: str) -> str | None:
    """Return the 64 digits of a key, or None if `text` is not a key."""
    digits = text.removeprefix("sha256:")
    return digits if re.fullmatch("[0-9a-f]{64}", digits) else None


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())
