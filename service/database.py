"""Operations of commands on the database: open, check, upgrade, export, import."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.db import HEAD
from tilewright.db.errors import StoreMissing
from tilewright.db.values.moments import rfc3339
from tilewright.service.errors import UsageProblem

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.db.values.whole import Selection
    from tilewright.schedules.record import TuningRecord

DAY = timedelta(days=1)

# Start-up: `db` loads SQLAlchemy; usage errors are reported first.


def database_url(flag: str | None) -> str | None:
    """Return `--db`, or `TILEWRIGHT_DB`, or None for the user's default database. Raise
    UsageProblem for an empty `--db`: an empty variable in a script must not select the default
    database."""
    if flag is not None and not flag.strip():
        raise UsageProblem(
            "--db is empty",
            advice="Give sqlite:///FILE or a path, or omit --db for your default database.",
        )
    return flag or os.environ.get("TILEWRIGHT_DB") or None


@contextmanager
def session(flag: str | None) -> Iterator[Store]:
    """Yield an open store. It is closed at the end."""
    from tilewright.db import open_store

    with open_store(database_url(flag)) as store:
        yield store


@contextmanager
def open_existing(flag: str | None) -> Iterator[Store | None]:
    """Yield an open store, or None if the database does not exist. The store is closed at the
    end."""
    from tilewright.db import open_store

    try:
        store = open_store(database_url(flag), create=False)
    except StoreMissing:
        yield None
        return
    with store:
        yield store


def database_state(flag: str | None) -> str:
    """Return one line on the database; nothing is created or upgraded. Raise StoreError if the
    database cannot be used."""
    from tilewright.db import default_url, name_of, open_store

    url = database_url(flag)
    try:
        with open_store(url, create=False, upgrade=False) as store:
            return f"{store.name}: {store.counts().records} records"
    except StoreMissing:
        return f"{name_of(url or default_url())}: does not exist; the first `tune` creates it"


def upgrade(flag: str | None) -> dict[str, Any]:
    """Upgrade the schema to this version, and return a summary."""
    with session(flag) as store:
        return {"database": store.name, "revision": HEAD, "records": store.counts().records}


def check(flag: str | None) -> dict[str, Any]:
    """Return every inconsistency of the database. Raise StoreError if it cannot be opened."""
    from tilewright.db import open_store

    with open_store(database_url(flag), create=False, upgrade=False) as store:
        findings = [f"{p.kind} {p.subject}: {p.detail}" for p in store.check()]
        counts = store.counts()
        return {
            "database": store.name,
            "ok": not findings,
            "records": counts.records,
            "blobs": counts.blobs,
            "findings": findings,
        }


def backup(flag: str | None, file: Path) -> dict[str, Any]:
    """Copy a consistent snapshot of the database to `file`."""
    from tilewright.db import open_store

    with open_store(database_url(flag), create=False, upgrade=False) as store:
        store.backup(file)
        return {"database": store.name, "file": str(file), "bytes": file.stat().st_size}


def prune(
    flag: str | None, *, dry_run: bool, built: bool = False, older_than: timedelta = DAY
) -> dict[str, Any]:
    """Delete unreferenced rows and files, and return their counts."""
    from tilewright.db import open_store

    with open_store(database_url(flag), create=False, upgrade=False) as store:
        found = store.prune(dry_run=dry_run, built=built, min_age_secs=older_than.total_seconds())
        return {"database": store.name, "dry_run": dry_run, **asdict(found)}


def stats(flag: str | None) -> dict[str, Any]:
    """Return the counts and sizes of stored rows, by kind and owner."""
    from tilewright.db import open_store

    with open_store(database_url(flag), create=False, upgrade=False) as store:
        found = asdict(store.stats())
        for table in found["tables"].values():
            table["oldest"] = None if table["oldest"] is None else rfc3339(table["oldest"])
        return {"database": store.name, **found}


def upgraded(flag: str | None) -> dict[str, Any]:
    """Return the tasks whose schedule became slower with a newer toolchain, slowest ratio first."""
    from tilewright.db import open_store

    with open_store(database_url(flag), create=False, upgrade=False) as store:
        slower = [
            {
                "workload": one.name or one.workload_key,
                "workload_key": one.workload_key,
                "target_key": one.target_key,
                "cpu": one.target.get("cpu"),
                "threads": one.threads,
                "slower_by": one.ratio,
                "before": _measured(one.before),
                "after": _measured(one.after),
                "best_run_secs": one.best_secs,
            }
            for one in store.slower_after_upgrade()
        ]
        return {"database": store.name, "slower": slower}


def _measured(record: TuningRecord) -> dict[str, Any]:
    return {
        "run_secs": record.result.run_secs_estimate,
        "record_key": record.key,
        "toolchain": asdict(record.toolchain),
    }


def move(flag: str | None, url: str) -> dict[str, Any]:
    """Copy everything into the empty database at `url`. Return the number of rows of each table."""
    from tilewright.db import open_store

    with open_store(database_url(flag), create=False) as store, open_store(url) as other:
        report = store.move_to(other)
        return {"from": store.name, "to": other.name, "rows": report.rows}


def export_to(store: Store, file: Path | None, selection: Selection) -> dict[str, int]:
    """Write the selected records as JSON lines to `file` (None: stdout). Return their number."""
    if file is None:
        return {"records": store.export(sys.stdout, selection)}
    temporary = file.with_name(f".{file.name}.part")
    try:
        with temporary.open("w", encoding="utf-8") as out:
            count = store.export(out, selection)
        temporary.replace(file)
    except OSError as error:
        raise UsageProblem(f"cannot write {file}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return {"records": count}


def import_from(store: Store, file: Path) -> dict[str, Any]:
    """Import an export. Return the counts and the refused lines."""
    if str(file) == "-":
        report = store.import_(sys.stdin)
    else:
        try:
            with file.open(encoding="utf-8", errors="surrogateescape") as lines:
                report = store.import_(lines)
        except OSError as error:
            raise UsageProblem(f"cannot read {file}: {error.strerror or error}") from error
    return {
        "added": report.added,
        "known": report.known,
        "bad": [{"line": bad.line, "reason": bad.reason} for bad in report.bad],
    }
