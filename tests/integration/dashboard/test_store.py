"""The store on both databases: migrations, order, and what is left when something dies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from hangwatch_dashboard.store import engine as engines
from hangwatch_dashboard.store.lists import group_of
from hangwatch_dashboard.store.rows import CaptureRow, IncidentRow, NodeRow, PartRow, Review, RunRow, Wanted
from hangwatch_dashboard.store.store import Store
from hangwatch_dashboard.store.tables import metadata
from hangwatch_dashboard.store.text import clean, pack
from hangwatch_dashboard.store.writer import StoreBusyError


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    made = Store(database, "p1")
    yield made
    made.close()


def node(sequence: int, boot: str = "b", **values: object) -> NodeRow:
    row = {"run": "r", "node": "n", "boot": boot, "sequence": sequence, "process": "p1", "received_at": float(sequence)}
    return NodeRow(**{**row, "clock_offset": 0.0, "batch": str(sequence).encode(), **values})  # type: ignore[arg-type]


def incident(id: str = "i", opened_at: float = 1.0, run: str = "r", status: str = "hung") -> IncidentRow:
    return IncidentRow(id, run, "name", opened_at, opened_at, status, pack({"id": id}), pack({}))


def run(key: str = "r", last_seen_at: float = 1.0, **values: object) -> RunRow:
    return RunRow(key, "job", "name", 1.0, last_seen_at, "running", changed_at=1.0, **values)  # type: ignore[arg-type]


def join(store: Store, row: RunRow) -> None:
    store.choose_run(lambda last: row, row.id, "n").result()


def test_the_migrations_make_the_tables(database: str) -> None:
    engine = engines.connect(engines.url_of(database))
    engines.migrate(engine)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    assert differences == []


def test_every_migration_can_be_applied_and_taken_back(database: str) -> None:
    engine = engines.connect(engines.url_of(database))
    with engine.begin() as connection:
        script = ScriptDirectory.from_config(engines.configuration(connection))
    for revision in reversed(list(script.walk_revisions())):
        engines.migrate(engine, revision.revision)
    with engine.begin() as connection:
        command.downgrade(engines.configuration(connection), "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]
    engines.migrate(engine)
    engine.dispose()


def test_captures_of_the_first_version_are_still_read(database: str) -> None:
    engine = engines.connect(engines.url_of(database))
    engines.migrate(engine, "0001")
    old = {"id": "c-1", "run": "r", "reason": "asked", "asked_at": 1.0, "changed_at": 2.0, "state": "done"}
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO captures (id, run, reason, asked_at, changed_at, state, nodes_asked)"
                " VALUES (:id, :run, :reason, :asked_at, :changed_at, :state, :nodes)"
            ),
            {**old, "nodes": pack(("a", "b"))},
        )
    engine.dispose()
    store = Store(database, "p1")
    try:
        assert store.capture("c-1") == CaptureRow(**old, nodes_asked=("a", "b"))  # type: ignore[arg-type]
        new = CaptureRow("c-2", "r", "asked", 3.0, 4.0, "done", ("a", "b"), 4.0, b"", ("b",))
        store.put_capture(new).result()
        assert store.capture("c-2") == new
    finally:
        store.close()


def test_a_database_of_a_newer_version_is_refused_in_words(database: str) -> None:
    engine = engines.connect(engines.url_of(database))
    engines.migrate(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(engines.StoreError, match="newer hangwatch"):
        Store(database, "p1")


def test_the_newest_batch_stays(store: Store) -> None:
    store.put_node(node(1, hello=b"h")).result()
    store.put_node(node(3)).result()
    store.put_node(node(2, facts=b"f")).result()
    (found,) = store.nodes_of("r")
    assert (found.sequence, found.hello) == (3, b"h")
    store.put_node(node(0, boot="c")).result()
    (found,) = store.nodes_of("r")
    assert (found.boot, found.sequence) == ("c", 0)


def test_a_hello_is_kept_when_a_later_batch_is_written_with_it(store: Store) -> None:
    hold = threading.Event()
    store.writer.submit(lambda connection: hold.wait(60))  # so that both rows are in one group
    first, second = store.put_node(node(1, hello=b"h")), store.put_node(node(2))
    hold.set()
    first.result(60), second.result(60)
    (found,) = store.nodes_of("r")
    assert (found.sequence, found.hello) == (2, b"h")


def test_two_processes_see_each_others_batches(store: Store) -> None:
    store.put_node(node(1)).result()
    store.put_node(node(1, process="p2", node="m", received_at=5.0)).result()
    assert [row.node for row in store.nodes_since(0.0)] == ["m"]
    assert store.nodes_since(6.0) == []


def test_one_write_that_fails_fails_alone(store: Store) -> None:
    def fail(connection: sa.Connection) -> None:
        raise ZeroDivisionError

    good, bad, also_good = (
        store.put_incident(incident("a")),
        store.writer.submit(fail),
        store.put_incident(incident("b")),
    )
    good.result(60), also_good.result(60)
    with pytest.raises(ZeroDivisionError):
        bad.result(60)
    assert store.lists.incidents(Wanted()).total == 2


def test_a_database_that_has_gone_is_said_to_be_busy(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE parts"))
    # A missing table is no connection error; what matters is that the writer goes on.
    with pytest.raises(Exception, match="parts"):
        store.put_part(PartRow("c", "n", 1.0, 0.0, b"x")).result(60)
    store.put_incident(incident()).result(60)


def test_a_full_queue_is_said(store: Store) -> None:
    hold = threading.Event()
    store.writer.submit(lambda connection: hold.wait(60))
    with pytest.raises(StoreBusyError):
        fill(store)
    hold.set()


def fill(store: Store) -> None:
    for number in range(50_000):
        store.put_node(node(number))


def test_runs_are_found(store: Store) -> None:
    join(store, run("a", 1.0))
    join(store, run("b", 2.0))
    page = store.lists.runs(Wanted(text="NAM"), 1, 0)
    assert ([row.key for row in page.rows], page.total) == (["b"], 2)
    assert store.lists.runs(Wanted(state="hung"), 10, 0).total == 0
    assert [row.key for row in store.runs_seen_since(1.5, 10)] == ["b"]


def test_one_of_two_processes_judges(store: Store) -> None:
    join(store, run())
    other = "p2"
    assert store.take_judge("r", 10.0, 5.0).result() is True
    assert store.take_judge("r", 12.0, 5.0).result() is True
    mine, store.process = store.process, other
    assert store.take_judge("r", 13.0, 5.0).result() is False
    assert store.take_judge("r", 18.0, 5.0).result() is True
    store.process = mine
    assert store.take_judge("r", 19.0, 5.0).result() is False


def test_a_message_is_claimed_once_and_again_when_it_failed(store: Store) -> None:
    store.put_incident(incident(), "opened", 5.0).result()
    store.put_incident(incident(), "opened", 6.0).result()
    assert store.claim_message(4.0, 10.0).result() is None
    row = store.claim_message(7.0, 10.0).result()
    assert row is not None
    assert (row.incident, row.kind, row.attempts) == ("i", "opened", 0)
    assert store.claim_message(8.0, 10.0).result() is None
    store.message_failed(row, 20.0).result()
    assert store.claim_message(9.0, 10.0).result() is None
    again = store.claim_message(21.0, 10.0).result()
    assert again is not None
    assert again.attempts == 1
    store.message_sent(again, 22.0).result()
    assert store.claim_message(99.0, 10.0).result() is None


def test_what_is_old_is_forgotten(store: Store) -> None:
    join(store, run("old", 1.0))
    join(store, run("old-with-incident", 1.0))
    join(store, run("new", 100.0))
    store.put_incident(incident("kept", 60.0, "old-with-incident")).result()
    store.put_incident(incident("dropped", 10.0)).result()
    store.put_node(node(1)).result()
    store.put_capture(CaptureRow("c", "r", "why", 1.0, 1.0, "asked", ("n",))).result()
    store.forget(runs_before=50.0, incidents_before=50.0, batches_before=50.0).result()
    assert {row.key for row in store.lists.runs(Wanted(), 10, 0).rows} == {"old-with-incident", "new"}
    assert [row.id for row in store.lists.incidents(Wanted()).rows] == ["kept"]
    assert store.nodes_of("r") == []
    assert store.capture("c") is None


def test_parts_and_batches_of_one_group_are_written_together(store: Store) -> None:
    """Also a part that comes twice: the node had no answer to the first, and the last one counts."""
    join(store, run())
    rows = [PartRow("c", "n", 1.0, 0.5, b"x"), PartRow("c", "m", 1.0, 0.5, b"y"), PartRow("c", "n", 2.0, 0.5, b"z")]
    for written in [store.put_node(node(1)), *map(store.put_part, rows), store.put_node(node(2))]:
        written.result(60)
    assert sorted(store.parts_of("c"), key=lambda part: part.node) == [rows[1], rows[2]]
    assert [row.sequence for row in store.nodes_of("r")] == [2]


def test_deleting_a_run_leaves_nothing_of_it(store: Store) -> None:
    join(store, run())
    store.put_node(node(1)).result()
    store.put_capture(CaptureRow("c", "r", "why", 1.0, 1.0, "asked", ("n",))).result()
    store.put_part(PartRow("c", "n", 1.0, 0.0, b"x")).result()
    store.put_incident(incident(), "opened", 1.0).result()
    store.delete_run("r").result()
    with store.engine.connect() as connection:
        for table in metadata.sorted_tables:
            assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 0, table.name


def test_hostile_names_are_stored_cleaned(store: Store) -> None:
    name = clean("a\0b\x1b[31m\udc80c\u202e" + "x" * 1000)
    assert name.startswith("a?b?[31m?c?")
    assert len(name) == 500
    join(store, RunRow("r", "job", name, 1.0, 1.0, "running"))
    found = store.run("r")
    assert found is not None
    assert found.name == name


def test_a_database_of_another_encoding_is_refused_in_words(postgres: str) -> None:
    server = sa.create_engine(engines.url_of(postgres), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(
            sa.text("CREATE DATABASE plain ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        )
    server.dispose()
    with pytest.raises(engines.StoreError, match="encoding SQL_ASCII; make one with ENCODING 'UTF8'"):
        Store(postgres.rpartition("/")[0] + "/plain", "p1")


@pytest.mark.parametrize("address", ["mysql://x/y", "nonsense://", "://"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(engines.StoreError):
        engines.url_of(address)


def test_an_sqlite_file_has_one_dashboard(tmp_path: Path) -> None:
    path = tmp_path / "a" / "d.db"
    store = Store(str(path), "p1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(engines.StoreError, match="another dashboard"):
        Store(str(path), "p2")
    store.close()
    Store(str(path), "p2").close()


def test_incidents_of_earlier_versions_are_listed_by_cause_and_line(database: str) -> None:
    engine = engines.connect(engines.url_of(database))
    engines.migrate(engine, "0002")
    summary = {
        "id": "i-1",
        "cause": "uneven-steps",
        "job_name": "Vision",
        "summary": "Rank 3 ran out",
        "host": "node-b",
    }
    where = {"file": "/home/mia/train.py", "line": 88, "function": "main", "native": False}
    rows = [
        {"id": "i-1", "summary": pack(summary), "document": pack({"verdict": {"culprits": [{"where": where}]}})},
        {"id": "i-2", "summary": pack(summary | {"id": "i-2"}), "document": pack({"verdict": {"culprits": []}})},
    ]
    with engine.begin() as connection:
        for row in rows:
            connection.execute(
                sa.text(
                    "INSERT INTO incidents (id, run, job_name, opened_at, changed_at, status, summary, document)"
                    " VALUES (:id, 'r', 'Vision', 5.0, 5.0, 'hung', :summary, :document)"
                ),
                row,
            )
    engine.dispose()
    store = Store(database, "p1")
    try:
        found = {row.id: row for row in store.lists.incidents(Wanted(text="ran OUT")).rows}
        assert (found["i-1"].place, found["i-1"].cause) == ("train.py:88", "uneven-steps")
        assert found["i-1"].group == group_of("uneven-steps", "Vision", "/home/mia/train.py", 88)
        assert found["i-2"].place == ""
        assert store.lists.groups(Wanted(), "", 10, 0).total == 2
    finally:
        store.close()


def test_what_was_noted_goes_with_the_last_incident(store: Store) -> None:
    store.put_incident(incident("i", 10.0)).result()
    (listed,) = store.lists.incidents(Wanted()).rows
    store.put_review(listed.group, Review("resolved", "fixed", 20.0)).result()
    assert store.lists.review(listed.group) == Review("resolved", "fixed", 20.0)
    store.forget(0.0, 30.0, 0.0).result()
    assert store.lists.review(listed.group) is None
    assert store.lists.incidents(Wanted()).total == 0


def test_runs_that_are_not_heard_of_are_silent(store: Store) -> None:
    join(store, run("old", 10.0))
    join(store, run("new", 60.0))
    store.silence_runs(50.0).result()
    assert {row.key: row.state for row in store.lists.runs(Wanted(), 10, 0).rows} == {"old": "silent", "new": "running"}
