"""The places of calls whose source is read for the ways past them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Collective, Frame, RankEvidence
from hangwatch_agent.capture.source.call_sites import call_sites
from hangwatch_agent.capture.source.files import Sources
from tests.unit.job import main_thread, rank

STEP = """\
def step(loss):
    if loss < best:
        loss.backward()
    update(loss)
"""


@pytest.fixture
def frames(tmp_path: Path) -> tuple[Frame, ...]:
    script = tmp_path / "train.py"
    script.write_text(STEP)
    return (Frame(str(script), 3, "step"),)


def ways(*ranks: RankEvidence) -> list[tuple[int, str]]:
    found = call_sites(ranks, Sources(), Path("/nonexistent"))
    return [(way.where.line, way.text) for site in found for way in site.bypasses]


def test_where_a_main_thread_stands_counts_though_no_call_was_recorded(frames: tuple[Frame, ...]) -> None:
    """DDP issues the collectives of a backward, and a rank that died may have left nothing but its stack."""
    assert ways(rank(0, frames), rank(1, frames)) == [(2, "if loss < best")]


def test_other_threads_and_ranks_without_any_stack_add_nothing(frames: tuple[Frame, ...]) -> None:
    beside = replace(rank(0), stacks=(replace(main_thread(frames), main=False, name="logger"),))
    assert ways(beside, rank(1)) == []


def test_the_thread_that_trains_counts_where_a_package_hosts_it(frames: tuple[Frame, ...]) -> None:
    """Below an actor of Ray's the main thread serves an event loop."""
    actor = "/venv/lib/python3.12/site-packages/actors/worker.py"
    trainer = replace(main_thread((*frames, Frame(actor, 37, "_run"))), main=False, thread_id=10, name="trainer")
    hosted = rank(0, (Frame(actor, 1069, "main_loop"), Frame(actor, 323, "<module>")), threads=(trainer,))
    assert ways(hosted) == [(2, "if loss < best")]


def test_a_call_and_a_stack_at_one_place_are_told_once(frames: tuple[Frame, ...]) -> None:
    found = rank(0, frames)
    assert found.reading is not None
    recorded = (Collective("0", 3, "all_reduce", frames=frames),)
    assert ways(replace(found, reading=replace(found.reading, calls=recorded))) == [(2, "if loss < best")]


ROUNDS = """\
for batch in batches:
    for part in range(rounds):
        exchange(part)
    update()
"""


def test_the_inner_loop_around_a_call_is_read_though_no_rank_stands_in_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ROUNDS)
    found = rank(0, (Frame(str(script), 4, "<module>"),))
    assert found.reading is not None
    calls = (Collective("0", 3, "all_to_all", frames=(Frame(str(script), 3, "<module>"),)),)
    sites = call_sites([replace(found, reading=replace(found.reading, calls=calls))], Sources(), Path("/nonexistent"))
    loops = [
        (site.loop.where.line, site.loop.counted, [each.line for each in site.loop.outer])
        for site in sites
        if site.loop
    ]
    assert loops == [(2, True, [1])]  # the call behind it is in the training loop alone


TRAINERS = {
    "takes turns": ("while not done:\n    hook(batch)\n", [(1, [2])]),
    "runs all of it": ("if ready:\n    hook(batch)\n", []),
}


@pytest.mark.parametrize(("text", "loops"), TRAINERS.values(), ids=TRAINERS)
def test_a_loop_of_a_hook_lies_within_the_turns_of_the_package_that_calls_it(
    tmp_path: Path, text: str, loops: list[tuple[int, list[int]]]
) -> None:
    script, trainer = tmp_path / "train.py", tmp_path / "site-packages/trainer/loop.py"
    trainer.parent.mkdir(parents=True)
    trainer.write_text(text)
    script.write_text("for part in range(rounds):\n    exchange(part)\n\nfit()\n")
    called = (Frame(str(script), 2, "<module>"), Frame(str(trainer), 2, "<module>"), Frame(str(script), 4, "<module>"))
    found = call_sites([rank(0, called)], Sources(), Path("/nonexistent"))
    assert [(site.loop.where.line, [each.line for each in site.loop.outer]) for site in found if site.loop] == loops
