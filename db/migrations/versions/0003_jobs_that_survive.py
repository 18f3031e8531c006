"""Crash-safe jobs: every row of a job gets a hash and an epoch, leases use the database's clock,
and jobs have priorities. A new table lists the imported records that were verified here."""

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEY = sa.String(length=80)
MOMENT = sa.String(length=27)
HASH = sa.String(length=64)
JOB = sa.String(length=26)
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BATCH = 500

Row = dict[str, Any]

# Queries that read the old rows. The copies have no constraints, so that the new tables can reuse
# the names. Documents become text, and the first event of a job determines its arrival.
COPIES = {
    "job": (
        "SELECT id, state, CAST(request AS TEXT) AS request, flight_key,"
        " CAST(progress AS TEXT) AS progress, CAST(result AS TEXT) AS result,"
        " CAST(error AS TEXT) AS error, owner, epoch, created_at, started_at, finished_at,"
        " (SELECT min(e.id) FROM job_event e WHERE e.job_id = job.id) AS arrival FROM job"
    ),
    "job_request": "SELECT idempotency_key, body_sha256, job_id, created_at FROM job_request",
    "job_event": "SELECT id, job_id, kind, CAST(data AS TEXT) AS data, created_at FROM job_event",
    "job_trial": "SELECT job_id, trial, record_key FROM job_trial",
}


def upgrade() -> None:
    _create_confirmation()
    for table, query in COPIES.items():
        op.execute(f"CREATE TABLE old_{table} AS {query}")
    for table in reversed(COPIES):
        op.drop_table(table)
    _create_jobs()
    bind = op.get_bind()
    for table, converted in (
        ("job", _job),
        ("job_request", _job_request),
        ("job_event", _job_event),
        ("job_trial", _job_trial),
    ):
        old = bind.execute(
            sa.text(f"SELECT * FROM old_{table}"),  # noqa: S608  # our own names
            execution_options={"stream_results": True},
        )
        for rows in old.mappings().partitions(BATCH):
            made = [converted(dict(row)) for row in rows]
            bind.execute(sa.table(table, *map(sa.column, made[0])).insert(), made)
        op.drop_table(f"old_{table}")
    if bind.dialect.name == "postgresql":
        op.execute(
            "SELECT setval(pg_get_serial_sequence('job_event', 'id'), coalesce(max(id), 1),"
            " max(id) IS NOT NULL) FROM job_event"
        )


def downgrade() -> None:
    raise NotImplementedError("restore the backup made before the upgrade")


def _create_confirmation() -> None:
    op.create_table(
        "confirmation",
        sa.Column("claim_key", KEY, nullable=False),
        sa.Column("record_key", KEY, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["claim_key"], ["record.key"], name=op.f("fk_confirmation_claim_key_record")
        ),
        sa.ForeignKeyConstraint(
            ["record_key"], ["record.key"], name=op.f("fk_confirmation_record_key_record")
        ),
        sa.PrimaryKeyConstraint("claim_key", name=op.f("pk_confirmation")),
    )


def _create_jobs() -> None:
    op.create_table(
        "job",
        sa.Column("id", JOB, nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("arrival", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("flight_key", KEY, nullable=True),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("lease_secs", sa.Double(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("started_at", MOMENT, nullable=True),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.Column("row_sha256", HASH, nullable=False),
        sa.CheckConstraint(
            "state IN ('QUEUED','RUNNING','CANCELLING','SUCCEEDED','FAILED','CANCELLED')",
            name=op.f("ck_job_state"),
        ),
        sa.CheckConstraint("(owner IS NULL) = (lease_until IS NULL)", name=op.f("ck_job_lease")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("flight_key", name=op.f("uq_job_flight_key")),
    )
    op.create_index("ix_job_state", "job", ["state", "id"], unique=False)
    op.create_index("ix_job_waiting", "job", ["state", "priority", "arrival"], unique=False)
    op.create_table(
        "job_request",
        sa.Column("idempotency_key", sa.String(length=255), nullable=False),
        sa.Column("body_sha256", KEY, nullable=False),
        sa.Column("job_id", JOB, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("row_sha256", HASH, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_request_job_id_job")),
        sa.PrimaryKeyConstraint("idempotency_key", name=op.f("pk_job_request")),
    )
    op.create_table(
        "job_event",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", JOB, nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("row_sha256", HASH, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_event_job_id_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_job_event_job", "job_event", ["job_id", "id"], unique=False)
    op.create_table(
        "job_trial",
        sa.Column("job_id", JOB, nullable=False),
        sa.Column("trial", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("record_key", KEY, nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("row_sha256", HASH, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_trial_job_id_job")),
        sa.ForeignKeyConstraint(
            ["record_key"], ["record.key"], name=op.f("fk_job_trial_record_key_record")
        ),
        sa.PrimaryKeyConstraint("job_id", "trial", name=op.f("pk_job_trial")),
    )


def _job(old: Row) -> Row:
    """Return the new row of a job. A lease of the former version is stored as expired."""
    row: Row = {
        "id": old["id"],
        "state": old["state"],
        "priority": 0,
        "arrival": old["arrival"] or 0,
        "request": old["request"],
        "flight_key": old["flight_key"],
        "progress": old["progress"],
        "result": old["result"],
        "error": old["error"],
        "owner": old["owner"],
        "lease_until": None if old["owner"] is None else 0.0,
        "lease_secs": None if old["owner"] is None else 0.0,
        "epoch": old["epoch"],
        "failures": 0,
        "created_at": old["created_at"],
        "started_at": old["started_at"],
        "finished_at": old["finished_at"],
    }
    return _hashed(row, [row["request"], row["progress"], row["result"], row["error"]])


def _job_request(old: Row) -> Row:
    return _hashed(dict(old), [])


def _job_event(old: Row) -> Row:
    row = {
        "job_id": old["job_id"],
        "epoch": 0,
        "kind": old["kind"],
        "data": old["data"],
        "created_at": old["created_at"],
    }
    return {"id": old["id"], **_hashed(row, [row["data"]])}


def _job_trial(old: Row) -> Row:
    return _hashed({**old, "epoch": 0}, [])


def _hashed(row: Row, documents: list[str | None]) -> Row:
    """Return the row with its hash. If a document is not valid JSON, the hash is empty, which marks
    the row as damaged."""
    try:
        for document in documents:
            if document is not None:
                json.loads(document)
        text = json.dumps(
            list(row.values()), separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return {**row, "row_sha256": hashlib.sha256(text.encode()).hexdigest()}
    except (TypeError, ValueError):
        return {**row, "row_sha256": ""}
