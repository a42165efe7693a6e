"""Runs migrations in the transaction that `Database.migrate` starts and commits."""

from alembic import context

from service.database.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
