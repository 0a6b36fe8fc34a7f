"""Every host waits for its device: the queues of live ranks are judged as those of dumps are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import (
    Bypass,
    CallSite,
    Certainty,
    Collective,
    Collectives,
    Frame,
    GroupHead,
    Job,
    ProcessFacts,
    RankEvidence,
    Snapshot,
    Status,
    ThreadStack,
)
from tests.unit.job import blamed
from tests.unit.simulator import SCRIPT

WORLD = (0, 1, 2, 3)
SPINS = Frame("libcudart.so.12", 0, "cudaStreamSynchronize", native=True)
Calls = list[tuple[tuple[int, ...], int]]  # members and the user's line


def calls(rank: int, *, rounds: int, without: int = -1) -> Calls:
    """A mesh of 2 x 2: a call among the ranks of a row, one among those of a column, and every tenth round one of all.

    In the round `without`, the first is left out.
    """
    row, column = ((0, 1), (2, 3))[rank // 2], ((0, 2), (1, 3))[rank % 2]
    made: Calls = []
    for turn in range(rounds):
        made += [(row, 19)] if turn != without else []
        made += [(column, 23)]
        made += [(WORLD, 34)] if turn % 10 == 9 else []
    return made


def name(members: tuple[int, ...]) -> str:
    return "0" if members == WORLD else "".join(map(str, members))


def recorded(made: Calls, done: dict[str, int]) -> Iterator[Collective]:
    counts: Counter[str] = Counter()
    for at, (members, line) in enumerate(made):
        group = name(members)
        counts[group] += 1
        number = counts[group]
        frames = (Frame(SCRIPT, line, "main"), Frame(SCRIPT, 99, "<module>"))
        over = number <= done[group]
        yield Collective(group, number, "all_reduce", ((64,),), ("Float",), retired=over, at=float(at), frames=frames)


def host(rank: int, made: Calls, done: dict[str, int], line: int) -> RankEvidence:
    """A rank whose host spins in `line` until its stream is empty."""
    issued = Counter(members for members, _ in made)
    heads = tuple(
        GroupHead(name(each), each, backend="nccl", issued=count, completed=done[name(each)])
        for each, count in issued.items()
    )
    stacks = (
        ThreadStack(1, "MainThread", (SPINS, Frame(SCRIPT, line, "main"), Frame(SCRIPT, 99, "<module>")), main=True),
    )
    process = ProcessFacts(100 + rank, "R", cpu_delta_s=1.0, io_delta_bytes=0)
    told = Collectives(heads, tuple(recorded(made, done)), source="flight-recorder")
    return RankEvidence(
        rank, pid=100 + rank, stacks=stacks, earlier_stacks=stacks, process=process, collectives=told,
        still_s=9.0, patience_s=120.0,
    )  # fmt: skip


def skipped_in_a_row() -> Snapshot:
    """Rank 2 left its row's call out in round 23: its later ones are mispaired, until all wait, ranks 1 and 3 behind.

    Ranks 0 and 2 have come to the call of all in round 29. Rank 3 waits in its row for a call that rank 2 has not made,
    and its column's call, which both of its members have enqueued, is held behind that.
    """
    short = {"01": 30, "23": 29, "02": 30, "13": 29, "0": 2}
    ranks = [host(0, calls(0, rounds=30), short, 35), host(2, calls(2, rounds=30, without=23), short, 35)]
    ranks += [host(rank, calls(rank, rounds=30)[:-1], short, 31) for rank in (1, 3)]
    return Snapshot(Job("j", "j", 4), 100.0, tuple(sorted(ranks, key=lambda each: each.rank)), sampled_twice=True)


def test_a_call_that_was_left_out_in_one_group_holds_the_others_over_several() -> None:
    judgement = diagnose(skipped_in_a_row())
    verdict = judgement.verdict
    assert (verdict.cause, verdict.certainty, judgement.status) == ("skipped-collective", Certainty.LIKELY, Status.HUNG)
    assert [rank for rank, *_ in blamed(judgement)] == [2]
    assert verdict.summary.startswith("Rank 2 left out all_reduce 24 of group 23 (train.py:19)"), verdict.summary
    assert "over all of their groups, ranks 0-1 and 3 made the same calls in one order" in verdict.evidence
    assert "wait for each other" in verdict.argument[0]
    assert verdict.hang is Certainty.LIKELY


@pytest.mark.parametrize(
    "changed",
    [{"still_s": 1.0}, {"moved": True}, {"earlier_stacks": ()}],
    ids=["not for long", "one that moves", "a stack that was seen once"],
)
def test_nothing_is_said_of_queues_while_a_host_may_go_on(changed: dict[str, object]) -> None:
    found = skipped_in_a_row()
    moving = replace(found.ranks[1], **changed)  # type: ignore[arg-type]
    judgement = diagnose(replace(found, ranks=(found.ranks[0], moving, *found.ranks[2:])))
    assert judgement.status is Status.WAITING
    assert not blamed(judgement)


def test_the_line_past_the_call_is_named_where_the_source_shows_one() -> None:
    lines = (Frame(SCRIPT, 19, "main"), Frame(SCRIPT, 99, "<module>"))
    way = Bypass(Frame(SCRIPT, 18, "main"), "if y.isnan().any(): continue", asks="value")
    verdict = diagnose(replace(skipped_in_a_row(), call_sites=(CallSite(lines, (way,)),))).verdict
    assert verdict.summary.endswith("That call was left out, probably at train.py:18 (`if y.isnan().any(): continue`).")
    assert [each.where and each.where.line for each in verdict.culprits] == [18]
