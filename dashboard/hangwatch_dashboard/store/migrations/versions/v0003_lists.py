"""Lists of incidents by cause and line, what people noted of them, and the commands of jobs to search in."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from hangwatch_dashboard.store.lists import group_of, listed, place_of
from hangwatch_dashboard.store.text import unpack

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("runs") as table:
        table.add_column(sa.Column("command", sa.Text, nullable=False, server_default=""))
    occurrences = op.create_table(
        "occurrences",
        sa.Column("incident", sa.String(64), primary_key=True),
        sa.Column("run", sa.String(64), nullable=False),
        sa.Column("opened_at", sa.Float, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("cause", sa.String(80), nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("grp", sa.String(64), nullable=False),
        sa.Column("words", sa.Text, nullable=False),
    )
    op.create_index("occurrences_by_opened", "occurrences", ["opened_at"])
    op.create_index("occurrences_by_group", "occurrences", ["grp", "opened_at"])
    op.create_index("occurrences_by_cause", "occurrences", ["cause", "opened_at"])
    op.create_index("occurrences_by_run", "occurrences", ["run", "opened_at"])
    op.create_table(
        "reviews",
        sa.Column("grp", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    _list_what_there_is(occurrences)


def _list_what_there_is(occurrences: sa.Table) -> None:
    """One document at a time: all of them together may be gigabytes."""
    connection = op.get_bind()
    ids = connection.execute(sa.text("SELECT id FROM incidents")).scalars().all()
    one = sa.text("SELECT run, opened_at, status, summary, document FROM incidents WHERE id = :id")
    for id in ids:
        found = connection.execute(one, {"id": id}).one()
        connection.execute(occurrences.insert().values(**_occurrence(id, *found)))


def _occurrence(id: str, run: str, opened_at: float, status: str, summary: bytes, document: bytes) -> dict[str, Any]:
    """The line is in the document only: summaries did not name it."""
    known = unpack(summary)
    culprits: list[dict[str, Any]] = unpack(document).get("verdict", {}).get("culprits") or [{}]
    where = culprits[0].get("where") or {}
    file, line = where.get("file", ""), where.get("line", 0)
    group = group_of(known.get("cause") or "", known.get("job_name") or "", file, line)
    return listed(id, run, opened_at, status, known | {"place": place_of(file, line), "group": group})


def downgrade() -> None:
    op.drop_table("reviews")
    op.drop_table("occurrences")
    with op.batch_alter_table("runs") as table:
        table.drop_column("command")
