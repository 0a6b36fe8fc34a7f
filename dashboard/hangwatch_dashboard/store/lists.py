"""Lists that people page through: runs, incidents, and incidents grouped by cause and line.

No list reads a document. A week of a busy cluster is some ten thousand rows, which both databases page through in
milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, Row, select

from hangwatch_dashboard.store.rows import IncidentRow, ListedGroup, ListedIncident, Page, Review, RunRow, Wanted
from hangwatch_dashboard.store.tables import incidents, occurrences, reviews, runs
from hangwatch_dashboard.store.text import clean, unpack

OPEN, RESOLVED = "open", "resolved"
STANDSTILLS = ("hung", "lingering")  # states that a job leaves as it ends, and its incident does not
MOST_CAUSES = 200

# What comes back is open again by itself.
_latest = occurrences.alias("latest")
_last_seen = select(sa.func.max(_latest.c.opened_at)).where(_latest.c.grp == occurrences.c.grp).scalar_subquery()


class Lists:
    """Answers from the database behind `engine`; plain calls, for a thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def runs(self, wanted: Wanted, limit: int, offset: int) -> Page:
        """Runs, last seen first."""
        query = select(*(runs.c[name] for name in RunRow.__dataclass_fields__)).where(*_of_runs(wanted))
        with self._engine.connect() as connection:
            total = _count(connection, runs, _of_runs(wanted))
            ordered = query.order_by(runs.c.last_seen_at.desc(), runs.c.key).limit(limit).offset(offset)
            return Page([RunRow(**row._mapping) for row in connection.execute(ordered)], total)

    def incidents(self, wanted: Wanted, limit: int = 50, offset: int = 0) -> Page:
        """ListedIncident, newest first."""
        conditions = _of_incidents(wanted)
        query = _listed().where(*conditions)
        ordered = query.order_by(occurrences.c.opened_at.desc(), occurrences.c.incident).limit(limit).offset(offset)
        with self._engine.connect() as connection:
            total = _count(connection, occurrences, conditions)
            return Page([_incident(row) for row in connection.execute(ordered)], total)

    def incident(self, id: str) -> ListedIncident | None:
        """One line of the list of incidents."""
        with self._engine.connect() as connection:
            found = connection.execute(_listed().where(occurrences.c.incident == id)).first()
        return _incident(found) if found else None

    def groups(self, wanted: Wanted, review: str, limit: int, offset: int) -> Page:
        """ListedGroup, last seen first; `review` is a state of reviews, or "" for all."""
        query = _grouped(_of_incidents(wanted), review)
        with self._engine.connect() as connection:
            total = connection.execute(select(sa.func.count()).select_from(query.subquery())).scalar_one()
            ordered = query.order_by(sa.desc("last_at"), occurrences.c.grp).limit(limit).offset(offset)
            rows = connection.execute(ordered).all()
            last = self._last_of(connection, rows)
        return Page([_group(row, last[row.grp]) for row in rows if row.grp in last], total)

    def review(self, group: str) -> Review | None:
        """What was noted of a group; None where there is no such group."""
        with self._engine.connect() as connection:
            found = connection.execute(_listed().where(occurrences.c.grp == group).limit(1)).first()
        return _review(found) if found else None

    def causes(self) -> list[tuple[str, int]]:
        """Every cause in the store with the number of its incidents, the most frequent first."""
        counted = select(occurrences.c.cause, sa.func.count().label("count")).group_by(occurrences.c.cause)
        ordered = counted.order_by(sa.desc("count"), occurrences.c.cause).limit(MOST_CAUSES)
        with self._engine.connect() as connection:
            return [(row[0], row[1]) for row in connection.execute(ordered)]

    def _last_of(self, connection: Connection, groups: Sequence[Row[Any]]) -> dict[str, ListedIncident]:
        """The last incident of each of a page's groups."""
        newest = [sa.and_(occurrences.c.grp == row.grp, occurrences.c.opened_at == row.last_at) for row in groups]
        if not newest:
            return {}
        return {row.grp: _incident(row) for row in connection.execute(_listed().where(sa.or_(*newest)))}


