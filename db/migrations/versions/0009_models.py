"""Learned models of each target."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "model",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("target_key", sa.String(length=80), nullable=False),
        sa.Column("timings", sa.String(length=130), nullable=False),
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("quality", sa.Text(), nullable=False),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["target_key"], ["target.key"], name="fk_model_target_key_target"),
        sa.PrimaryKeyConstraint("id", name="pk_model"),
        sa.UniqueConstraint("target_key", "timings", "key", name="uq_model_target_key_timings_key"),
        sqlite_autoincrement=True,
    )
