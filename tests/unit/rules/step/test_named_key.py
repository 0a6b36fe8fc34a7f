"""The key for which ranks wait, where their source names it: which line sets it, and what kept a rank from that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import (
    Condition,
    ExceptionFacts,
    Frame,
    Judgement,
    KeySetter,
    LoopFacts,
    Progress,
    RankEvidence,
    StoreKey,
)
from tests.unit.job import C10D, SCRIPT, blamed, judge, rank, told

MAIN = "main"
ASKS = (Frame(SCRIPT, 40, MAIN), Frame(SCRIPT, 90, "<module>"))
GET = (Frame("libtorch_cpu.so", 0, "c10d::TCPStore::doGet", native=True), *ASKS)
SET, CALL = Frame(SCRIPT, 14, "publish"), Frame(SCRIPT, 38, MAIN)
SETTER = KeySetter(
    (SET, CALL),
    (Condition(Frame(SCRIPT, 37, MAIN), "if rank == 0", "rank"),),
    rank=0,
    tries=Frame(SCRIPT, 13, "publish"),
    swallows=Frame(SCRIPT, 15, "publish"),
)
KEY = StoreKey(ASKS, "manifest", (SETTER,))
ERROR = ExceptionFacts(
    "OSError", "disk full", at=100.0, step=4, fatal=False,
    frames=(Frame(SCRIPT, 5, "build"), Frame(SCRIPT, 13, "publish"), CALL, Frame(SCRIPT, 90, "<module>")),
)  # fmt: skip
BARRIER = (Frame(C10D, 4000, "barrier"), Frame(SCRIPT, 42, MAIN), Frame(SCRIPT, 90, "<module>"))


def asking(number: int) -> RankEvidence:
    found = rank(number, GET, progress=Progress(step=4), issued=3, completed=3, world_size=3)
    return replace(found, stacks=tuple(replace(each, in_loop=False) for each in found.stacks))


def first(*errors: ExceptionFacts, stack: tuple[Frame, ...] = BARRIER, loop: LoopFacts | None = None) -> RankEvidence:
    found = rank(0, stack, progress=Progress(step=4), issued=4, completed=3, world_size=3)
    assert found.reading is not None
    stacks = tuple(replace(each, in_loop=loop is not None, loop=loop) for each in found.stacks)
    return replace(found, reading=replace(found.reading, caught=errors), stacks=stacks)


def judged(zero: RankEvidence, key: StoreKey = KEY) -> Judgement:
    return judge(zero, asking(1), asking(2), store_keys=(key,))


def test_the_key_and_the_only_rank_that_sets_it_are_told() -> None:
    judgement = judged(first())
    assert told(judgement)[:2] == ("undetermined", "undetermined")
    assert blamed(judgement) == []
    verdict = judgement.verdict
    assert verdict.summary == (
        "Ranks 1-2 wait for the key 'manifest' of a store (train.py:40), which no rank has set yet; by the source only"
        " rank 0 sets it (train.py:14), and is on a later line by now (train.py:42); rank 0 waits for them"
        " (train.py:42)."
    )
    assert "'manifest' is set at train.py:14, under `if rank == 0` (train.py:37)" in verdict.evidence
    assert any("is caught at train.py:15" in sentence for sentence in verdict.evidence)
    assert "train.py:15" in verdict.fix


def test_a_further_condition_on_the_way_is_told_at_once() -> None:
    ready = Condition(Frame(SCRIPT, 12, "publish"), "if ready", "value")
    setter = replace(SETTER, conditions=(*SETTER.conditions, ready))
    verdict = judged(first(), replace(KEY, setters=(setter,))).verdict
    assert "only rank 0 sets it (train.py:14), under `if ready`, and is on a later line" in verdict.summary


@pytest.mark.parametrize(("begins", "later"), [(Frame(SCRIPT, 41, MAIN), True), (Frame(SCRIPT, 30, MAIN), False)])
def test_a_loop_that_leads_back_to_the_line_leaves_it_ahead(begins: Frame, later: bool) -> None:
    verdict = judged(first(loop=LoopFacts(begins))).verdict
    assert ("is on a later line by now" in verdict.summary) is later


def test_a_key_that_no_line_sets_is_told_and_so_is_one_of_which_no_rank_is_known() -> None:
    verdict = judged(first(), replace(KEY, setters=())).verdict
    assert "no line in the program's files sets a key by the name 'manifest'" in verdict.evidence
    verdict = judged(first(), replace(KEY, setters=(replace(SETTER, rank=None, swallows=None),))).verdict
    assert "; by the source it is set at train.py:14; rank 0 waits" in verdict.summary


def test_ranks_that_wait_for_several_keys_have_none_to_be_told() -> None:
    other = (Frame(SCRIPT, 39, MAIN), Frame(SCRIPT, 90, "<module>"))
    second = rank(2, (GET[0], *other), progress=Progress(step=4), issued=3, completed=3, world_size=3)
    verdict = judge(first(), asking(1), second, store_keys=(KEY, StoreKey(other, "index"))).verdict
    assert "wait for a key of a store" in verdict.summary


def test_an_error_on_the_way_to_the_line_is_why_the_key_is_missing() -> None:
    judgement = judged(first(ERROR))
    assert told(judgement)[:2] == ("exception-on-one-rank", "likely")
    assert [who[0] for who in blamed(judgement)] == [0]
    assert judgement.verdict.summary == (
        "Rank 0 raised OSError: disk full (train.py:5), caught it (train.py:15) and went on without setting the key"
        " 'manifest' of a store (train.py:14); ranks 1-2 wait for that key (train.py:40)."
    )


ELSEWHERE = replace(ERROR, frames=(Frame(SCRIPT, 39, MAIN), Frame(SCRIPT, 90, "<module>")))
STILL_INSIDE = (Frame(C10D, 4000, "barrier"), Frame(SCRIPT, 13, "publish"), CALL, Frame(SCRIPT, 90, "<module>"))


@pytest.mark.parametrize(
    ("zero", "key"),
    [
        (first(ELSEWHERE), KEY),
        (first(ERROR, stack=STILL_INSIDE), KEY),
        (first(ERROR), replace(KEY, key="parts/{}")),
        (first(ERROR), replace(KEY, setters=(SETTER, replace(SETTER, frames=(replace(SET, line=50),))))),
        (first(ERROR), replace(KEY, setters=(replace(SETTER, swallows=None),))),
        (first(ERROR, stack=(Frame(SCRIPT, 60, MAIN), Frame(SCRIPT, 90, "<module>"))), KEY),
    ],
    ids=["elsewhere", "inside still", "varies", "another line", "not caught there", "works"],
)
def test_another_error_is_not(zero: RankEvidence, key: StoreKey) -> None:
    assert judged(zero, key).verdict.cause != "exception-on-one-rank"
