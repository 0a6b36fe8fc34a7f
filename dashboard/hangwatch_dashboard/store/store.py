"""The store: every question and every write, in the vocabulary of the service.

Writes return futures that are done when committed; reads are plain calls (for a thread). `process` names this
dashboard process among several on one PostgreSQL.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Row, select
from sqlalchemy.dialects import postgresql, sqlite

from hangwatch_dashboard.store import engine as engines
from hangwatch_dashboard.store.lists import Lists, occurrence_of
from hangwatch_dashboard.store.rows import (
    CaptureRow,
    IncidentRow,
    LastRun,
    MessageRow,
    NodeRow,
    PartRow,
    Review,
    RunRow,
    with_parts,
)
from hangwatch_dashboard.store.tables import captures, incidents, messages, nodes, occurrences, parts, reviews, runs
from hangwatch_dashboard.store.text import pack, unpack
from hangwatch_dashboard.store.writer import Writer

T = TypeVar("T")
P = ParamSpec("P")
READERS = 4
CHANNEL = "hangwatch"


class Store:
    """Opens the database, brings it to the newest version, and answers. `close` writes what is still queued."""

    def __init__(self, database: str, process: str) -> None:
        self.url = engines.url_of(database)
        self.process = process
        self._lock = engines.lock_file(self.url)
        self.engine = engines.connect(self.url)
        try:
            engines.migrate(self.engine)
        except BaseException:
            self._let_go()
            raise
        self.lists = Lists(self.engine)
        self._insert: Any = postgresql.insert if self.is_postgresql else sqlite.insert
        self._node_upsert, self._part_upsert = self._make_node_upsert(), self._make_part_upsert()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="hangwatch-read")
        self.writer = Writer(self.engine, self._write_rows)

    @property
    def is_postgresql(self) -> bool:
        return self.url.drivername != "sqlite"

    def close(self) -> None:
        self.writer.close()
        self._readers.shutdown(wait=True)  # a query without a waiting caller still holds its connection
        self._let_go()

    async def ask(self, question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Calls one of the reading methods in a thread."""
        call = functools.partial(question, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    def _let_go(self) -> None:
        self.engine.dispose()
        if self._lock is not None:
            self._lock.close()

    def ping(self) -> None:
        """Raises if the database cannot be read, or the last write failed."""
        with self.engine.connect() as connection:
            connection.execute(sa.text("SELECT 1"))

    # ------------------------------------------------------------ nodes

    def put_node(self, row: NodeRow) -> Future[Any]:
        """Keeps a node's batch, unless a later one of the same boot is there."""
        return self.writer.row(row)

    def put_node_soon(self, row: NodeRow) -> asyncio.Future[Any]:
        """`put_node`, for a coroutine."""
        return self.writer.row_soon(row)

    def _write_rows(self, connection: Connection, rows: Sequence[NodeRow | PartRow]) -> None:
        batches = with_parts([row for row in rows if isinstance(row, NodeRow)])
        if newest := {(row.run, row.node): vars(row) for row in batches}:
            connection.execute(self._node_upsert, list(newest.values()))
        if evidence := [vars(row) for row in rows if isinstance(row, PartRow)]:
            connection.execute(self._part_upsert, evidence)
        self._tell(connection)

    def _make_node_upsert(self) -> Any:
        insert = self._insert(nodes)
        new = insert.excluded
        kept = ("hello", "facts")
        values = {column.name: new[column.name] for column in nodes.c if column.name not in ("run", "node", *kept)}
        values |= {name: sa.func.coalesce(new[name], nodes.c[name]) for name in kept}
        later = sa.or_(nodes.c.boot != new.boot, nodes.c.sequence < new.sequence)
        return insert.on_conflict_do_update(index_elements=["run", "node"], set_=values, where=later)

    def nodes_of(self, run: str) -> list[NodeRow]:
        return self._all(NodeRow, select(nodes).where(nodes.c.run == run))

    def nodes_since(self, since: float) -> list[NodeRow]:
        """Rows that other dashboard processes have written since a moment."""
        return self._all(NodeRow, select(nodes).where(nodes.c.received_at >= since, nodes.c.process != self.process))

    # ------------------------------------------------------------ runs

    def choose_run(self, choose: Callable[[LastRun | None], RunRow | None], id: str, node: str) -> Future[RunRow]:
        """The run that a new boot of a node joins: `choose(last run of the job)` gives a new one, or None."""

        def write(connection: Connection) -> RunRow:
            if self.is_postgresql:  # two dashboards must not both make a run
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext(:id))"), {"id": id})
            last = self._last_run(connection, id, node)
            new = choose(last)
            if new is None:
                assert last is not None
                return last.row
            connection.execute(self._insert(runs).values(**vars(new)).on_conflict_do_nothing())
            return new

        return self.writer.submit(write)

    def _last_run(self, connection: Connection, id: str, node: str) -> LastRun | None:
        query = select(runs).where(runs.c.id == id).order_by(runs.c.started_at.desc(), runs.c.key).limit(1)
        found = connection.execute(query).first()
        if found is None:
            return None
        own = connection.execute(select(nodes).where(nodes.c.run == found.key, nodes.c.node == node)).first()
        counts = select(sa.func.count(), sa.func.coalesce(sa.func.sum(nodes.c.closed), 0)).where(
            nodes.c.run == found.key
        )
        there, closed = connection.execute(counts).one()
        return LastRun(_row(RunRow, found), _row(NodeRow, own) if own else None, there, there - closed)

    def put_run(self, key: str, **values: Any) -> Future[Any]:
        """Changes some columns of a run."""

        def write(connection: Connection) -> None:
            connection.execute(sa.update(runs).where(runs.c.key == key).values(**values))
            self._tell(connection)

        return self.writer.submit(write)

    def runs_changed_since(self, since: float) -> list[RunRow]:
        """Runs on which a dashboard process has noted something since a moment."""
        return self._all(RunRow, select(runs).where(runs.c.changed_at >= since))

    def run_of_boot(self, node: str, boot: str) -> str | None:
        """The run that a boot of a node has joined."""
        with self.engine.connect() as connection:
            query = select(nodes.c.run).where(nodes.c.node == node, nodes.c.boot == boot)
            return connection.execute(query).scalars().first()

    def run(self, key: str) -> RunRow | None:
        return self._first(RunRow, select(runs).where(runs.c.key == key))

    def runs_seen_since(self, since: float, limit: int) -> list[RunRow]:
        query = select(runs).where(runs.c.last_seen_at >= since).order_by(runs.c.last_seen_at.desc()).limit(limit)
        return self._all(RunRow, query)

    def silence_runs(self, before: float) -> Future[Any]:
        """Runs of which nothing was heard since, and that did not say goodbye, are silent, whatever they were."""
        unheard = sa.and_(runs.c.last_seen_at < before, runs.c.state.not_in(("finished", "failed", "silent")))
        return self._submit(sa.update(runs).where(unheard).values(state="silent"))

    def take_judge(self, key: str, now: float, for_s: float) -> Future[bool]:
        """Whether this process judges the run until `now + for_s`: one of several does."""
        mine = sa.or_(runs.c.judge == self.process, runs.c.judge_until < now, runs.c.judge.is_(None))
        values = {"judge": self.process, "judge_until": now + for_s}
        statement = sa.update(runs).where(runs.c.key == key, mine).values(**values)
        return self.writer.submit(lambda connection: connection.execute(statement).rowcount == 1)

    def delete_run(self, key: str) -> Future[Any]:
        """Deletes a run with everything that belongs to it."""

        def write(connection: Connection) -> None:
            own_captures = select(captures.c.id).where(captures.c.run == key)
            own_incidents = select(incidents.c.id).where(incidents.c.run == key)
            connection.execute(sa.delete(parts).where(parts.c.capture.in_(own_captures)))
            connection.execute(sa.delete(messages).where(messages.c.incident.in_(own_incidents)))
            for table in (captures, incidents, occurrences, nodes):
                connection.execute(sa.delete(table).where(table.c.run == key))
            connection.execute(sa.delete(runs).where(runs.c.key == key))
            self._tell(connection, f"gone {key}")

        return self.writer.submit(write)

    # ------------------------------------------------------------ captures

    def put_capture(self, row: CaptureRow) -> Future[Any]:
        """Keeps a capture, new or changed."""
        values = {
            "id": row.id,
            "run": row.run,
            "reason": row.reason,
            "asked_at": row.asked_at,
            "changed_at": row.changed_at,
            "done_at": row.done_at,
            "state": row.state,
            "nodes_asked": pack(row.nodes_asked),
            "document": row.document,
            "nodes_answered": pack(row.nodes_answered),
        }

        def write(connection: Connection) -> None:
            connection.execute(self._upsert(captures, values))
            if row.state != "asked":
                connection.execute(sa.delete(parts).where(parts.c.capture == row.id))
            self._tell(connection)

        return self.writer.submit(write)

    def put_part(self, row: PartRow) -> Future[Any]:
        """Keeps a node's part of a capture."""
        return self.writer.row(row)

    def put_part_soon(self, row: PartRow) -> asyncio.Future[Any]:
        """`put_part`, for a coroutine."""
        return self.writer.row_soon(row)

    def _make_part_upsert(self) -> Any:
        insert = self._insert(parts)
        values = {name: insert.excluded[name] for name in ("received_at", "clock_offset", "body")}
        return insert.on_conflict_do_update(index_elements=["capture", "node"], set_=values)

    def fail_captures(self, before: float, now: float) -> Future[Any]:
        """Ends captures that will not be finished, because the process that would have has gone."""
        stale = sa.and_(captures.c.state == "asked", captures.c.asked_at < before)
        return self._submit(sa.update(captures).where(stale).values(state="failed", done_at=now, changed_at=now))

    def parts_of(self, capture: str) -> list[PartRow]:
        return self._all(PartRow, select(parts).where(parts.c.capture == capture))

    def part_nodes(self, capture: str) -> list[str]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(parts.c.node).where(parts.c.capture == capture)).scalars())

    def capture(self, id: str) -> CaptureRow | None:
        with self.engine.connect() as connection:
            found = connection.execute(select(captures).where(captures.c.id == id)).first()
        return _capture(found) if found else None

    def captures_of(self, run: str, limit: int = 50) -> list[CaptureRow]:
        return self._captures(captures.c.run == run, limit)

    def captures_since(self, since: float) -> list[CaptureRow]:
        """Captures that have changed since a moment, without documents."""
        return self._captures(captures.c.changed_at >= since, 1000)

    def _captures(self, condition: Any, limit: int) -> list[CaptureRow]:
        columns = [column for column in captures.c if column.name != "document"]
        query = select(*columns).where(condition).order_by(captures.c.asked_at.desc()).limit(limit)
        with self.engine.connect() as connection:
            return [_capture(row) for row in connection.execute(query)]

    # ------------------------------------------------------------ incidents

    def put_incident(
        self, row: IncidentRow, message: str = "", due_at: float = 0.0, run: Mapping[str, Any] | None = None
    ) -> Future[Any]:
        """Keeps an incident, new or changed, and in the same transaction what it changes of its run, and the message
        that people are to get."""

        def write(connection: Connection) -> None:
            connection.execute(self._upsert(incidents, vars(row)))
            connection.execute(self._upsert(occurrences, occurrence_of(row)))
            if run:
                connection.execute(sa.update(runs).where(runs.c.key == row.run).values(**run))
            if message:
                values = {"incident": row.id, "kind": message, "due_at": due_at}
                connection.execute(self._insert(messages).values(**values).on_conflict_do_nothing())
            self._tell(connection)

        return self.writer.submit(write)

    def incident(self, id: str) -> IncidentRow | None:
        return self._first(IncidentRow, select(incidents).where(incidents.c.id == id))

    def put_review(self, group: str, review: Review) -> Future[Any]:
        """Notes what a person says of a group of incidents."""
        values = {"grp": group, "state": review.state, "note": review.note, "at": review.at}
        return self.writer.submit(lambda connection: connection.execute(self._upsert(reviews, values)))

    def incidents_since(self, since: float) -> list[IncidentRow]:
        """Incidents that have changed since a moment, without documents."""
        columns = [column for column in incidents.c if column.name != "document"]
        query = select(*columns, sa.literal(b"").label("document")).where(incidents.c.changed_at >= since)
        return self._all(IncidentRow, query.order_by(incidents.c.changed_at))

    def delete_incident(self, id: str) -> Future[Any]:
        def write(connection: Connection) -> bool:
            connection.execute(sa.delete(messages).where(messages.c.incident == id))
            connection.execute(sa.delete(occurrences).where(occurrences.c.incident == id))
            found = connection.execute(sa.delete(incidents).where(incidents.c.id == id)).rowcount == 1
            self._tell(connection)
            return found

        return self.writer.submit(write)

    # ------------------------------------------------------------ messages

    def claim_message(self, now: float, for_s: float) -> Future[MessageRow | None]:
        """The next message that is due and that no other process is sending; it is ours until `now + for_s`."""

        def write(connection: Connection) -> MessageRow | None:
            due = select(messages.c.incident, messages.c.kind, messages.c.attempts).where(
                messages.c.sent_at.is_(None), messages.c.due_at <= now, messages.c.claimed_until < now
            )
            found = connection.execute(
                due.order_by(messages.c.due_at).limit(1).with_for_update(skip_locked=True)
            ).first()
            if found is None:
                return None
            row = MessageRow(*found)
            values = {"claimed_until": now + for_s, "attempts": row.attempts + 1}
            connection.execute(sa.update(messages).where(*_message(row)).values(**values))
            return row

        return self.writer.submit(write)

    def message_sent(self, row: MessageRow, at: float) -> Future[Any]:
        return self._submit(sa.update(messages).where(*_message(row)).values(sent_at=at))

    def message_failed(self, row: MessageRow, again_at: float) -> Future[Any]:
        return self._submit(sa.update(messages).where(*_message(row)).values(due_at=again_at, claimed_until=0))

    # ------------------------------------------------------------ retention

    def forget(self, runs_before: float, incidents_before: float, batches_before: float) -> Future[Any]:
        """Deletes runs without incidents, incidents, and batches and captures that are older."""

        def write(connection: Connection) -> None:
            old_incidents = select(incidents.c.id).where(incidents.c.opened_at < incidents_before)
            connection.execute(sa.delete(messages).where(messages.c.incident.in_(old_incidents)))
            connection.execute(sa.delete(incidents).where(incidents.c.opened_at < incidents_before))
            connection.execute(sa.delete(occurrences).where(occurrences.c.opened_at < incidents_before))
            connection.execute(sa.delete(reviews).where(reviews.c.grp.not_in(select(occurrences.c.grp))))
            with_incidents = select(incidents.c.run)
            old = sa.and_(runs.c.last_seen_at < runs_before, runs.c.key.not_in(with_incidents))
            connection.execute(sa.delete(runs).where(old))
            connection.execute(sa.delete(nodes).where(nodes.c.received_at < batches_before))
            connection.execute(sa.delete(captures).where(captures.c.asked_at < batches_before))
            connection.execute(sa.delete(parts).where(parts.c.received_at < batches_before))

        return self.writer.submit(write)

    # ------------------------------------------------------------ how

    def _submit(self, statement: Any) -> Future[Any]:
        return self.writer.submit(lambda connection: connection.execute(statement).rowcount)

    def _tell(self, connection: Connection, what: str = "") -> None:
        """Tells the other dashboard processes, when this transaction is committed, that there is something new."""
        if self.is_postgresql:
            notify = sa.text("SELECT pg_notify(:channel, :process)")
            connection.execute(notify, {"channel": CHANNEL, "process": f"{self.process} {what}"})

    def _upsert(self, table: sa.Table, values: dict[str, Any]) -> Any:
        key = [column.name for column in table.primary_key]
        changed = {name: value for name, value in values.items() if name not in key}
        return self._insert(table).values(**values).on_conflict_do_update(index_elements=key, set_=changed)

    def _first(self, kind: type[T], query: Any) -> T | None:
        with self.engine.connect() as connection:
            found = connection.execute(query).first()
        return _row(kind, found) if found else None

    def _all(self, kind: type[T], query: Any) -> list[T]:
        with self.engine.connect() as connection:
            return [_row(kind, row) for row in connection.execute(query)]


def _row(kind: type[T], row: Row[Any]) -> T:
    return kind(**{entry.name: getattr(row, entry.name) for entry in fields(kind)})  # type: ignore[arg-type]


def _capture(row: Row[Any]) -> CaptureRow:
    values = dict(row._mapping)
    for name in ("nodes_asked", "nodes_answered"):
        values[name] = tuple(unpack(values[name])) if values[name] else ()  # captures of 0001 have no answers
    return CaptureRow(**values)


def _message(row: MessageRow) -> tuple[Any, Any]:
    return messages.c.incident == row.incident, messages.c.kind == row.kind
