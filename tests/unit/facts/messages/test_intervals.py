"""Messages behind equally many collectives of each turn, and an evaluation between two epochs."""

from __future__ import annotations

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Judgement
from tests.unit.simulator import Action, Call, Peer, World, blamed_ranks

LEFT_OUT = "Rank 1 left out 1 send to rank 0 (train.py:30)"


def turn(rank: int, *, whole: bool = True) -> list[Action]:
    """A broadcast for each of three parameters, and a message of rank 1."""
    message = Peer("send", 0, line=30) if rank else Peer("recv", 1, line=40)
    return [*[Call("broadcast", line=10, root=0)] * 3, *([message] if whole else [])]


def judged(*epochs: int, evaluation: int = 0, line: int = 60) -> Judgement:
    """Turns in epochs, an evaluation of so many calls behind each but the last, and then a turn without rank 1's."""

    def program(rank: int) -> list[Action]:
        actions: list[Action] = []
        for index, turns in enumerate(epochs):
            actions += turn(rank) * turns
            if index + 1 < len(epochs):
                actions += [Call("broadcast", line=line, root=0)] * evaluation
        return [*actions, *turn(rank, whole=rank == 0), *turn(rank) * 2]

    return diagnose(World([program(0), program(1)]).run().snapshot())


@pytest.mark.parametrize(
    ("epochs", "evaluation"), [((6,), 0), ((4, 4), 2), ((4, 2), 2), ((2, 3), 1), ((2, 2, 2), 3)], ids=str
)
def test_a_rank_that_passed_the_place_of_its_next_message_left_it_out(epochs: tuple[int, ...], evaluation: int) -> None:
    judgement = judged(*epochs, evaluation=evaluation)
    assert judgement.verdict.summary.startswith(LEFT_OUT)
    assert blamed_ranks(judgement) == [1]


def test_messages_at_unequal_intervals_are_no_habit() -> None:
    """GIVEN more calls of that line between two messages WHEN the next is missing THEN no rank left it out."""
    assert blamed_ranks(judged(4, 4, evaluation=3, line=10)) == [0, 1]


def test_right_behind_an_evaluation_no_message_is_known_to_be_due() -> None:
    assert blamed_ranks(judged(5, 0, evaluation=2)) == [0, 1]
