"""The tables, as the newest migration leaves them (a test holds the two together).

Documents are JSON compressed with zlib: they are read whole or not at all, no database has to understand them, so no
string from a rank can upset it. Text columns hold cleaned text only (`store.text.clean`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("id", Text, nullable=False),  # Job.id: what the nodes agree on
    Column("name", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("last_seen_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("state", String(16), nullable=False),
    Column("summary", LargeBinary),  # JobSummary, for the list
    Column("changed_at", Float, nullable=False),
    Column("judgement", LargeBinary),  # the last one, for the other dashboard processes
    Column("judged_at", Float),
    Column("open_incident", String(64)),
    Column("judge", String(64)),  # the dashboard process that judges it, until:
    Column("judge_until", Float, nullable=False, server_default="0"),
    Column("command", Text, nullable=False, server_default=""),
    Index("runs_by_id", "id"),
    Index("runs_by_last_seen", "last_seen_at"),
    Index("runs_by_changed", "changed_at"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("node", Text, primary_key=True),
    Column("boot", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("process", String(64), nullable=False),  # the dashboard process that took the batch
    Column("received_at", Float, nullable=False),
    Column("clock_offset", Float, nullable=False),
    Column("batch", LargeBinary, nullable=False),
    Column("hello", LargeBinary),  # the last batch that had a hello
    Column("facts", LargeBinary),  # the last batch that had facts
    Column("closed", Integer, nullable=False, server_default="0"),  # 1 after the node's goodbye
    Index("nodes_by_received", "received_at"),
)

captures = Table(
    "captures",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("run", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("done_at", Float),
    Column("state", String(16), nullable=False),
    Column("nodes_asked", LargeBinary, nullable=False),
    Column("document", LargeBinary),
    Column("nodes_answered", LargeBinary),
    Index("captures_by_run", "run", "asked_at"),
    Index("captures_by_changed", "changed_at"),
)

parts = Table(
    "parts",
    metadata,
    Column("capture", String(64), primary_key=True),
    Column("node", Text, primary_key=True),
    Column("received_at", Float, nullable=False),
    Column("clock_offset", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),  # the NodeCapture
    Index("parts_by_received", "received_at"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("run", String(64), nullable=False),
    Column("job_name", Text, nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("status", String(16), nullable=False),
    Column("summary", LargeBinary, nullable=False),  # IncidentSummary
    Column("document", LargeBinary, nullable=False),  # Incident
    Index("incidents_by_run", "run", "opened_at"),
    Index("incidents_by_opened", "opened_at"),
    Index("incidents_by_changed", "changed_at"),
)

# What lists of incidents are made of, apart from the documents: a page of a week's list reads no document.
occurrences = Table(
    "occurrences",
    metadata,
    Column("incident", String(64), primary_key=True),
    Column("run", String(64), nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("status", String(16), nullable=False),
    Column("cause", String(80), nullable=False),
    Column("place", Text, nullable=False),  # "train.py:88" of the first culprit, or ""
    Column("grp", String(64), nullable=False),  # incidents of one cause and line have one group
    Column("words", Text, nullable=False),  # to search in, in lower case
    Index("occurrences_by_opened", "opened_at"),
    Index("occurrences_by_group", "grp", "opened_at"),
    Index("occurrences_by_cause", "cause", "opened_at"),
    Index("occurrences_by_run", "run", "opened_at"),
)

reviews = Table(
    "reviews",
    metadata,
    Column("grp", String(64), primary_key=True),
    Column("state", String(16), nullable=False),  # "acknowledged" or "resolved"; "open" where there is no row
    Column("note", Text, nullable=False),
    Column("at", Float, nullable=False),
)

messages = Table(
    "messages",
    metadata,
    Column("incident", String(64), primary_key=True),
    Column("kind", String(16), primary_key=True),  # "opened" or "recovered": one message each
    Column("due_at", Float, nullable=False),
    Column("claimed_until", Float, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("sent_at", Float),
    Index("messages_by_due", "sent_at", "due_at"),
)
