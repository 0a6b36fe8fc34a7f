"""The culprit's line of code in the verdict."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.judge.verdict import quoted
from hangwatch.model import Culprit, Excerpt
from tests import examples

BARRIER = Excerpt(examples.SCRIPT, 88, 86, ("for batch in loader:", "    step(batch)", "dist.barrier()"))
WHO = Culprit(3, where=examples.BARRIER)


def test_the_diagnosis_quotes_the_culprits_line() -> None:
    other = replace(BARRIER, line=71)
    snapshot = replace(examples.uneven_steps_snapshot(), excerpts=(other, BARRIER))
    assert [who.excerpt for who in diagnose(snapshot).verdict.culprits] == [BARRIER]


def test_without_excerpts_nothing_is_quoted() -> None:
    assert quoted([WHO, Culprit(1)], ()) == (WHO, Culprit(1))
    assert quoted([WHO], [replace(BARRIER, file="/other.py")]) == (WHO,)


def test_nodes_with_one_file_agree_and_with_different_files_are_not_quoted() -> None:
    assert quoted([WHO], [BARRIER, replace(BARRIER, changed=True)])[0].excerpt == replace(BARRIER, changed=True)
    assert quoted([WHO], [BARRIER, replace(BARRIER, lines=("something else",))]) == (WHO,)
