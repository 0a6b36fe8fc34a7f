"""The link against a dashboard whose answers are scripted. The watchdog's side must never wait, raise or lose order."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangwatch import model
from hangwatch.model import (
    Collective,
    GroupHead,
    Job,
    LoaderFacts,
    NodeBatch,
    NodeCapture,
    NodeFacts,
    NodeIncident,
    Phase,
    Snapshot,
)
from hangwatch.settings import Settings
from hangwatch.wire import codec
from hangwatch_agent.dashboard_client import link as link_module
from hangwatch_agent.dashboard_client import sender
from hangwatch_agent.dashboard_client import spool as spool_module
from hangwatch_agent.dashboard_client.connection import AddressError, Connection
from hangwatch_agent.dashboard_client.link import Link, packed
from hangwatch_agent.dashboard_client.messages import rank_messages, waiting_for
from hangwatch_agent.dashboard_client.spool import Spool
from tests.examples import uneven_steps
from tests.unit.agent.readings import blocked, rank_state, reading
from tests.unit.agent.stub import Stub, accepted

JOB = Job("job", "resnet", None)
RANKS = (rank_state(0), rank_state(1, state="T", heads=blocked()))


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(sender, "LONGEST_PAUSE_S", 0.05)


def link_to(stub: Stub, spool: Path, said: list[str] | None = None, token: str = "") -> Link:
    lines = [] if said is None else said
    given = Settings(dashboard=stub.address, token=token)
    return Link(given, spool, JOB, say=lines.append, node="node-a")


def test_batches_are_what_the_dashboard_reads(stub: Stub, tmp_path: Path) -> None:
    link = link_to(stub, tmp_path, token="0123456789abcdef")
    began = time.time()
    link.offer(RANKS, 20.0)
    link.offer(RANKS, 21.0)
    stub.wait(lambda: len(stub.got) == 2)
    first, second = (codec.decode(NodeBatch, sent.document) for sent in stub.got)
    assert (first.job, first.node, first.sequence, second.sequence) == ("job", "node-a", 0, 1)
    assert first.hello is not None
    assert second.hello is None
    assert first.hello.job.world_size == 2
    assert [(beat.rank, beat.process_state, beat.blocked, beat.still_s) for beat in first.ranks] == [
        (0, "S", False, 10.0),
        (1, "T", True, 10.0),
    ]
    assert first.hello.groups[0].id == first.ranks[1].heads[0].id
    assert stub.got[0].headers["authorization"] == "Bearer 0123456789abcdef"
    assert began - 5 < float(stub.got[0].headers["hangwatch-sent-at"]) < time.time() + 5
    assert stub.got[0].connection == stub.got[1].connection
    link.close(0)


def test_the_hello_comes_again_when_ranks_have_changed(stub: Stub, tmp_path: Path) -> None:
    link = link_to(stub, tmp_path)
    link.offer(RANKS[:1], 20.0)
    link.offer(RANKS, 21.0)
    stub.wait(lambda: len(stub.got) == 2)
    assert [len(sent.document["hello"]["ranks"]) for sent in stub.got] == [1, 2]
    link.close()


def test_links_are_kept_beside_what_a_capture_says_of_the_node(stub: Stub, tmp_path: Path) -> None:
    link = link_to(stub, tmp_path)
    carried = model.Link("10.0.0.1", "10.0.0.2", 1, 1 << 30, 2.0, 1 << 20)
    link.news(NodeFacts("node-a", (0, 1), shm_total=32 << 20))
    link.of_node(NodeFacts("node-a", (0, 1), links=(carried,)))
    link.news(NodeFacts("node-a", (0, 1), shm_total=64 << 20))
    link.offer(RANKS, 20.0)
    stub.wait(lambda: len(stub.got) == 1)
    facts = codec.decode(NodeBatch, stub.got[0].document).facts
    assert facts is not None
    assert (facts.links, facts.shm_total) == ((carried,), 64 << 20)
    link.close()


def test_the_goodbye_has_the_exit_code(stub: Stub, tmp_path: Path) -> None:
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    link.close(7, timeout=60)
    last = codec.decode(NodeBatch, stub.got[-1].document)
    assert (last.closing, last.exit_code, len(last.ranks)) == (True, 7, 2)
    assert not any(tmp_path.iterdir())


def test_a_full_queue_does_not_swallow_the_goodbye(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "QUEUE", 2)
    link, gate, busy = link_to(stub, tmp_path), threading.Event(), threading.Event()

    def hung_disk() -> None:
        busy.set()
        gate.wait(60)

    link._put(hung_disk)
    assert busy.wait(60)
    for now in (20.0, 21.0, 22.0, 23.0):
        link.offer(RANKS, now)
    link.close(7, timeout=0.1)
    gate.set()
    link._thread.join(60)
    assert not link._thread.is_alive()
    last = codec.decode(NodeBatch, stub.got[-1].document)
    assert (last.closing, last.exit_code, last.dropped) == (True, 7, 2)


def test_captures_are_asked_for_once(stub: Stub, tmp_path: Path) -> None:
    command = {"kind": "capture", "request": "c-1", "reason": "asked by a person"}
    stub.script = [accepted(0, command), accepted(1, command)]
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    link.offer(RANKS, 21.0)
    stub.wait(lambda: not stub.script)
    stub.wait(lambda: link._wanted)
    assert link.captures_wanted() == ["c-1"]
    assert link.captures_wanted() == []
    link.capture(Snapshot(JOB, 22.0, ()), "c-1")
    stub.wait(lambda: "capture" in stub.kinds())
    assert codec.decode(NodeCapture, stub.got[-1].document).request == "c-1"
    link.close()


def test_an_incident_travels_without_its_tree(stub: Stub, tmp_path: Path) -> None:
    link = link_to(stub, tmp_path)
    link.incident(uneven_steps())
    stub.wait(lambda: stub.kinds() == ["incident"])
    sent = codec.decode(NodeIncident, stub.got[0].document)
    assert sent.incident.stack_tree == ()
    assert sent.incident.verdict == uneven_steps().verdict
    link.close()


def test_an_outage_is_made_up_for_in_order(stub: Stub, tmp_path: Path) -> None:
    said: list[str] = []
    stub.stop()
    link = link_to(stub, tmp_path, said)
    for moment in range(5):
        link.offer(RANKS, 20.0 + moment)
    link.incident(uneven_steps())
    stub.wait(lambda: len(link._spool) == 6 and len(said) == 1)  # it has met the outage
    port = stub.port
    stub.start(port)
    stub.wait(lambda: len(stub.got) == 6 and len(said) == 2)
    assert [sent.document.get("sequence") for sent in stub.got] == [0, 1, 2, 3, 4, None]
    assert "cannot be reached" in said[0]
    assert "answers again" in said[1]
    link.close()


def test_what_a_killed_watchdog_has_left_is_sent_by_the_next(stub: Stub, tmp_path: Path) -> None:
    left = Spool(tmp_path, "boot-0")
    left.open()
    left.put("incident", packed({"left": True}))
    assert left._lock is not None
    left._lock.close()  # as the system does for a process that dies
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    stub.wait(lambda: len(stub.got) == 2)
    assert stub.got[0].document == {"left": True}
    link.close()


def test_the_spool_of_a_living_watchdog_is_let_alone(stub: Stub, tmp_path: Path) -> None:
    other = Spool(tmp_path, "boot-0")
    other.open()
    other.put("incident", packed({"left": True}))
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    stub.wait(lambda: len(stub.got) == 1)
    link.close()
    assert other.first() is not None
    assert [sent.kind for sent in stub.got if "left" in sent.document] == []
    other.close()


def test_a_dashboard_without_memory_is_told_the_hello(stub: Stub, tmp_path: Path) -> None:
    hello = {"kind": "hello", "request": "", "reason": ""}
    stub.script = [accepted(0), accepted(-1, hello)]
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    link.offer(RANKS, 21.0)
    stub.wait(lambda: len(stub.got) == 3)
    assert [bool(sent.document["hello"]) for sent in stub.got] == [True, False, True]
    assert [sent.document["sequence"] for sent in stub.got] == [0, 1, 1]
    link.close()


def test_an_incident_for_a_dashboard_without_memory_waits_for_the_introduction(stub: Stub, tmp_path: Path) -> None:
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    stub.wait(lambda: len(stub.got) == 1)
    stub.script = [(428, {"error": "boot: no batch of it has come yet"})]
    link.incident(uneven_steps())
    stub.wait(lambda: len(stub.got) == 4)
    assert stub.kinds() == ["batch", "incident", "batch", "incident"]
    assert stub.got[2].document["hello"]
    link.close()


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_is_refused_for_good_is_not_sent_again(stub: Stub, tmp_path: Path, status: int) -> None:
    said: list[str] = []
    stub.script = [(status, {"error": "no"})]
    link = link_to(stub, tmp_path, said)
    link.offer(RANKS, 20.0)
    link.offer(RANKS, 21.0)
    stub.wait(lambda: len(stub.got) == 2)
    assert link.dropped == 1
    assert said == [f"hangwatch: the dashboard refuses what it is sent: {status} no"]
    link.close()


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_what_may_be_taken_later_is_sent_again(stub: Stub, tmp_path: Path, status: int) -> None:
    stub.script = [(status, {"error": "not now"})]
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    stub.wait(lambda: len(stub.got) == 2)
    assert [sent.document["sequence"] for sent in stub.got] == [0, 0]
    assert link.dropped == 0
    link.close()


def test_a_batch_that_is_there_already_counts_as_taken(stub: Stub, tmp_path: Path) -> None:
    stub.script = [(409, {"error": "sequence: 0 is there already"})]
    link = link_to(stub, tmp_path)
    link.offer(RANKS, 20.0)
    stub.wait(lambda: len(stub.got) == 1 and len(link._spool) == 0)
    assert link.dropped == 0
    link.close()


def test_a_slow_dashboard_does_not_hold_up_the_watchdog(stub: Stub, tmp_path: Path) -> None:
    stub.answers.clear()
    link = link_to(stub, tmp_path)
    started = time.monotonic()
    for moment in range(200):
        link.offer(RANKS, 20.0 + moment)
    link.close(timeout=0.1)
    assert time.monotonic() - started < 60  # a watchdog that waited would need 100 s for the first of them
    assert link.dropped > 0


def test_a_spool_that_cannot_be_made_costs_only_the_spool(stub: Stub, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("")
    link = link_to(stub, tmp_path / "file" / "spool", said)
    link.offer(RANKS, 20.0)
    stub.wait(lambda: len(stub.got) == 1)
    assert "no spool" in said[0]
    link.close()


def test_a_local_identity_gives_way_to_that_of_the_ranks(stub: Stub, tmp_path: Path) -> None:
    settings = Settings(dashboard=stub.address)
    link = Link(settings, tmp_path, Job("local-node-a-7", "x", None), node="node-a")
    link.offer((), 20.0)
    link.offer(RANKS, 21.0)
    stub.wait(lambda: len(stub.got) == 1)
    assert (stub.got[0].document["job"], stub.got[0].document["hello"]["job"]["id"]) == ("job", "job")
    link.close()


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://x:port", ""])
def test_an_address_that_is_none_is_said_at_once(address: str, tmp_path: Path) -> None:
    with pytest.raises(AddressError):
        Connection(address, "")


def test_hostile_text_is_sent_as_text() -> None:
    assert gzip.decompress(packed({"a": "\ud800é\x1b", "b": float("nan")})) == b'{"a":"?\xc3\xa9\\u001b","b":null}'


def test_the_spool_gives_up_batches_before_incidents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MOST_BATCHES", 2)
    monkeypatch.setattr(spool_module, "MOST_BYTES", 25)
    spool = Spool(tmp_path, "b")
    spool.open()
    spool.put("incident", b"0123456789")
    for _ in range(4):
        spool.put("batch", b"0123456789")
    assert [item.kind for item in spool._items] == ["incident", "batch"]
    assert spool.dropped == 3
    assert len(list(spool.folder.glob("*.batch"))) == 1
    spool.close()


def test_two_claimants_of_a_rank_are_one_beat() -> None:
    dead, living = rank_state(0, pid=1, state="X"), rank_state(0, pid=2)
    (beat,) = rank_messages((living, dead), 20.0, Settings())
    assert beat.pid == 2


def test_what_a_rank_waits_for_in_words() -> None:
    call = Collective("0", 12, "all_reduce")
    assert waiting_for(reading(open_calls=(call,))) == "all_reduce 12 of group 0"
    assert waiting_for(reading(open_calls=(Collective("0", 1, "recv", peer=3),))) == "recv with rank 3"
    assert waiting_for(reading(loaders=(LoaderFacts(1, 10, inside_next=True),))) == "a batch of loader 1"
    assert waiting_for(reading(heads=blocked())) == "collective 12 of group 0"
    assert waiting_for(reading(phase=Phase.DATA)) == ""


def test_of_two_calls_that_are_not_complete_a_rank_waits_for_the_first() -> None:
    heads = (GroupHead("0", (0, 1), issued=306, completed=304),)
    assert waiting_for(reading(heads=heads)) == "collective 305 of group 0"
    # AND by its name where Python code issued it: a send takes no number of the group
    calls = (Collective("0", 305, "isend", peer=1), Collective("0", 305, "all_reduce"), Collective("0", 306, "barrier"))
    assert waiting_for(reading(heads=heads, calls=calls)) == "all_reduce 305 of group 0"
