"""The owner that requested a preparation, the owners that withdrew from a job, and the blobs that a
build requested."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UNREFERENCED = (
    "UPDATE blob SET built_at = created_at"
    " WHERE NOT EXISTS (SELECT 1 FROM artefact WHERE artefact.sha256 = blob.sha256)"
    " AND NOT EXISTS (SELECT 1 FROM prepared_file WHERE prepared_file.sha256 = blob.sha256)"
)
"""Blobs without a reference were stored for builds before this revision: lock files may name
them."""


def upgrade() -> None:
    op.add_column("preparation", sa.Column("asked_by", sa.String(length=64), nullable=True))
    op.add_column("preparation", sa.Column("turn", sa.BigInteger(), nullable=True))
    op.create_index("ix_preparation_asked_by", "preparation", ["asked_by", "turn"])
    op.add_column("job_owner", sa.Column("withdrawn_at", sa.String(length=27), nullable=True))
    op.add_column("blob", sa.Column("built_at", sa.String(length=27), nullable=True))
    op.execute(UNREFERENCED)
