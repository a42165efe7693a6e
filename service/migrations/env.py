"""Runs migrations on the connection that `Database.migrate` gives."""

from alembic import context

from service.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
connection.commit()
