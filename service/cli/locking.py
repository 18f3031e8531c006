"""`lock`, `fetch`, `cmake-dir`: pin kernels for a build, and write their files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.service.atomic_files import folder_lock, write_atomically
from tilewright.service.build.lock_file import LockFile
from tilewright.service.build.locking import (
    NOTHING_NOW,
    LockUpdate,
    checked,
    locked,
    not_pinned,
    read_lock,
    write_lock,
)
from tilewright.service.build.output_files import cmake_dir as find
from tilewright.service.build.output_files import collected_files, write
from tilewright.service.build.source import Builder, LocalSource
from tilewright.service.cli.payloads import target_payload, workload_payload
from tilewright.service.cli.shared_options import CpusOption, LeastGrade, split_names
from tilewright.service.cli.source_options import SourceOptions
from tilewright.service.database import open_existing, session
from tilewright.service.errors import ExitCode, UsageProblem
from tilewright.service.resolve.spelling import WorkloadSpelling
from tilewright.service.units import byte_size, duration

from ..grade import Grade
from .options import MACHINE_PANEL, Common, command

# Start-up: a command loads what it needs when it runs.

LOCK_NAME = "tilewright.lock.json"

_LEVEL = re.compile(r"x86-64(-v[0-9])?")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)


def add_commands(app: typer.Typer) -> None:
    @command(app, "lock")
    def lock(
        kernels: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[NAME=]WORKLOAD...",
                help="NAME is the C function; by default it is named after the operator.",
                show_default=False,
            ),
        ] = None,
        *,
        file: Annotated[Path, typer.Option("--file", metavar="FILE", help="The lock file.")] = Path(
            LOCK_NAME
        ),
        check: Annotated[
            bool,
            typer.Option(
                "--check", help="Write nothing; the exit code is 3 if a pin would change."
            ),
        ] = False,
        only_locked: Annotated[
            bool,
            typer.Option(
                "--locked",
                help="Read only the file; the exit code is 3 if it lacks a WORKLOAD.",
            ),
        ] = False,
        upgrade: Annotated[
            bool, typer.Option("--upgrade", help="Move every pin to the current best.")
        ] = False,
        cpus: CpusOption = None,
        min_grade: LeastGrade = None,
        target: Annotated[
            str,
            typer.Option(
                "--target",
                metavar="native|LEVEL|FILE",
                help="The hardware for which kernels are made.",
                rich_help_panel=MACHINE_PANEL,
            ),
        ] = "native",
        threads: Annotated[
            int | None,
            typer.Option(
                "--threads",
                metavar="N",
                min=1,
                help="Threads that a kernel may use.",
                rich_help_panel=MACHINE_PANEL,
            ),
        ] = None,
        where: SourceOptions = SourceOptions(),  # noqa: B008  # a frozen value
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Pin exact records and the bytes of their objects for a build.

        Locked kernels change only with --upgrade. Commit the file.
        """
        if check and (upgrade or kernels):
            raise UsageProblem("--check compares an unchanged lock file: no WORKLOAD, no --upgrade")
        if only_locked and (check or upgrade):
            raise UsageProblem("--locked reads only the file: no --check, no --upgrade")
        how = {
            "targets": target_list(cpus, target),
            "every_cpu": cpus is not None,
            "min_grade": str(min_grade or (Grade.SAME_CPU if cpus else Grade.EXACT)),
            **({} if threads is None else {"threads": threads}),
        }
        requests = [{**_kernel(text), **how} for text in kernels or []]
        _refuse_doubles([document["name"] for document in requests])
        if only_locked:
            return _report_pins(_read(file, needed=True), requests, file, common)
        if check:
            with _builder(where, common) as builder:
                found = checked(_read(file, needed=True), builder)
        else:
            with _only_writer(file, common):
                before = _read(file, needed=not kernels)
                with _builder(where, common) as builder:
                    found = locked(before, requests, builder, upgrade=upgrade)
                if found.lock != before:
                    _keep(builder, found, common)
                    write_lock(file, found.lock)
        document = {
            "file": str(file),
            "up_to_date": found.up_to_date,
            "kernels": [kernel.to_json() for kernel in found.lock.kernels],
            "changes": [change.to_json() for change in found.changes],
        }
        common.output().result(document, _table(found, file))
        if check and not found.up_to_date:
            for change in found.changes:
                if change.fields:
                    differs = ", ".join(change.fields)
                    common.output().remark(f"tilewright: {change.name} differs: {differs}")
            common.output().remark(_what_to_do(found, file))
            raise typer.Exit(ExitCode.NO_ANSWER)

    @command(app, "fetch")
    def fetch(
        lockfile: Annotated[
            Path, typer.Argument(metavar="LOCKFILE", help="The output of `lock`.")
        ] = Path(LOCK_NAME),
        *,
        folder: Annotated[
            Path, typer.Option("--output", "-o", metavar="DIR", help="The folder for the files.")
        ],
        kernels: Annotated[
            list[str] | None,
            typer.Option("--kernel", metavar="NAME", help="Only this kernel; may be repeated."),
        ] = None,
        offline: Annotated[
            Path | None,
            typer.Option(
                "--offline",
                metavar="BUNDLE",
                help="Read the files from a bundle, without network, database and compiler.",
                show_default=False,
            ),
        ] = None,
        where: SourceOptions = SourceOptions(),  # noqa: B008
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Write the objects and headers of a lock file, and a file for pkg-config.

        The files come from a bundle, else from a service (TILEWRIGHT_URL), else from the local
        database. Only files with the locked hashes are written.
        """
        from tilewright.service.build.bundle import Bundle
        from tilewright.service.cli.render import facts

        lock = read_lock(lockfile)
        if lock is None:
            raise UsageProblem(f"there is no lock file {lockfile}")
        if offline is not None:
            files = collected_files(lock, kernels or [], Bundle(offline))
        else:
            with _builder(where, common) as builder:
                files = collected_files(lock, kernels or [], builder)
        written = write(files, folder)
        rows = [(f["kind"], f"{f['path']}  {f['bytes']} bytes") for f in written]
        common.output().result({"lock": str(lockfile), "files": written}, facts(rows))

    @command(app, "cmake-dir")
    def cmake_dir(common: Common = Common()) -> None:  # noqa: B008
        """Print the folder of TilewrightConfig.cmake: -DTilewright_DIR=$(tilewright cmake-dir)."""
        common.output().text({"cmake_dir": str(find())}, str(find()))


def _read(file: Path, *, needed: bool) -> LockFile:
    """Return the lock file, or an empty one if it does not exist. If it is `needed`, raise
    UsageProblem instead."""
    found = read_lock(file)
    if found is None and needed:
        raise UsageProblem(
            f"there is no lock file {file}, and no WORKLOAD to lock",
            advice="tilewright lock gemm=matmul:M=512,N=512,K=512",
        )
    return found or LockFile()


@contextmanager
def _only_writer(file: Path, common: Common) -> Iterator[None]:
    """Hold a lock while the lock file is read and written, so that no concurrent command's pins are
    lost."""
    notice = f"tilewright: another command writes {file}; waiting for it"
    with ExitStack() as stack:
        try:
            folder = file.resolve().parent
            stack.enter_context(folder_lock(folder, lambda: common.output().remark(notice)))
        except OSError as error:
            raise UsageProblem(f"cannot write {file}: {error.strerror or error}") from error
        yield


def export_bundle(lockfile: Path, file: Path | None, where: SourceOptions, common: Common) -> None:
    """Run `export FILE --bundle LOCKFILE`. Raise UsageProblem if the lock file is invalid,
    NotTheBytes if a file is not available."""
    from tilewright.service.build.bundle import bundle_bytes
    from tilewright.service.cli.render import facts

    lock = read_lock(lockfile)
    if lock is None:
        raise UsageProblem(f"there is no lock file {lockfile}")
    if file is None or str(file) == "-":
        raise UsageProblem("export --bundle needs a FILE: an archive is not for a terminal")
    with _builder(where, common) as builder:
        data = bundle_bytes(lock, builder)
    try:
        write_atomically(file, data)
    except OSError as error:
        raise UsageProblem(f"cannot write {file}: {error.strerror or error}") from error
    document = {"file": str(file), "kernels": len(lock.kernels), "bytes": len(data)}
    rows = [("bundled", f"{len(lock.kernels)} kernels"), ("to", f"{file}  {byte_size(len(data))}")]
    common.output().result(document, facts(rows))


def target_list(cpus: str | None, target: str) -> list[str | dict[str, Any]]:
    """Return the targets of `--cpu LIST`, or of `--target`, for a request."""
    if cpus is None:
        return [_target(target)]
    return [_target(name) for name in split_names(cpus)]


def _target(name: str) -> str | dict[str, Any]:

    return name if _LEVEL.fullmatch(name) else target_payload(name)


def _kernel(text: str) -> dict[str, Any]:
    """Parse `[NAME=]WORKLOAD` as fields of a request."""
    found = _NAMED.fullmatch(text)
    name, spelled = (found[1], found[2]) if found else ("", text)
    workload = workload_payload(WorkloadSpelling(workload=spelled))
    return {"name": name or _default_name(workload), "workload": workload}


def _default_name(workload: str | dict[str, Any]) -> str:
    spelled = workload if isinstance(workload, str) else str(workload.get("name", ""))
    return re.sub(r"[^A-Za-z0-9_]+", "_", spelled.split(":")[0]).strip("_")[:50] or "kernel"


def _refuse_doubles(names: list[str]) -> None:

    for name in names:
        if names.count(name) > 1:
            raise UsageProblem(
                f"two kernels are called {name}",
                advice="Give names: tilewright lock small=matmul:... large=matmul:...",
            )


@contextmanager
def _builder(where: SourceOptions, common: Common) -> Iterator[Builder]:
    """Yield the named service, or the local database, which need not exist."""
    if where.url and not common.db:
        from tilewright.service.cli.service_source import ServiceSource
        from tilewright.service.client import Client

        with Client(where.url, where.api_key) as client:
            yield ServiceSource(client)
        return

    with open_existing(common.db) as store:
        yield LocalSource(store)


def _keep(builder: Builder, found: LockUpdate, common: Common) -> None:
    """Store locally built kernels, for `fetch`, bundles and a service on this database."""
    if isinstance(builder, LocalSource):
        with session(common.db) as store:
            for change in found.changes:
                builder.keep(store, change.kernel)


def _report_pins(
    lock: LockFile, requests: list[dict[str, Any]], file: Path, common: Common
) -> None:
    """Run `lock --locked`. Exit with NO_ANSWER if a build cannot use the file."""
    from tilewright.service.cli.render import facts

    problems = not_pinned(lock, requests)
    document = {
        "file": str(file),
        "locked": not problems,
        "kernels": [kernel.to_json() for kernel in lock.kernels],
        "problems": problems,
    }
    rows = [("locked", "no" if problems else "yes"), ("kernels", str(len(lock.kernels)))]
    common.output().result(document, facts(rows))
    if problems:
        for problem in problems:
            common.output().remark(f"tilewright: {problem}")
        common.output().remark(f"tilewright: `tilewright lock NAME=WORKLOAD` changes {file}")
        raise typer.Exit(ExitCode.NO_ANSWER)


def _what_to_do(found: LockUpdate, file: Path) -> str:

    if any(change.fields == NOTHING_NOW for change in found.changes):
        return (
            f"tilewright: some kernels of {file} are not stored here; check --db, or tune them, or"
            " verify imported records"
        )
    return (
        f"tilewright: {file} differs from the current best; `tilewright lock --upgrade` updates it"
    )


def _table(found: LockUpdate, file: Path) -> Any:
    from tilewright.service.cli.render import grid

    rows = []
    for change in found.changes:
        for number, variant in enumerate(change.kernel.variants):
            record = (variant.record_key or "").removeprefix("sha256:")[:12]
            rows.append([
                change.name if number == 0 else "",
                change.what if number == 0 else "",
                variant.cpu,
                variant.grade,
                record or "chosen without measurement",
                duration(variant.run_secs) if variant.run_secs is not None else "",
            ])  # fmt: skip
    return grid([str(file.name), "", "cpu", "grade", "record", "time"], rows)
