"""The words of the diagnosis itself."""

from __future__ import annotations

import pytest

from hangwatch import words
from hangwatch.model import ExceptionFacts, Frame, StepName


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "how is not known"),
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL"),
        (-50, "killed by signal 50"),
    ],
)
def test_how_a_process_ended(code: int | None, said: str) -> None:
    assert words.ended(code) == said


def test_ranges_plurals_steps_and_places() -> None:
    assert words.ranges([5, 0, 1, 2]) == "0-2 and 5"
    assert words.ranges(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"
    assert [words.ranks(found) for found in ([], [3], [0, 3], [0, 1], [0, 1, 2, 5])] == [
        "no rank",
        "rank 3",
        "ranks 0 and 3",
        "ranks 0-1",
        "ranks 0-2 and 5",
    ]
    assert words.plural(1, "batch") == "1 batch"
    assert words.plural(2000, "batch") == "2,000 batches"
    assert words.step(StepName(1, 12, 212)) == "epoch 1, batch 12 (step 212)"
    assert words.step(StepName(step=212)) == "step 212"
    assert words.place(Frame("/home/ann/train.py", 88, "main")) == "train.py:88"
    assert words.duration(200) == "3 min 20 s"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_a_long_message_is_cut_between_words_and_says_so() -> None:
    assert words.shortened("a checkpoint file", 17) == "a checkpoint file"
    assert words.shortened("a checkpoint file", 16) == "a checkpoint ..."
    assert words.shortened("checkpoint", 4) == "chec ..."


def test_an_error_does_not_say_where_in_torchs_own_sources_it_was_made() -> None:
    sources = "/__w/pytorch/pytorch/third_party/gloo/gloo/"
    for made in (f"[{sources}transport/tcp/pair.cc:553] ", f"[enforce fail at {sources}alltoallv.cc:138] "):
        assert words.error(ExceptionFacts("RuntimeError", f"{made}sizes differ", ())) == "RuntimeError: sizes differ"
