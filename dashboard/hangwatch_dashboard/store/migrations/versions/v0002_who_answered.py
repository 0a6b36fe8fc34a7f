"""Captures remember which nodes have answered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("captures") as table:
        table.add_column(sa.Column("nodes_answered", sa.LargeBinary))


def downgrade() -> None:
    with op.batch_alter_table("captures") as table:
        table.drop_column("nodes_answered")
