"""What a case knows of its ranks."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.case import Case, call_words
from hangwatch.model import Collective, Collectives, ExceptionFacts, Frame, Phase, ThreadStack
from hangwatch.proof.waits import Blocked
from hangwatch.stacks.classify import activity
from tests.unit.job import IN_BARRIER, IN_CODE, rank, snapshot
from tests.unit.simulator import Call, Draw, World


def test_a_rank_that_has_failed_and_destroyed_its_groups_has_made_its_last_call() -> None:
    """GIVEN two ranks in a call that the third has left out, WHEN one of them fails and destroys its groups, THEN the
    other is not alone in it."""
    steps = [each for batch in range(5) for each in (Draw(0, batch), Call("all_reduce", line=20))]
    extra = [*steps, Call("all_reduce", line=30)]
    snapshot = World([extra, extra, [*steps, Draw(0, 5), Call("broadcast", line=20)]]).run().snapshot()
    first, *others = snapshot.ranks
    assert first.reading is not None
    lost = ExceptionFacts("RuntimeError", "Connection closed by peer", (), fatal=True)
    calls = first.collectives.recent
    reading = replace(first.reading, heads=(), calls=calls, exception=lost, phase=Phase.ATEXIT)
    first = replace(first, reading=reading, collectives=Collectives())
    found = Case(replace(snapshot, ranks=(first, *others))).divergences
    assert [(each.step, each.counts) for each in found] == [(4, {0: 2, 1: 2, 2: 1})]


def test_a_send_is_told_as_what_the_program_called() -> None:
    """torch's send calls its isend."""
    c10d = "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
    stack = (Frame(c10d, 2652, "isend"), Frame(c10d, 2751, "send"), Frame("/job/train.py", 32, "forward"))
    now = activity(ThreadStack(1, "MainThread", stack, main=True))
    assert call_words(Blocked(0, now, call=Collective("0", 42, "send", peer=2))) == "send"


def test_a_rank_that_waits_in_a_call_has_no_patience_of_its_own() -> None:
    """GIVEN a rank in a barrier that two others have not made, WHEN patience with one, or with both, is over."""
    waits = rank(0, IN_BARRIER, issued=11, completed=10, world_size=3, still_s=20.0)
    for still_s, stalled in ((20.0, False), (40.0, True)):
        others = [
            rank(number, IN_CODE, issued=10, completed=10, world_size=3, still_s=still)
            for number, still in ((1, 40.0), (2, still_s))
        ]
        assert Case(snapshot(waits, *others, world_size=3)).stalled([0]) is stalled
