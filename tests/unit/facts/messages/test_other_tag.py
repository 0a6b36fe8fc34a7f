"""A send and a receive of two ranks that differ in their tags alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.messages.other_tag import OtherTag, other_tag
from hangwatch.judge import Case, diagnose
from hangwatch.model import RankEvidence, Snapshot
from tests.unit.rules.step.worlds import STEP, changed, world
from tests.unit.simulator import Peer


def _apart(tag: int, *, backend: str = "gloo", size: int = 4) -> Snapshot:
    """Rank 0 receives from rank 1, which sends to it in the same group, with that tag and as many elements."""
    found = world([*STEP, Peer("recv", 1)], [*STEP, Peer("send", 0, group="other")])

    def sent(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        calls, inside = (
            tuple(replace(call, group="0", tag=tag, sizes=((size,),)) if call.op == "send" else call for call in some)
            for some in (entry.reading.calls, entry.reading.open_calls)
        )
        collectives = replace(entry.collectives, recent=calls, open_calls=inside)
        return replace(entry, reading=replace(entry.reading, calls=calls, open_calls=inside), collectives=collectives)

    def received(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        calls, inside = (
            tuple(replace(call, sizes=((4,),)) if call.op == "recv" else call for call in some)
            for some in (entry.reading.calls, entry.reading.open_calls)
        )
        heads = tuple(replace(head, backend=backend) for head in entry.reading.heads)
        collectives = replace(entry.collectives, recent=calls, open_calls=inside, heads=heads)
        reading = replace(entry.reading, calls=calls, open_calls=inside, heads=heads)
        return replace(entry, reading=reading, collectives=collectives)

    return changed(changed(found, 1, sent), 0, received)


def test_both_tags_are_told_from_either_side() -> None:
    case = Case(_apart(7))
    expected = OtherTag(sender=1, receiver=0, sent=7, asked=0, sends=True)
    assert [other_tag(case, case.blocked[rank]) for rank in (0, 1)] == [expected, expected]


@pytest.mark.parametrize("parts", [{"tag": 0}, {"tag": 7, "size": 5}, {"tag": 7, "backend": "nccl"}])
def test_messages_that_differ_in_no_tag_or_in_more_are_none(parts: dict[str, Any]) -> None:
    case = Case(_apart(**parts))
    assert other_tag(case, case.blocked[0]) is None


def test_the_verdict_tells_the_tags_and_advises_on_them() -> None:
    verdict = diagnose(_apart(7)).verdict
    assert verdict.summary.endswith(
        ". Rank 0 receives only messages of tag 0 from rank 1 there, which sends it one of tag 7."
    )
    assert verdict.fix.startswith("give a message the same tag on both sides")
