"""Alembic's entry point: runs the migrations inside the transaction that `core/upgrade.py` has
begun."""

from alembic import context

from tilewright.db.core.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
