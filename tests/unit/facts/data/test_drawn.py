"""Batches that ranks drew, and which ranks drew fewer than others did or will."""

from __future__ import annotations

import pytest

from hangwatch.facts.data.batches import is_short
from hangwatch.facts.data.drawn import Drawn, drawn_by_epoch
from hangwatch.model import LoaderFacts


def loader(length: int | None, drawn: int, resumed_at: int = 0) -> LoaderFacts:
    return LoaderFacts(0, length, 0, drawn=drawn, resumed_at=resumed_at)


@pytest.mark.parametrize(
    ("other", "short"),
    [
        (loader(145, 140), True),  # it has five more to draw
        (loader(140, 140), False),  # perhaps it works on its last one
        (loader(None, 140), False),
        (loader(145, 139), False),  # it is behind, and may be late
        (loader(145, 140, resumed_at=5), False),  # it has drawn all that is left
        (loader(150, 141), True),
    ],
)
def test_a_rank_that_has_drawn_all_is_short_where_others_have_more(other: LoaderFacts, short: bool) -> None:
    """GIVEN a trainer that stops by length, on a rank whose loader has 140 batches."""
    mine = drawn_by_epoch(loader(140, 140), past=True)[0]
    assert mine == Drawn(140, ended=True, exhausted=True)
    theirs = drawn_by_epoch(other)[0]
    assert is_short(mine, (mine, theirs)) is short
