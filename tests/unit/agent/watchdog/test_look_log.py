from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangwatch.looks import Reason
from hangwatch.model import Certainty, Collective, Judgement, Snapshot, Stage, Status, StepTimes, Verdict
from hangwatch_agent.watchdog import look_log
from hangwatch_agent.watchdog.look_log import LookLog, outcome
from tests.unit.agent.readings import blocked, rank_state
from tests.unit.agent.watchdog.test_loop import World, pair


class Clock:
    def __init__(self) -> None:
        self.now = 3600.0

    def __call__(self) -> float:
        return self.now


def written(folder: Path) -> str:
    (path,) = folder.glob("watchdog-*.log")
    return path.read_text()


def test_the_parts_of_a_look_are_timed() -> None:
    clock = Clock()
    log = LookLog(clock)
    with log.look([Reason("quiet", (1,)), Reason("quiet", (2,)), Reason("patience", ())]) as look:
        clock.now += 1.5
        look.taken_at = clock.now
        clock.now += 0.25
        look.came_to = "waiting"
    assert "01:00:00.0 look (quiet, patience): evidence after 1.50 s, judged after 0.25 s more: waiting" in log.text([])


def test_a_look_that_never_ends_is_in_the_log() -> None:
    clock = Clock()
    log = LookLog(clock)
    with log.poll(), log.look([Reason("deadlock", ())]) as look:
        clock.now += 60.0
        assert "01:00:00.0 look (deadlock): evidence is being taken" in log.text([])
        assert "one is under way since 01:00:00.0" in log.text([])
        look.taken_at = clock.now
        assert "evidence after 60.00 s, not yet judged" in log.text([])
    assert "1 poll, the slowest of 60.00 s; the last ended at 01:01:00.0" in log.text([])


def test_a_look_that_fails_says_how() -> None:
    log = LookLog(Clock())
    with pytest.raises(ZeroDivisionError), log.look([]):
        raise ZeroDivisionError("by zero")
    assert "look (the end of the job): failed (ZeroDivisionError: by zero)" in log.text([])


def test_the_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LookLog(Clock())
    for number in range(look_log.MOST + 5):
        with log.look([Reason(f"look{number}", ())]):
            pass
    assert len(log.looks) == look_log.MOST
    assert "(look4)" not in log.text([])
    assert "(look5)" in log.text([])


def test_a_rank_is_told_with_its_open_calls() -> None:
    call = Collective("", 7, "all_reduce")
    text = LookLog(Clock()).text([rank_state(3, moved_at=3661.25, heads=blocked(), open_calls=(call,))])
    assert "rank 3" in text
    assert "moved last at 01:01:01.2" in text
    assert "may wait for others, open: all_reduce 7 of the default group" in text


def test_an_outcome_shows_no_control_characters() -> None:
    verdict = Verdict("undetermined", Certainty.UNDETERMINED, "Rank 1 \x1b[31mwaits.")
    assert "\x1b" not in outcome(Judgement(Status.WAITING, Stage.STEP, verdict))


class TestWhatAWatchdogKeeps:
    def test_beside_a_report(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.hangs()
        world.look(20.0, *pair())
        world.watchdog.close(1)
        assert "hung, uneven-steps (proven): Rank 1 left." in written(tmp_path)
        assert "before this node had" not in world.stream.getvalue()

    def test_where_a_job_was_ended_that_stood_still(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.look(11.0, *pair())
        world.look(30.0, *pair())
        world.watchdog.dismiss()
        world.now, world.roster.rank_states = 60.0, ()  # the ranks took their time
        world.watchdog.close(130)
        assert "waiting, undetermined (undetermined): Waiting." in written(tmp_path)
        assert "rank 1 (pid" in written(tmp_path), "as they stood"
        said = world.stream.getvalue()
        assert (
            "ended after 20 s without progress, before this node had reported anything; its last look came to:" in said
        )
        assert "its last look came to: waiting, undetermined (undetermined): Waiting;" in said

    def test_with_the_last_look_also_where_that_fails(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.hangs()
        world.look(20.0, *pair())
        world.watchdog.incidents.file_away()

        def broken(snapshot: Snapshot) -> Judgement:
            raise ZeroDivisionError("by zero")

        world.watchdog.judge = broken
        with pytest.raises(ZeroDivisionError):
            world.watchdog.close(1)
        assert "look (the end of the job)" in written(tmp_path)
        assert "failed (ZeroDivisionError: by zero)" in written(tmp_path)

    def test_not_of_a_job_whose_steps_are_as_long(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        slow = pair(times=StepTimes(steps=9, slowest_recent_s=40.0))
        world.look(11.0, *slow)
        world.look(35.0, *slow)
        world.watchdog.dismiss()
        world.watchdog.close(143)
        assert not list(tmp_path.glob("watchdog-*.log"))

    @pytest.mark.parametrize("told", [True, False])
    def test_not_of_a_job_that_moved(self, tmp_path: Path, told: bool) -> None:
        world = World(tmp_path)
        world.look(30.0, *pair(moved_at=28.0))
        if told:
            world.watchdog.dismiss()
        world.watchdog.close(130 if told else 0)
        assert not list(tmp_path.glob("watchdog-*.log"))

    def test_of_every_job_where_that_is_asked_for(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.watchdog.settings = replace(world.watchdog.settings, log_looks=True)
        world.look(30.0, *pair(moved_at=28.0))
        world.watchdog.close(0)
        assert "1 poll" in written(tmp_path)
        assert "before this node had" not in world.stream.getvalue()

    def test_a_full_disk_costs_the_log_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("hangwatch.report.files.write_text", full)
        world = World(tmp_path)
        world.hangs()
        world.look(20.0, *pair())
        world.watchdog.close(1)
        assert "no log of the watchdog's looks: [Errno 28] No space left" in world.stream.getvalue()
        assert world.watchdog.incidents.is_any
