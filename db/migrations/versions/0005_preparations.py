"""Preparations: answers for tasks that were not tuned."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

KEY = sa.String(length=80)


def upgrade() -> None:
    op.create_table(
        "preparation",
        sa.Column("key", KEY, nullable=False),
        sa.Column("workload_key", KEY, nullable=False),
        sa.Column("target_key", KEY, nullable=False),
        sa.Column("toolchain", KEY, nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=True),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.CheckConstraint(
            "state IN ('WANTED','CHOSEN','READY','FAILED')", name=op.f("ck_preparation_state")
        ),
        sa.CheckConstraint(
            "(owner IS NULL) = (lease_until IS NULL)", name=op.f("ck_preparation_lease")
        ),
        sa.ForeignKeyConstraint(
            ["workload_key"], ["workload.key"], name=op.f("fk_preparation_workload_key_workload")
        ),
        sa.ForeignKeyConstraint(
            ["target_key"], ["target.key"], name=op.f("fk_preparation_target_key_target")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_preparation_job_id_job")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_preparation")),
        sa.UniqueConstraint(
            "workload_key",
            "target_key",
            "toolchain",
            name=op.f("uq_preparation_workload_key_target_key_toolchain"),
        ),
    )
    op.create_index("ix_preparation_state", "preparation", ["state", "created_at"])
    op.create_table(
        "prepared_file",
        sa.Column("preparation_key", KEY, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.CheckConstraint("bytes >= 0", name=op.f("ck_prepared_file_bytes")),
        sa.ForeignKeyConstraint(
            ["preparation_key"],
            ["preparation.key"],
            name=op.f("fk_prepared_file_preparation_key_preparation"),
        ),
        sa.ForeignKeyConstraint(
            ["sha256"], ["blob.sha256"], name=op.f("fk_prepared_file_sha256_blob")
        ),
        sa.PrimaryKeyConstraint("preparation_key", "kind", name=op.f("pk_prepared_file")),
    )


def downgrade() -> None:
    raise NotImplementedError("restore the backup made before the upgrade")
