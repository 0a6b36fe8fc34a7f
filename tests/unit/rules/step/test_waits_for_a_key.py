"""Ranks that wait for a key of a store are not to blame: the rank that did not set it is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import (
    Collective,
    ExceptionFacts,
    Frame,
    LoopFacts,
    OpenFile,
    Phase,
    Progress,
    RankEvidence,
    Socket,
    WayOut,
)
from tests.unit.job import C10D, IN_BACKWARD, IN_BARRIER, NOW, SCRIPT, blamed, frames, gone, judge, rank, told

AGREE = (Frame(SCRIPT, 12, "agree_on_name"), Frame(SCRIPT, 40, "main"), Frame(SCRIPT, 90, "<module>"))
GET = (Frame("libtorch_cpu.so", 0, "c10d::TCPStore::doGet", native=True), *AGREE)
STORE = OpenFile(6, "socket 127.0.0.1:40846 -> 127.0.0.1:29500")


def waiting(number: int) -> RankEvidence:
    return rank(number, IN_BACKWARD, progress=Progress(step=5), issued=4, completed=3, world_size=3)


def asking(number: int, stack: tuple[Frame, ...], **facts: Any) -> RankEvidence:
    environment = {"MASTER_PORT": "29500"}
    found = rank(
        number, stack, progress=Progress(step=4), issued=3, completed=3, world_size=3,
        facts={"system_call": "poll", "environment": environment, **facts},
    )  # fmt: skip
    return replace(found, stacks=tuple(replace(each, in_loop=False) for each in found.stacks))


@pytest.mark.parametrize(("stack", "facts"), [(GET, {}), (AGREE, {"blocked_on": STORE})])
def test_no_rank_is_blamed_and_those_past_the_line_are_told(stack: tuple[Frame, ...], facts: dict[str, Any]) -> None:
    judgement = judge(waiting(0), asking(1, stack, **facts), asking(2, stack, **facts))
    assert told(judgement)[:2] == ("undetermined", "undetermined")
    assert blamed(judgement) == []
    verdict = judgement.verdict
    assert "Ranks 1-2 wait for a key of a store (train.py:12), which no rank has set yet" in verdict.summary
    assert "rank 0 is on a later line (train.py:50), and may have had to set it" in verdict.evidence


def test_in_a_loop_no_line_is_a_later_one() -> None:
    asks = asking(1, GET)
    asks = replace(asks, stacks=tuple(replace(each, in_loop=True) for each in asks.stacks))
    verdict = judge(waiting(0), asks, waiting(2)).verdict
    assert verdict.cause == "undetermined"
    assert not any("later line" in sentence for sentence in verdict.evidence)


def test_another_server_is_no_store() -> None:
    other = OpenFile(6, "socket 127.0.0.1:40846 -> 127.0.0.1:8080")
    judgement = judge(waiting(0), asking(1, AGREE, blocked_on=other), waiting(2))
    assert told(judgement)[0] == "user-code-blocked"
    assert blamed(judgement) == [(1, 101, "rank")]


OWN = OpenFile(6, "socket 127.0.0.1:51314 -> 127.0.0.1:29733")
LISTENS = Socket("[::]:29733", "[::]:0", "listen")
ITSELF = Socket("127.0.0.1:51298", "127.0.0.1:29733", "established")
TO_ITSELF = Socket("[::ffff:127.0.0.1]:29733", "[::ffff:127.0.0.1]:51298", "established")
TO_OTHERS = Socket("[::ffff:127.0.0.1]:29733", "[::ffff:127.0.0.1]:51314", "established")


@pytest.mark.parametrize(
    ("sockets", "cause"),
    [
        ((LISTENS, ITSELF, TO_ITSELF, TO_OTHERS), "undetermined"),
        ((LISTENS, TO_OTHERS), "user-code-blocked"),
        ((LISTENS, ITSELF, TO_ITSELF), "user-code-blocked"),
    ],
)
def test_a_rank_serves_a_store_of_the_programs_own_if_it_and_others_are_its_clients(
    sockets: tuple[Socket, ...], cause: str
) -> None:
    """GIVEN a TCPStore at another port than the job's."""
    first = waiting(0)
    assert first.process is not None
    first = replace(first, process=replace(first.process, sockets=sockets))
    verdict = judge(first, asking(1, AGREE, blocked_on=OWN), asking(2, AGREE, blocked_on=OWN)).verdict
    assert verdict.cause == cause
    assert ("Ranks 1-2 wait for a key of a store" in verdict.summary) is (cause == "undetermined")


