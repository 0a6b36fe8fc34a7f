"""The words that all renderers share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model import CaptureNote, Certainty, Culprit, Frame, Stage, Status, Wait
from hangwatch.report import words
from tests import examples


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1.0, "0.0 s"),
        (3.14, "3.1 s"),
        (9.96, "10 s"),
        (95.2, "95 s"),
        (125.0, "2 min 5 s"),
        (600.0, "10 min"),
        (12000.0, "3 h 20 min"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (512, "512 B"), (3565158, "3.4 MiB"), (80 << 30, "80 GiB"), (5 << 50, "5120 TiB")]
)
def test_sizes(count: int, said: str) -> None:
    assert words.size(count) == said


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([], "no rank"),
        ([3], "rank 3"),
        ([2, 0, 1], "ranks 0-2"),
        ([0, 1, 2, 5], "ranks 0-2 and 5"),
        (range(16384), "ranks 0-16383"),
        (range(0, 40, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_ranks_are_said_in_ranges(ranks: list[int], said: str) -> None:
    assert words.ranks(ranks) == said


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_unprintable_comes_through(text: str) -> None:
    cleaned = words.clean(text)
    assert "\x1b" not in cleaned
    assert "\n" not in cleaned
    cleaned.encode("utf-8")


def test_hostile_text_is_made_visible() -> None:
    assert words.clean("\x1b[2Jgone\u202e\n\x9b31m\ud800") == r"\x1b[2Jgone\u202e \x9b31m\ud800"
    assert words.clean("naïve – 漢字 🙂") == "naïve – 漢字 🙂"
    assert words.clipped("abcdefgh" * 10, 12) == "abcdefgh ..."


def test_places_and_people() -> None:
    assert words.place(Frame("/home/mia/train.py", 71, "train")) == "train.py:71"
    assert words.place(Frame("libc.so.6", 0, "poll", native=True)) == "libc.so.6"
    assert words.culprit(Culprit(3, 4711, "node-b")) == "rank 3, pid 4711 on node-b"
    assert words.culprit(Culprit(3, 88, process="loader-worker")) == "loader worker of rank 3, pid 88"
    assert words.culprit(Culprit(None, 7, "a", "launcher")) == "launcher, pid 7 on a"
    assert words.culprit(Culprit(None)) == "a process"


def test_many_culprits_are_said_in_ranges() -> None:
    blamed = tuple(Culprit(rank, rank + 100, f"node-{rank // 8}") for rank in range(16))
    assert words.culprits(blamed[:2]) == "rank 0, pid 100 on node-0; rank 1, pid 101 on node-0"
    assert words.culprits(blamed) == "ranks 0-15 on node-0, node-1"
    assert words.culprits(tuple(replace(who, host=f"n{who.rank}") for who in blamed)) == "ranks 0-15 on 16 hosts"
    assert words.culprits((Culprit(None),) * 5) == "5 processes"


def test_waits() -> None:
    where = Frame("train.py", 71, "f")
    assert (
        words.wait(Wait(0, (3,), "all_reduce 12 of group 0", where))
        == "rank 3, in all_reduce 12 of group 0 (train.py:71)"
    )
    assert words.wait(Wait(0, (), "batch from loader worker 3")) == "batch from loader worker 3"


def test_headlines() -> None:
    made = examples.uneven_steps()
    assert words.headline(made) == "HUNG, proven, 3.1 s after the last step; cause proven"
    doubted = replace(made, verdict=replace(made.verdict, certainty=Certainty.LIKELY))
    assert words.headline(doubted) == "HUNG, proven, 3.1 s after the last step; cause likely"
    failed = replace(doubted, status=Status.FAILED, verdict=replace(doubted.verdict, hang=None))
    assert words.headline(failed) == "FAILED, 3.1 s after the last step; cause likely"
    unsure = examples.undetermined()
    assert words.headline(unsure) == "HUNG, likely, 2 min 6 s after the last step; cause not known"
    pointed = replace(unsure, verdict=replace(unsure.verdict, cause="rank-died"))
    assert words.headline(pointed) == "HUNG, likely, 2 min 6 s after the last step; cause uncertain"
    assert words.headline(examples.lingering()) == "LINGERING, proven, 12 s after the end of training; cause proven"
    pipe_full = replace(made, stage=Stage.EXIT)  # of that cause, and ranks wait in backward
    assert words.headline(pipe_full) == "HUNG, proven, 3.1 s after the last step; cause proven"
    closed = replace(made, status=Status.RECOVERED, closed_at=made.opened_at + 90)
    assert words.headline(closed) == "RECOVERED after 93 s without progress"
    assert (
        words.headline(replace(made, ranks=(), stage=Stage.START))
        == "HUNG, proven, 3.1 s after the start; cause proven"
    )
    assert words.headline(replace(made, ranks=())) == "HUNG, proven, 3.1 s after the last progress; cause proven"
    assert words.headline(replace(made, detected_after_s=0.0)) == "HUNG, proven; cause proven"


def test_a_gpu_is_only_missed_where_one_is_used() -> None:
    made = replace(examples.uneven_steps(), capture=(CaptureNote("gpu", False, "no driver"),))
    assert words.missing_evidence(made) == "gpu (no driver)"
    without = tuple(replace(rank, gpu=None) for rank in made.ranks)
    assert words.missing_evidence(replace(made, ranks=without)) == ""


def test_evidence_that_could_not_be_had_is_named_once() -> None:
    refused = [CaptureNote("stacks", False, "not allowed", rank=rank) for rank in (0, 1, 3)]
    notes = (*refused, CaptureNote("gpu", False, "no driver"), CaptureNote("process", True))
    made = replace(examples.uneven_steps(), capture=notes)
    assert words.missing_evidence(made) == "stacks of ranks 0-1 and 3 (not allowed), gpu (no driver)"
