"""`point-to-point-deadlock`: a send or receive that names another peer than the rank that waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Collective, RankEvidence, Snapshot, Verdict
from tests.unit.rules.step.worlds import Groups, Program, changed, world
from tests.unit.simulator import Call, Draw, Peer

ROUND = Call("barrier", line=90)
STAGES: Groups = {"1": [(0, 1), (2, 3)]}


def told(snapshot: Snapshot) -> tuple[Verdict, list[tuple[int | None, int | None]]]:
    verdict = diagnose(snapshot).verdict
    return verdict, [(each.rank, each.where.line if each.where else None) for each in verdict.culprits]


def pipeline(*last: Peer) -> Snapshot:
    """Three stages, of which the last one makes the calls `last` behind the activation that it receives."""
    first: Program = [Peer("send", 1, line=21), Peer("recv", 1, line=25)]
    middle: Program = [Peer("recv", 0, line=17), Peer("send", 2, line=21), Peer("recv", 2, line=25)]
    return world(first, [*middle, Peer("send", 0, line=29)], [Peer("recv", 1, line=17), *last])


def grid(*replica: Peer) -> Snapshot:
    """Two pipelines of two stages; `replica` is what the last stage of the second one calls."""
    end = Call(group="1", line=32)
    first: list[Program] = [[Peer("send", peer, line=11), Peer("recv", peer, line=13), end] for peer in (2, 3)]
    last: Program = [Peer("recv", 0, line=17), Peer("send", 0, line=20), end]
    return world(*first, last, [*replica, end], groups=STAGES)


def sized(entry: RankEvidence, size: int) -> RankEvidence:
    """The same with messages of so many elements."""

    def of_size(calls: tuple[Collective, ...]) -> tuple[Collective, ...]:
        return tuple(replace(call, sizes=((size,),)) if call.op in ("send", "recv") else call for call in calls)

    assert entry.reading is not None
    made, known = entry.reading, entry.collectives
    return replace(
        entry,
        reading=replace(made, calls=of_size(made.calls), open_calls=of_size(made.open_calls)),
        collectives=replace(known, recent=of_size(known.recent), open_calls=of_size(known.open_calls)),
    )


def test_a_send_that_names_a_rank_with_which_nothing_was_exchanged() -> None:
    """GIVEN a circle of three THEN the first stage, which waits for its own partner, is not the one that is wrong."""
    verdict, culprits = told(pipeline(Peer("send", 0, line=29)))
    assert (verdict.cause, verdict.certainty, culprits) == ("point-to-point-deadlock", "likely", [(2, 29)])
    assert verdict.summary == (
        "Rank 2 sends to rank 0 (train.py:29), which makes no receive from it, while rank 1 waits to receive from"
        " rank 2 (train.py:25): rank 2 probably names the wrong peer."
    )
    assert verdict.fix.startswith("compare the peers at train.py:29 with those of train.py:25")
    assert "rank 2 has exchanged messages with rank 1 before, and none with rank 0" in verdict.evidence
    assert "rank 2 made 1 send with rank 0, which made 0 receives with it" in verdict.evidence
    assert set(verdict.victims) == {0, 1}


def test_a_receive_that_names_another_rank_than_other_ranks_do_from_that_line() -> None:
    verdict, culprits = told(grid(Peer("recv", 2, line=17), Peer("send", 2, line=20)))
    assert (verdict.cause, culprits) == ("point-to-point-deadlock", [(3, 17)])
    assert "Rank 3 receives from rank 2 (train.py:17), which makes no send to it, while rank 1" in verdict.summary
    assert "rank 2 received (train.py:17) what rank 0 sent (train.py:11)" in verdict.evidence


def test_the_number_of_a_rank_in_a_group_of_its_own_is_told() -> None:
    """GIVEN ranks 3, 2 and 1 in one group THEN the number 2 there is that of rank 1, as `group_src` would take it."""
    first: list[Program] = [[Peer("send", peer, line=11), Peer("recv", peer, line=13), ROUND] for peer in (2, 3)]
    last: Program = [Peer("recv", 0, line=17), Peer("send", 0, line=20), ROUND]
    of_three: Groups = {"1": [(3, 2, 1)]}
    wrong: Program = [Peer("recv", 2, line=17), ROUND]
    verdict, culprits = told(world(*first, last, wrong, groups=of_three))
    assert culprits == [(3, 17)]
    assert any(sentence.startswith("rank 1 has number 2 in group 1: dst and src are") for sentence in verdict.evidence)


@pytest.mark.parametrize(("times", "in_a_row", "named"), [(5, 1, True), (4, 1, False), (1, 8, False)])
def test_a_line_that_named_one_peer_time_and_again_names_another_one(times: int, in_a_row: int, named: bool) -> None:
    """Few turns are no habit, nor many calls of one: a loop over several peers makes calls of one line, too."""
    sends: Program = [Draw(), *[Peer("send", 1, line=20)] * in_a_row, ROUND]
    receives: Program = [Draw(), *[Peer("recv", 0, line=30)] * in_a_row, ROUND]
    ends: list[Program] = [[Draw(), Peer("send", 2, line=20)], receives[:2], [Draw(), ROUND]]
    rounds = [sends, receives, ends[-1]]
    verdict, culprits = told(world(*([*turn * times, *end] for turn, end in zip(rounds, ends, strict=True))))
    assert ("probably names the wrong peer" in verdict.summary) is named
    if named:
        assert culprits == [(0, 20)]
        assert "rank 0 named rank 1 in all 5 calls from train.py:20 before" in verdict.evidence


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(
            world([Peer("send", 2)], [Peer("recv", 0)], [Peer("recv", 1)]), id="nothing is known of any before"
        ),
        pytest.param(
            world(
                [Peer("recv", 1, line=31), Peer("recv", 2, line=31), ROUND],
                [ROUND],
                [Peer("send", 0, line=49), ROUND],
            ),
            id="the first of several senders left its send out",
        ),
        pytest.param(
            world(
                [Peer("send", 1, line=21), Peer("recv", 1, line=25), ROUND],
                [Peer("recv", 0, line=17), Peer("send", 2, line=21), ROUND],
                [ROUND],
            ),
            id="the last stage went by its first batch",
        ),
        pytest.param(
            world(
                [Peer("send", 1, line=59), Peer("recv", 1, line=60), Peer("send", 1, line=59), ROUND],
                [Peer("recv", 0, line=62), Peer("send", 0, line=63), Peer("send", 2, line=59), ROUND],
                [Peer("recv", 0, line=62), ROUND],
            ),
            id="each of three names the next one, by one rule",
        ),
    ],
)
def test_where_a_message_may_be_lacking_no_peer_is_called_wrong(found: Snapshot) -> None:
    assert "wrong peer" not in diagnose(found).verdict.summary


def test_a_message_of_another_size_is_not_the_one_for_which_the_rank_waits() -> None:
    wrong = grid(Peer("recv", 2, line=17))
    alike = changed(changed(wrong, 3, lambda entry: sized(entry, 8)), 1, lambda entry: sized(entry, 8))
    unlike = changed(alike, 1, lambda entry: sized(entry, 9))
    assert "wrong peer" in diagnose(alike).verdict.summary
    assert "wrong peer" not in diagnose(unlike).verdict.summary