@pytest.mark.parametrize(
    ("inside", "cause"),
    [(Frame("/usr/lib/libc.so.6", 0, "recv", native=True), "user-code-blocked"), (GET[0], "undetermined")],
)
def test_native_frames_tell_a_socket_of_the_programs_own_from_a_store(inside: Frame, cause: str) -> None:
    judgement = judge(waiting(0), asking(1, (inside, *AGREE), blocked_on=STORE), waiting(2))
    assert told(judgement)[0] == cause


def test_the_root_of_a_broadcast_may_wait_for_those_that_ask_the_store() -> None:
    stack = frames((C10D, 3151, "broadcast"))
    call = Collective("0", 1, "broadcast", ((8,),), ("Float",), frames=stack, peer=0)
    root = rank(0, stack, issued=1, completed=0, world_size=3, calls=(call,), open_calls=(call,))
    verdict = judge(root, *(asking(number, GET) for number in (1, 2))).verdict
    assert "Ranks 1-2 wait for a key of a store (train.py:12)" in verdict.summary


def test_all_ranks_may_wait_for_one_that_was_never_set() -> None:
    judgement = judge(*(asking(number, GET) for number in range(3)))
    assert told(judgement)[:2] == ("undetermined", "undetermined")
    assert judgement.verdict.summary == (
        "All ranks wait for a key of a store (train.py:12), which no rank has set yet."
    )


def test_a_rank_that_still_does_something_may_set_it() -> None:
    computes = rank(0, progress=Progress(step=5), issued=4, completed=4, world_size=3, facts={"cpu_delta_s": 0.9})
    judgement = judge(computes, asking(1, GET), asking(2, GET))
    assert "which no rank has set yet" not in judgement.verdict.summary


@pytest.mark.parametrize(("asks_store", "cause"), [(True, "undetermined"), (False, "user-code-blocked")])
def test_a_rank_that_asks_the_store_again_and_again_waits_for_another_one(asks_store: bool, cause: str) -> None:
    """A barrier by a counter of one's own: `while int(store.get(key)) < ranks: time.sleep(0.1)`."""
    loop = LoopFacts(Frame(SCRIPT, 11, "agree_on_name"), asks_store=asks_store)
    polls = [asking(number, AGREE, system_call="clock_nanosleep", blocked_on=None) for number in (1, 2)]
    polls = [
        replace(each, stacks=tuple(replace(stack, in_loop=True, loop=loop) for stack in each.stacks)) for each in polls
    ]
    judgement = judge(waiting(0), *polls)
    assert told(judgement)[0] == cause
    assert blamed(judgement) == []
    said = "Ranks 1-2 ask a store again and again (train.py:12), and have not found there what another rank has"
    assert judgement.verdict.summary.startswith(said) is asks_store


def test_ranks_that_ask_and_ranks_that_wait_are_told_apart() -> None:
    loop = LoopFacts(Frame(SCRIPT, 11, "agree_on_name"), asks_store=True)
    asks = asking(0, AGREE, system_call="clock_nanosleep", blocked_on=None)
    asks = replace(asks, stacks=tuple(replace(stack, in_loop=True, loop=loop) for stack in asks.stacks))
    verdict = judge(asks, asking(1, GET), asking(2, GET)).verdict
    assert verdict.summary == (
        "Rank 0 asks a store again and again (train.py:12), and has not found there what another rank has to set;"
        " ranks 1-2 wait for a key of a store (train.py:12), which no rank has set yet."
    )


