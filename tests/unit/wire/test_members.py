from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.wire import members


@given(st.lists(st.integers(0, 10_000), max_size=50))
def test_text_comes_back(ranks: list[int]) -> None:
    assert members.parse(members.text(ranks)) == tuple(ranks)


def test_runs_are_ranges() -> None:
    assert members.text(range(10_000)) == "0-9999"
    assert members.text([0, 1, 2, 8, 7]) == "0-2,8,7"
    assert members.text([]) == ""


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "1-", "0-99999999", "1 ", "٣", "0-1048575,0-1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a r"):
        members.parse(text)


def test_the_identifier_depends_on_name_and_members() -> None:
    known = members.identifier("0", (0, 1))
    assert known == members.identifier("0", [0, 1])
    assert len({known, members.identifier("1", (0, 1)), members.identifier("0", (1, 0))}) == 3
