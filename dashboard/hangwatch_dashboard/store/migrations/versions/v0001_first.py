"""The first version: runs, nodes, captures and their parts, incidents, messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    for make in (_runs, _nodes, _captures, _parts, _incidents, _messages):
        make()


def downgrade() -> None:
    for table in ("messages", "incidents", "parts", "captures", "nodes", "runs"):
        op.drop_table(table)


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("last_seen_at", sa.Float, nullable=False),
        sa.Column("closed_at", sa.Float),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("summary", sa.LargeBinary),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.Column("judgement", sa.LargeBinary),
        sa.Column("judged_at", sa.Float),
        sa.Column("open_incident", sa.String(64)),
        sa.Column("judge", sa.String(64)),
        sa.Column("judge_until", sa.Float, nullable=False, server_default="0"),
    )
    op.create_index("runs_by_id", "runs", ["id"])
    op.create_index("runs_by_last_seen", "runs", ["last_seen_at"])
    op.create_index("runs_by_changed", "runs", ["changed_at"])


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("run", sa.String(64), primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("boot", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("process", sa.String(64), nullable=False),
        sa.Column("received_at", sa.Float, nullable=False),
        sa.Column("clock_offset", sa.Float, nullable=False),
        sa.Column("batch", sa.LargeBinary, nullable=False),
        sa.Column("hello", sa.LargeBinary),
        sa.Column("facts", sa.LargeBinary),
        sa.Column("closed", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_index("nodes_by_received", "nodes", ["received_at"])


def _captures() -> None:
    op.create_table(
        "captures",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("run", sa.String(64), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("asked_at", sa.Float, nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.Column("done_at", sa.Float),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("nodes_asked", sa.LargeBinary, nullable=False),
        sa.Column("document", sa.LargeBinary),
    )
    op.create_index("captures_by_run", "captures", ["run", "asked_at"])
    op.create_index("captures_by_changed", "captures", ["changed_at"])


def _parts() -> None:
    op.create_table(
        "parts",
        sa.Column("capture", sa.String(64), primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("received_at", sa.Float, nullable=False),
        sa.Column("clock_offset", sa.Float, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("parts_by_received", "parts", ["received_at"])


def _incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("run", sa.String(64), nullable=False),
        sa.Column("job_name", sa.Text, nullable=False),
        sa.Column("opened_at", sa.Float, nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.Column("closed_at", sa.Float),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("summary", sa.LargeBinary, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("incidents_by_run", "incidents", ["run", "opened_at"])
    op.create_index("incidents_by_opened", "incidents", ["opened_at"])
    op.create_index("incidents_by_changed", "incidents", ["changed_at"])


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("incident", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("due_at", sa.Float, nullable=False),
        sa.Column("claimed_until", sa.Float, nullable=False, server_default="0"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("sent_at", sa.Float),
    )
    op.create_index("messages_by_due", "messages", ["sent_at", "due_at"])
