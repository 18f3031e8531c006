"""The first tables: workloads, targets, records and bests; blobs; and jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A migration never changes: it repeats the models of its time instead of importing them.
KEY = sa.String(length=80)
MOMENT = sa.String(length=27)
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "best_move",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("workload_key", KEY, nullable=False),
        sa.Column("target_key", KEY, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("from_record_key", KEY, nullable=True),
        sa.Column("to_record_key", KEY, nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("moved_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_best_move")),
        sa.UniqueConstraint(
            "workload_key",
            "target_key",
            "version",
            name=op.f("uq_best_move_workload_key_target_key_version"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "blob",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("media_type", sa.String(length=100), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.CheckConstraint("length(data) <= 4194304", name=op.f("ck_blob_size")),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blob")),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("flight_key", KEY, nullable=True),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("lease_until", MOMENT, nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("takeovers", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("started_at", MOMENT, nullable=True),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.CheckConstraint(
            "state IN ('QUEUED','RUNNING','CANCELLING','SUCCEEDED','FAILED','CANCELLED')",
            name=op.f("ck_job_state"),
        ),
        sa.CheckConstraint("(owner IS NULL) = (lease_until IS NULL)", name=op.f("ck_job_lease")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("flight_key", name=op.f("uq_job_flight_key")),
    )
    op.create_index("ix_job_state", "job", ["state", "id"], unique=False)
    op.create_table(
        "target",
        sa.Column("key", KEY, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_target")),
    )
    op.create_table(
        "workload",
        sa.Column("key", KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("flops", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_workload")),
    )
    op.create_table(
        "job_event",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_event_job_id_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_job_event_job", "job_event", ["job_id", "id"], unique=False)
    op.create_table(
        "job_request",
        sa.Column("idempotency_key", sa.String(length=255), nullable=False),
        sa.Column("body_sha256", KEY, nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_request_job_id_job")),
        sa.PrimaryKeyConstraint("idempotency_key", name=op.f("pk_job_request")),
    )
    op.create_table(
        "record",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("workload_key", KEY, nullable=False),
        sa.Column("target_key", KEY, nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("estimate_secs", sa.Double(), nullable=True),
        sa.Column("codegen_version", sa.Integer(), nullable=False),
        sa.Column("llvmlite", sa.String(length=64), nullable=False),
        sa.Column("llvm", sa.String(length=64), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("strategy", sa.String(length=32), nullable=True),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("verified_level", sa.String(length=16), nullable=False),
        sa.Column("object_sha256", KEY, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.CheckConstraint(
            "(status = 'ok' AND estimate_secs IS NOT NULL"
            " AND estimate_secs > 0 AND estimate_secs < 1000000)"
            " OR (status <> 'ok' AND estimate_secs IS NULL)",
            name=op.f("ck_record_estimate"),
        ),
        sa.CheckConstraint("threads >= 1 AND trial >= 0", name=op.f("ck_record_counts")),
        sa.ForeignKeyConstraint(
            ["target_key"], ["target.key"], name=op.f("fk_record_target_key_target")
        ),
        sa.ForeignKeyConstraint(
            ["workload_key"], ["workload.key"], name=op.f("fk_record_workload_key_workload")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_record")),
        sa.UniqueConstraint("key", name=op.f("uq_record_key")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_record_fastest",
        "record",
        ["workload_key", "target_key", "verified_level", "estimate_secs"],
        unique=False,
    )
    op.create_index("ix_record_work", "record", ["workload_key", "target_key", "id"], unique=False)
    op.create_table(
        "best",
        sa.Column("workload_key", KEY, nullable=False),
        sa.Column("target_key", KEY, nullable=False),
        sa.Column("record_key", KEY, nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("moved_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["record_key"], ["record.key"], name=op.f("fk_best_record_key_record")
        ),
        sa.ForeignKeyConstraint(
            ["target_key"], ["target.key"], name=op.f("fk_best_target_key_target")
        ),
        sa.ForeignKeyConstraint(
            ["workload_key"], ["workload.key"], name=op.f("fk_best_workload_key_workload")
        ),
        sa.PrimaryKeyConstraint("workload_key", "target_key", name=op.f("pk_best")),
    )
    op.create_table(
        "job_trial",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("trial", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("record_key", KEY, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_trial_job_id_job")),
        sa.ForeignKeyConstraint(
            ["record_key"], ["record.key"], name=op.f("fk_job_trial_record_key_record")
        ),
        sa.PrimaryKeyConstraint("job_id", "trial", name=op.f("pk_job_trial")),
    )
    op.create_table(
        "withdrawn",
        sa.Column("record_key", KEY, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["record_key"], ["record.key"], name=op.f("fk_withdrawn_record_key_record")
        ),
        sa.PrimaryKeyConstraint("record_key", name=op.f("pk_withdrawn")),
    )


def downgrade() -> None:
    raise NotImplementedError("restore the backup made before the upgrade")