def _of_runs(wanted: Wanted) -> list[Any]:
    found: list[Any] = []
    if wanted.state in STANDSTILLS:  # a job that hung and was killed for it counts, too
        stood = select(occurrences.c.run).where(occurrences.c.status == wanted.state)
        found.append(sa.or_(runs.c.state == wanted.state, runs.c.key.in_(stood)))
    elif wanted.state:
        found.append(runs.c.state == wanted.state)
    if wanted.cause:
        found.append(runs.c.key.in_(select(occurrences.c.run).where(occurrences.c.cause == wanted.cause)))
    if wanted.text:
        columns = (runs.c.name, runs.c.id, runs.c.key, runs.c.command)
        found.append(sa.or_(*(_contains(sa.func.lower(column), wanted.text) for column in columns)))
    if wanted.since is not None:
        found.append(runs.c.last_seen_at >= wanted.since)
    if wanted.until is not None:
        found.append(runs.c.started_at <= wanted.until)
    return found


def _of_incidents(wanted: Wanted) -> list[Any]:
    own = occurrences.c
    equal = {own.run: wanted.run, own.status: wanted.state, own.cause: wanted.cause, own.grp: wanted.group}
    found: list[Any] = [column == value for column, value in equal.items() if value]
    if wanted.text:
        found.append(_contains(own.words, wanted.text))
    if wanted.since is not None:
        found.append(own.opened_at >= wanted.since)
    if wanted.until is not None:
        found.append(own.opened_at <= wanted.until)
    return found


def _contains(column: Any, text: str) -> Any:
    escaped = text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return column.like(f"%{escaped}%", escape="\\")


def _count(connection: Connection, table: sa.Table, conditions: list[Any]) -> int:
    found: int = connection.execute(select(sa.func.count()).select_from(table).where(*conditions)).scalar_one()
    return found


def _review_state() -> Any:
    came_back = sa.and_(reviews.c.state == RESOLVED, _last_seen > reviews.c.at)
    return sa.case((sa.or_(reviews.c.state.is_(None), came_back), OPEN), else_=reviews.c.state)


def _listed() -> Any:
    state = _review_state().label("review_state")
    joined = occurrences.join(incidents, incidents.c.id == occurrences.c.incident)
    own = occurrences.c
    columns = (own.incident, own.opened_at, own.cause, own.place, own.grp, incidents.c.summary)
    reviewed = joined.outerjoin(reviews, reviews.c.grp == occurrences.c.grp)
    return select(*columns, state, reviews.c.note, reviews.c.at).select_from(reviewed)


def _grouped(conditions: list[Any], review: str) -> Any:
    own = occurrences.c
    columns = (
        own.grp,
        sa.func.count().label("number"),
        sa.func.count(own.run.distinct()).label("jobs"),
        sa.func.min(own.opened_at).label("first_at"),
        sa.func.max(own.opened_at).label("last_at"),
    )
    query = select(*columns).where(*conditions).group_by(own.grp)
    if not review:
        return query
    joined = occurrences.outerjoin(reviews, reviews.c.grp == own.grp)
    return query.select_from(joined).where(_review_state() == review)


def _incident(row: Row[Any]) -> ListedIncident:
    return ListedIncident(row.incident, row.opened_at, row.summary, row.cause, row.place, row.grp, _review(row))


def _review(row: Row[Any]) -> Review:
    return Review(row.review_state, row.note or "", row.at)


def _group(row: Row[Any], last: ListedIncident) -> ListedGroup:
    return ListedGroup(row.grp, row.number, row.jobs, row.first_at, row.last_at, last, last.review)


def occurrence_of(row: IncidentRow) -> dict[str, Any]:
    """What the lists keep of an incident: the values of its row in `occurrences`."""
    return listed(row.id, row.run, row.opened_at, row.status, unpack(row.summary))


def listed(id: str, run: str, opened_at: float, status: str, summary: dict[str, Any]) -> dict[str, Any]:
    """`occurrence_of`, from the summary's own values."""
    said = [summary.get(name) or "" for name in ("job_name", "cause", "place", "summary", "host")]
    return {
        "incident": id,
        "run": run,
        "opened_at": opened_at,
        "status": status,
        "cause": clean(summary.get("cause") or "", 80),
        "place": clean(summary.get("place") or "", 300),
        "grp": summary.get("group") or group_of(summary.get("cause") or "", summary.get("job_name") or "", "", 0),
        "words": clean(" ".join((*said, id)).lower(), 3000),
    }


def group_of(cause: str, job_name: str, file: str, line: int) -> str:
    """The name of the group of all incidents of one cause and line; of one cause and job where no line is known."""
    same = f"{file}\0{line}" if file else job_name
    return hashlib.sha256(f"{cause}\0{same}".encode("utf-8", "replace")).hexdigest()[:16]


def place_of(file: str, line: int) -> str:
    """train.py:88"""
    name = PurePath(file).name or file
    return f"{name}:{line}" if line else name
