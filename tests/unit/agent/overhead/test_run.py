"""The figures that are made of interleaved runs, and the page that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangwatch_agent.overhead.page import page
from hangwatch_agent.overhead.run import Result, Run, Setup, document, keep


@pytest.fixture
def result() -> Result:
    """GIVEN three pairs of 100 steps on two ranks, in which watching costs 0, 1 and 2 hundredths of a second.

    In each gloo polls for a tenth more.
    """
    made = Result(Setup(5, 2, 1), multiplications=7, steps=100, load=[1.0, 4.0, 2.0])
    for cost in (0.0, 0.02, 0.01):
        made.plain.append(Run(1.0, 2.0, 0.5))
        made.watched.append(Run(1.0 + cost, 2.1 + cost, 0.6))
    return made


def test_a_ratio_is_that_of_neighbouring_runs(result: Result) -> None:
    assert result.ratios("wall_s") == pytest.approx([1 / 1.02, 1 / 1.01, 1.0])
    assert result.step_ms == pytest.approx(10.0)


def test_added_time_is_of_one_rank_and_one_step(result: Result) -> None:
    assert result.added_us() == pytest.approx(0.01 / 100 / 2 * 1e6)


def test_the_document_holds_every_run(result: Result) -> None:
    [found] = document([result], ["hangwatch", "run", "--"])["results"]
    assert [run["cpu_s"] for run in found["watched"]] == [2.1, 2.12, 2.11]
    assert found["cpu_ratio"] == pytest.approx(2.0 / 2.11)
    assert found["work_ratio"] == pytest.approx(1.5 / 1.51)
    assert found["clock_ratio"] == pytest.approx(1 / 1.01)


def test_the_page_says_what_the_machine_was_doing(result: Result) -> None:
    shown = page(document([result], ["hangwatch", "run", "--"]))
    assert "| 5 ms | 10.0 ms | 2 | 1 | 0.990 | 0.948 | 0.993 | 50 us | 3 |" in shown
    assert "1.0 to 4.0" in shown
    assert "all 3 pairs: **0.990** by the clock, **0.948** in the processor time" in shown


def test_raw_numbers_and_page_are_kept_together(result: Result, tmp_path: Path) -> None:
    measured = document([result], ["hangwatch", "run", "--"])
    folder = tmp_path / "new" / "folder"
    keep(folder, measured)
    assert json.loads((folder / "overhead.json").read_text()) == measured
    assert (folder / "overhead.md").read_text() == page(measured)
