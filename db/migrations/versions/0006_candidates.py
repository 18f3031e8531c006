"""The candidate that the search proposed at each trial of a job, for a worker that resumes the
job."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_trial", sa.Column("candidate", sa.Text(), nullable=True))