def test_a_counter_may_have_passed_the_value_for_which_a_rank_asks() -> None:
    """GIVEN a rank that asks until a count equals the number of ranks, and that caught an error before."""
    loop_at = Frame(SCRIPT, 11, "agree_on_name")
    until = "while store.add(key, 0) != ranks"
    loop = LoopFacts(loop_at, asks_store=True, leaves=(loop_at,), ways_out=(WayOut(loop_at, until),))
    slow = ExceptionFacts("SlowReply", "arrived", AGREE, "MainThread", at=NOW - 50, step=3)
    asks = asking(1, AGREE, system_call="clock_nanosleep", blocked_on=None)
    assert asks.reading is not None
    stacks = tuple(replace(stack, in_loop=True, loop=loop) for stack in asks.stacks)
    verdict = judge(waiting(0), replace(asks, stacks=stacks, reading=replace(asks.reading, caught=(slow,)))).verdict
    assert verdict.cause == "undetermined"
    assert f"what it finds there does not end `{until}`" in verdict.summary
    assert "may have passed the one value that ends the loop" in verdict.fix
    assert "rank 1 caught SlowReply: arrived (train.py:12) before" in verdict.evidence


def failing(number: int, error: ExceptionFacts) -> RankEvidence:
    return gone(number, 1, Phase.FAILED, exception=error, world_size=3, progress=Progress(), issued=4, completed=3)


def test_ranks_that_gave_up_on_a_key_say_for_which_and_no_rank_is_blamed() -> None:
    """GIVEN a key that no rank set, and a rank that lost the ranks that had waited for it."""
    missing = ExceptionFacts("DistStoreError", "wait timeout after 30000ms, keys: /data/statistics", AGREE, at=NOW - 12)
    closed = ExceptionFacts("RuntimeError", "Connection closed by peer [127.0.0.1]:59549", IN_BARRIER, at=NOW - 11)
    judgement = judge(failing(0, closed), failing(1, missing), failing(2, missing))
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert judgement.verdict.summary == (
        "Ranks 1-2 waited 30 s for key 'data/statistics' of a store (train.py:12), which no rank had set, and gave up."
    )
    assert "rank 0 ended on a later line (train.py:50), and may have had to set it" in judgement.verdict.evidence


def test_a_rank_that_failed_before_the_key_was_missed_is_the_reason() -> None:
    missing = ExceptionFacts("DistStoreError", "wait timeout after 30000ms, keys: /data/statistics", AGREE, at=NOW - 12)
    own = ExceptionFacts("ValueError", "no such column", (Frame(SCRIPT, 50, "main"),), at=NOW - 40)
    judgement = judge(failing(0, own), failing(1, missing), failing(2, missing))
    assert told(judgement)[0] == "exception-on-one-rank"
    assert blamed(judgement) == [(0, 100, "rank")]


@pytest.mark.parametrize(("phase", "cause"), [(Phase.START, "user-code-blocked"), (Phase.STEP, "undetermined")])
def test_ranks_that_gave_up_at_the_start_name_the_one_that_had_not_come(phase: Phase, cause: str) -> None:
    """GIVEN gloo's key for the address of rank 1, and a rank 1 that still builds something."""
    start = (*frames((C10D, 2169, "_new_process_group_helper"), (C10D, 1899, "init_process_group")),)
    missing = ExceptionFacts("DistStoreError", "wait timeout after 20000ms, keys: /default_pg/0//cpu//0/1", start)
    builds = rank(1, AGREE, phase=phase, world_size=3, progress=Progress())
    ranks = [gone(number, 1, Phase.FAILED, exception=missing, world_size=3, progress=Progress()) for number in (0, 2)]
    judgement = judge(ranks[0], builds, ranks[1])
    assert told(judgement)[::2] == (cause, "failed")
    assert blamed(judgement) == ([(1, 101, "rank")] if cause == "user-code-blocked" else [])
    if cause == "user-code-blocked":
        assert "Rank 1 had not called init_process_group: it stood at train.py:12" in judgement.verdict.summary
        assert "ranks 0 and 2 waited there for it for 20 s, and gave up" in judgement.verdict.summary


def test_a_rank_that_has_ended_sets_none_any_more() -> None:
    verdict = judge(gone(0, 0, world_size=3), asking(1, GET), asking(2, GET), world_size=3).verdict
    assert verdict.cause == "undetermined"
    assert "rank 0 has ended, and can set no key any more" in verdict.evidence
