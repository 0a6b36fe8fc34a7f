"""Asking NCCL's RAS service: the conversation, its deadline, and whatever else may listen on that port."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Collectives, GroupHead, NodeFacts, ProcessFacts, RankEvidence
from hangwatch_agent.capture.options import CaptureResult
from hangwatch_agent.capture.proc import sockets
from hangwatch_agent.capture.rank.ras import NoAnswerError, Ras, ask, places
from tests.ras_standin import communicator, document, rank, serving
from tests.unit.agent.readings import reading

WIDE = 60.0  # seconds: what must not take for ever, on a busy machine


def taken(place: str, *, backend: str = "nccl", pids: tuple[int, int] = (1000, 1001), **settings: str) -> CaptureResult:
    heads = (GroupHead("0", (0, 1), backend=backend, issued=3, completed=2),)
    environment = {"NCCL_RAS_ADDR": place} if place else {}
    ranks = [
        RankEvidence(
            each, "a", pid, reading(each, pid=pid, environment=environment | settings),
            ProcessFacts(pid, "S"), collectives=Collectives(heads),
        )
        for each, pid in enumerate(pids)
    ]  # fmt: skip
    return CaptureResult(20.0, tuple(ranks), (), (), NodeFacts("a"), ())


ANSWER = document(communicator(rank(0, 1000, 3), rank(1, 1001, 2)))


def test_json_is_asked_for_first() -> None:
    with serving(ANSWER) as service:
        found = Ras().completed(taken(service.place))
    assert service.lines == ["CLIENT PROTOCOL 2", "TIMEOUT 2", "SET FORMAT json", "STATUS"]
    assert found.node.nccl is not None
    assert found.node.nccl.of_note[0].members == (0, 1)
    assert [(note.source, note.ok) for note in found.notes] == [("NCCL's RAS service", True)]


def test_an_old_version_is_asked_for_text() -> None:
    answer = b"NCCL version 2.26.2 compiled with CUDA 12.8\nNo communicator data collected!\n"
    with serving(answer, speaks_json=False) as service:
        found = Ras().completed(taken(service.place))
    assert service.lines[-1] == "VERBOSE STATUS"
    assert found.node.nccl is not None
    assert found.node.nccl.version == "2.26.2"


def test_jobs_without_nccl_are_not_asked() -> None:
    with serving(ANSWER) as service:
        found = Ras().completed(taken(service.place, backend="gloo"))
    assert service.lines == []
    assert found.notes == ()


def test_no_listener_is_one_sentence() -> None:
    with serving(ANSWER) as service:
        place = service.place
    found = Ras().completed(taken(place))
    (note,) = found.notes
    assert not note.ok
    assert note.detail == f"no process answers at {place}: NCCL is older than 2.24, or its RAS service is turned off"
    assert found.node.nccl is None


def test_a_service_that_is_turned_off_is_not_asked() -> None:
    with serving(ANSWER) as service:
        found = Ras().completed(taken(service.place, NCCL_RAS_ENABLE="0"))
    assert service.lines == []
    assert "turned off" in found.notes[0].detail


def test_another_jobs_answer_is_told() -> None:
    with serving(ANSWER) as service:
        found = Ras().completed(taken(service.place, pids=(77, 78)))
    assert found.node.nccl is None
    assert "another job" in found.notes[0].detail


@pytest.mark.parametrize("behaviour", ["silent", "trickles", "stops"])
def test_who_does_not_come_to_an_end_is_given_up_and_not_asked_again(behaviour: str) -> None:
    began = time.monotonic()
    with serving(ANSWER, behaviour=behaviour) as service:
        watch = Ras(deadline_s=0.5)
        first = watch.completed(taken(service.place))
        asked = len(service.lines)
        second = watch.completed(taken(service.place))
        assert len(service.lines) == asked
    assert time.monotonic() - began < WIDE
    assert "no whole answer within 0.5 s" in first.notes[0].detail
    assert second.notes[0].detail == first.notes[0].detail


@pytest.mark.parametrize(
    ("behaviour", "why"), [("garbage", "is not NCCL's"), ("closes", "closed|reset"), ("endless", "larger than 32 MiB")]
)
def test_what_is_not_nccl_is_told(behaviour: str, why: str) -> None:
    with serving(ANSWER, behaviour=behaviour) as service, pytest.raises(NoAnswerError, match=why):
        ask(service.place, 30.0)


@pytest.mark.parametrize("place", ["nonsense", "localhost:", "localhost:99999", "localhost:-1"])
def test_an_address_that_is_none_is_told(place: str) -> None:
    with pytest.raises(NoAnswerError, match="names no port"):
        ask(place)


def test_a_name_that_does_not_resolve_or_takes_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, why in (((), "its name is not known"), (None, "no whole answer")):
        monkeypatch.setattr(sockets, "resolve", lambda host, timeout_s, found=found: found)
        with pytest.raises(NoAnswerError, match=why):
            ask("somewhere:28028")


def test_a_service_by_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "resolve", lambda host, timeout_s: ("127.0.0.2", "127.0.0.1"))
    with serving(ANSWER) as service:
        assert ask(f"node-a:{service.place.rpartition(':')[2]}") == ANSWER
        assert ask(f"localhost:{service.place.rpartition(':')[2]}") == ANSWER


def test_every_address_that_ranks_were_given_is_tried() -> None:
    """With one host identifier for each rank, each has a service of its own."""
    assert places([{}, {"NCCL_RAS_ADDR": "a:1"}, {}, {"NCCL_RAS_ADDR": "a:1"}]) == ["localhost:28028", "a:1"]
    with serving(ANSWER) as gone:
        closed = gone.place
    with serving(ANSWER) as service:
        first, second = taken(closed).ranks[0], taken(service.place).ranks[1]
        found = Ras().completed(replace(taken(""), ranks=(first, second)))
    assert found.node.nccl is not None


def test_a_process_in_a_container_is_known_by_its_pid_there(tmp_path: Path) -> None:
    for pid, inner in ((1000, 8), (1001, 9)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Name:\tpython\nNSpid:\t{pid}\t{inner}\n")
    with serving(document(communicator(rank(0, 8, 3), rank(1, 9, 2)))) as service:
        found = Ras(proc=tmp_path).completed(taken(service.place))
    assert found.node.nccl is not None
    assert found.node.nccl.of_note[0].members == (0, 1)
