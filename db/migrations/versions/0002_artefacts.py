"""The table of artefacts: the files that a record was compiled into."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.String(length=80)


def upgrade() -> None:
    # For a while before 0.1.0, revision 0001 already had this table.
    if sa.inspect(op.get_bind()).has_table("artefact"):
        return
    op.create_table(
        "artefact",
        sa.Column("record_key", KEY, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("row_sha256", sa.String(length=64), nullable=False),
        sa.CheckConstraint("bytes >= 0", name=op.f("ck_artefact_bytes")),
        sa.ForeignKeyConstraint(
            ["record_key"], ["record.key"], name=op.f("fk_artefact_record_key_record")
        ),
        sa.ForeignKeyConstraint(["sha256"], ["blob.sha256"], name=op.f("fk_artefact_sha256_blob")),
        sa.PrimaryKeyConstraint("record_key", "kind", name=op.f("pk_artefact")),
    )


def downgrade() -> None:
    raise NotImplementedError("restore the backup made before the upgrade")
