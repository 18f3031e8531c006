"""API keys, and the owners of jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

MOMENT = sa.String(length=27)


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("note", sa.String(length=200), nullable=False),
        sa.Column("scopes", sa.String(length=100), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
    )
    op.create_table(
        "job_owner",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_owner_job_id_job")),
        sa.PrimaryKeyConstraint("job_id", "owner", name=op.f("pk_job_owner")),
    )
    op.create_index("ix_job_owner_owner", "job_owner", ["owner", "job_id"], unique=False)


def downgrade() -> None:
    raise NotImplementedError("restore the backup made before the upgrade")
