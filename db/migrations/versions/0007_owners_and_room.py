"""Who asked for a preparation, who withdrew from a job, and which blobs a build asked for."""

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
"""Until now a blob that nothing pointed to was made for a build: lock files may name it."""


def upgrade() -> None:
    op.add_column("preparation", sa.Column("asked_by", sa.String(length=64), nullable=True))
    op.add_column("preparation", sa.Column("turn", sa.BigInteger(), nullable=True))
    op.create_index("ix_preparation_asked_by", "preparation", ["asked_by", "turn"])
    op.add_column("job_owner", sa.Column("withdrawn_at", sa.String(length=27), nullable=True))
    op.add_column("blob", sa.Column("built_at", sa.String(length=27), nullable=True))
    op.execute(UNREFERENCED)
