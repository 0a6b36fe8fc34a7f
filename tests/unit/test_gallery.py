"""The command that plays a case of the gallery."""

from __future__ import annotations

import pytest

from hangwatch.gallery import CASES, Case, command

CHOOSABLE = [case for case in CASES if case.culprit is not None]


@pytest.mark.parametrize("case", CHOOSABLE, ids=lambda case: case.name)
def test_with_as_few_ranks_as_can_be_one_of_them_is_at_fault(case: Case) -> None:
    words = command(case, ranks=case.min_ranks)
    assert int(words[words.index("--culprit") + 1]) < case.min_ranks


def test_the_cases_own_rank_is_at_fault_where_it_is_there() -> None:
    for case in CHOOSABLE:
        words = command(case)
        assert words[words.index("--culprit") + 1] == str(case.culprit)
