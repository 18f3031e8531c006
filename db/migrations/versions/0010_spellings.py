"""The form that all spellings of each workload have in common, by which they are found."""

import sqlalchemy as sa
from alembic import op

from tilewright.db.records.works import form_keys

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

WORKLOAD = sa.table("workload", sa.column("key"), sa.column("document"), sa.column("form"))


def upgrade() -> None:
    op.add_column("workload", sa.Column("form", sa.String(length=64), nullable=True))
    op.create_index("ix_workload_form", "workload", ["form"])
    connection = op.get_bind()
    for key, document in connection.execute(sa.select(WORKLOAD.c.key, WORKLOAD.c.document)).all():
        connection.execute(
            sa.update(WORKLOAD)
            .where(WORKLOAD.c.key == key)
            .values(form=form_keys(document)["form"])
        )
