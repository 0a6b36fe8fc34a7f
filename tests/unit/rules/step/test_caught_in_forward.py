"""`exception-on-one-rank`: an error in a model's forward that was caught, where ranks have ended of what followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.shifted_calls import shifted
from hangwatch.facts.case import Case
from hangwatch.model import Collective, Frame, Phase, RankEvidence
from tests.unit.job import C10D, SCRIPT, TORCH, blamed, judge, snapshot
from tests.unit.job import told as said
from tests.unit.rules.step.aborts import MODULE, dead

REDUCE = (Frame(C10D, 3252, "all_reduce"), Frame(SCRIPT, 19, "one_epoch"), MODULE)
IN_FORWARD = (
    Frame(C10D, 3252, "all_reduce"),
    Frame(SCRIPT, 40, "forward"),
    Frame(f"{TORCH}/nn/modules/module.py", 1789, "_call_impl"),
    Frame(SCRIPT, 12, "one_epoch"),
    MODULE,
)


def ended(
    rank: int, last: int, phase: Phase, *, code: int = -15, forwards: int = 9, frames: tuple[Frame, ...] = REDUCE
) -> RankEvidence:
    """It made the call at the end of its epoch as number 66, and now as number `last`; what lies between was C++'s."""
    numbers = [66] if last <= 66 else [66, last]
    ring = tuple(
        Collective(
            "0", seq, "all_reduce", ((1,),), ("Float",), frames=frames, at=seq, step=seq, thread_name="MainThread"
        )
        for seq in numbers
    )
    found = dead(rank, ring, code)
    assert found.reading is not None
    progress = replace(found.reading.progress, forwards=forwards)
    heads = tuple(replace(head, members=(0, 1, 2)) for head in found.reading.heads)
    collectives = replace(found.collectives, heads=heads)
    stacks = tuple(replace(stack, source="crash" if code == -6 else "board") for stack in found.stacks)
    reading = replace(found.reading, phase=phase, progress=progress, heads=heads)
    return replace(found, reading=reading, collectives=collectives, stacks=stacks if last > 66 else ())


def job(*others: RankEvidence, culprit: RankEvidence | None = None) -> list[RankEvidence]:
    return [*others, culprit or ended(2, 89, Phase.FORWARD, code=-6)]


LATER = [ended(0, 90, Phase.BACKWARD), ended(1, 90, Phase.FINALIZING)]
IN_BACKWARD = [ended(rank, 66, Phase.BACKWARD) for rank in (0, 1)]


def test_the_number_of_a_common_call_shows_what_was_left_out() -> None:
    found = shifted(Case(snapshot(*job(*LATER))))
    assert found is not None
    assert (found.ranks, found.others, found.missing) == ((2,), (0, 1), 1)
    assert shifted(Case(snapshot(*job(*IN_BACKWARD)))) is None


@pytest.mark.parametrize("others", [LATER, IN_BACKWARD], ids=["came to the call later", "still in backward"])
def test_an_error_that_left_forward_is_the_cause(others: list[RankEvidence]) -> None:
    judgement = judge(*job(*others))
    assert said(judgement) == ("exception-on-one-rank", "likely", "failed")
    assert blamed(judgement) == [(2, 102, "rank")]
    assert judgement.verdict.evidence[0].startswith("the last forward of rank 2 began and did not return")


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(job(*IN_BACKWARD, culprit=ended(2, 89, Phase.BACKWARD, code=-6)), id="its forward returned"),
        pytest.param(
            job(*IN_BACKWARD, culprit=ended(2, 89, Phase.FORWARD, code=-6, frames=IN_FORWARD)),
            id="it is in its forward",
        ),
        pytest.param(
            job(*IN_BACKWARD, culprit=ended(2, 89, Phase.FORWARD, code=-15)), id="the frames between are not known"
        ),
        pytest.param(
            job(*(ended(rank, 66, Phase.BACKWARD, forwards=8) for rank in (0, 1))), id="the others are a step behind"
        ),
        pytest.param(job(*(ended(rank, 89, Phase.FORWARD, code=-6) for rank in (0, 1))), id="so did the others"),
    ],
)
def test_no_error_is_said_to_have_left_forward(evidence: list[RankEvidence]) -> None:
    assert said(judge(*evidence))[0] != "exception-on-one-rank"
