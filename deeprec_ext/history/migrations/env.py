"""What Alembic runs: always on the connection that `database` has opened, in its transaction."""

from alembic import context

from deeprec_ext.history.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
