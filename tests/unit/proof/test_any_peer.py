"""A receive from any rank: it ends when any other member sends, and never where none of them can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import Collective, Collectives, Frame, GroupHead, PeerCount, RankEvidence
from tests.unit.job import C10D, IN_CODE, SCRIPT, TORCH, rank, snapshot

LOGGER = f"{TORCH}/distributed/c10d_logger.py"
MEMBERS = (0, 1, 2)
IN_RECV = (Frame(C10D, 2706, "irecv"), Frame(C10D, 2796, "recv"), Frame(LOGGER, 83, "wrapper"))
SERVES = (*IN_RECV, Frame(SCRIPT, 11, "serve"))
ASKS = (*IN_RECV, Frame(SCRIPT, 31, "ask"))


def server(received: int, *, lines: tuple[Frame, ...] = SERVES) -> RankEvidence:
    """Rank 0 has asked for so many messages of any rank, the one that it waits for among them, and answered six."""
    asked = [Collective("0", number, "recv", frames=lines, thread_name="MainThread") for number in range(received)]
    answers = [Collective("0", number, "send", peer=1 + number % 2, frames=SERVES) for number in range(6)]
    return waiting(0, SERVES, [*answers, *asked], sent=6, received=received, peers=(PeerCount(1, 3), PeerCount(2, 3)))


def asking(number: int, sent: int = 4) -> RankEvidence:
    """A rank that has sent so many messages to rank 0, and waits for its answer to the last one."""
    calls = [Collective("0", n, op, peer=0, frames=ASKS) for n in range(sent) for op in ("send", "recv")]
    return waiting(number, ASKS, calls, sent=sent, received=sent, peers=(PeerCount(0, sent, sent),))


def waiting(number: int, stack: tuple[Frame, ...], calls: list[Collective], **counts: Any) -> RankEvidence:
    """A rank in the last of its calls."""
    head = GroupHead("0", MEMBERS, backend="gloo", **counts)
    found = rank(number, stack, world_size=3, calls=tuple(calls), open_calls=(calls[-1],))
    assert found.reading is not None
    told = Collectives((head,), tuple(calls), open_calls=(calls[-1],), source="board")
    return replace(found, reading=replace(found.reading, heads=(head,)), collectives=told)


def dead(*ranks: RankEvidence) -> frozenset[int]:
    return Case(snapshot(*ranks)).deadlocked


def test_it_never_ends_where_all_others_wait_for_that_rank() -> None:
    assert dead(server(9), asking(1), asking(2)) == {0, 1, 2}


def test_the_proof_says_that_one_of_them_would_do() -> None:
    verdict = diagnose(snapshot(server(9), asking(1), asking(2))).verdict
    assert any(
        "recv (train.py:11), which cannot complete without one of ranks 1-2" in each for each in verdict.argument
    )


def test_a_message_that_was_sent_may_be_on_its_way() -> None:
    """GIVEN as many messages sent as it has asked for THEN this one may be among them."""
    assert dead(server(9), asking(1), asking(2, sent=5)) == frozenset()


def test_a_ring_that_keeps_few_frames_shows_the_decorator_of_recv() -> None:
    few = (Frame(LOGGER, 83, "wrapper"), Frame(SCRIPT, 11, "serve"))
    assert dead(server(9, lines=few), asking(1), asking(2)) == {0, 1, 2}


def test_receives_that_return_at_once_may_take_other_messages() -> None:
    """GIVEN a receive that is still open besides THEN as many messages as were taken says nothing of this one."""
    at_once = (Frame(C10D, 2700, "irecv"), Frame(SCRIPT, 11, "serve"))
    assert dead(server(9, lines=at_once), asking(1), asking(2)) == frozenset()


def test_one_rank_that_can_move_may_send() -> None:
    assert dead(server(9), asking(1), rank(2, IN_CODE, world_size=3)) == frozenset()


def test_counts_that_are_not_known_prove_nothing() -> None:
    unknown = replace(asking(2), collectives=replace(asking(2).collectives, heads=()))
    assert dead(server(9), asking(1), replace(unknown, reading=None)) == frozenset()
