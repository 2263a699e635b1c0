"""Run by Alembic. The connection, already inside a transaction, comes from `tuning_db.schema`."""

from alembic import context

from tuning_db.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
