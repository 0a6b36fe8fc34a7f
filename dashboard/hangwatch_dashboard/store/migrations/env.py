"""Run by alembic: applies the migrations through the connection that `store.engine.migrate` holds."""

from __future__ import annotations

from alembic import context

from hangwatch_dashboard.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
