"""The structure of each workload, by which related workloads are found."""

import sqlalchemy as sa
from alembic import op

from tilewright.db.records.works import form_keys

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

WORKLOAD = sa.table("workload", sa.column("key"), sa.column("document"), sa.column("structure"))


def upgrade() -> None:
    op.add_column("workload", sa.Column("structure", sa.String(length=64), nullable=True))
    op.create_index("ix_workload_structure", "workload", ["structure"])
    connection = op.get_bind()
    for key, document in connection.execute(sa.select(WORKLOAD.c.key, WORKLOAD.c.document)).all():
        connection.execute(
            sa.update(WORKLOAD)
            .where(WORKLOAD.c.key == key)
            .values(structure=form_keys(document)["structure"])
        )
