"""When the terminal says a first word of a standstill: an injected clock turns, and nothing sleeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import ExceptionFacts, Phase, Progress, RankEvidence, Snapshot, StepTimes
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.watchdog.first_words import FirstWords, last_progress
from tests.unit import job
from tests.unit.agent.readings import rank_state
from tests.unit.job import IN_BACKWARD, IN_CODE

QUICK = StepTimes(steps=50, slowest_recent_s=0.1)
Evidence = Callable[[float], Snapshot]


def evidence(*ranks: RankEvidence) -> Evidence:
    def taken(still_s: float) -> Snapshot:
        snapshot = job.snapshot(*(replace(rank, still_s=still_s) for rank in ranks))
        return replace(snapshot, last_progress_at=snapshot.taken_at - still_s)

    return taken


def waits(rank: int = 0, **parts: Any) -> RankEvidence:
    return job.rank(rank, IN_BACKWARD, issued=11, completed=10, patience_s=120.0, **{"times": QUICK, **parts})


def computes(rank: int = 1, **parts: Any) -> RankEvidence:
    facts = {"cpu_delta_s": 1.0, "state": "R", **parts.pop("facts", {})}
    return job.rank(rank, IN_CODE, issued=10, completed=10, patience_s=120.0, facts=facts, **{"times": QUICK, **parts})


def sleeps(rank: int = 1, **parts: Any) -> RankEvidence:
    return computes(rank, facts={"cpu_delta_s": 0.0, "state": "S", "system_call": "clock_nanosleep"}, **parts)


class Watch:
    """A job whose ranks moved at `moved_at`, looked at once a second: what is said, and when."""

    def __init__(self, *, slowest_s: float = 0.1, steps: int = 50) -> None:
        self.said: list[tuple[float, str]] = []
        self.now = 1000.0
        self.words = FirstWords(lambda line: self.said.append((self.now, line)), diagnose)
        self.parts: dict[str, Any] = {}  # of the readings
        self.times = StepTimes(steps=steps, slowest_recent_s=slowest_s)

    def ranks(self, moved_at: float) -> list[RankState]:
        return [rank_state(rank, moved_at=moved_at, **{"times": self.times, **self.parts}) for rank in (0, 1)]

    def watch(self, seconds: float, found: Evidence, *, told: bool = False, took_s: float = 1.0) -> None:
        """The ranks have just moved, and now stand still for `seconds`."""
        moved_at = self.now
        while self.now < moved_at + seconds:
            ranks = self.ranks(moved_at)
            self.words.note(ranks, told=told)
            if not told and self.words.due(ranks, self.now) is not None:
                if not self.words.has_evidence(self.now):
                    self.now += took_s
                    self.words.saw(replace(found(self.now - moved_at), taken_at=self.now), self.now)
                self.words.tell(self.now)
            self.now += 1.0

    def move(self) -> None:
        self.words.note(self.ranks(self.now))

    @property
    def times_said(self) -> list[float]:
        return [at - 1000.0 for at, line in self.said if "no progress" in line]


def test_the_first_words_come_after_ten_seconds_and_then_ever_more_rarely() -> None:
    watch = Watch()
    watch.watch(300.0, evidence(waits(), sleeps()))
    assert watch.times_said == pytest.approx([10.0, 30.0, 90.0, 270.0], abs=1.5)


def test_a_look_is_due_when_the_report_was_announced_for() -> None:
    watch = Watch()
    watch.watch(20.0, evidence(waits(), sleeps()))
    assert "reported as hung after 2 min" in watch.said[-1][1]
    began = watch.now - 20.0
    assert not watch.words.announced(began + 115.0)
    assert watch.words.announced(began + 125.0)
    watch.move()
    assert not watch.words.announced(began + 125.0)


def test_quick_steps_are_followed_by_no_words() -> None:
    watch = Watch()
    for _ in range(20):
        watch.watch(8.0, evidence(waits(), sleeps()))
    assert not watch.said


def test_steps_of_twelve_seconds_are_no_standstill() -> None:
    watch = Watch(slowest_s=12.0)
    watch.watch(14.0, evidence(waits(), sleeps()))
    assert not watch.said


def test_a_job_of_slow_steps_is_told_after_twice_its_slowest() -> None:
    watch = Watch(slowest_s=12.0)
    watch.watch(80.0, evidence(waits(), sleeps()))
    assert watch.times_said == pytest.approx([24.0, 72.0], abs=1.5)


def test_the_first_step_may_take_half_a_minute_while_nothing_is_held() -> None:
    first = Progress(epoch=0, batch=0, step=0)
    watch = Watch(slowest_s=0.0, steps=0)
    watch.watch(200.0, evidence(waits(progress=first), sleeps(progress=first)))
    assert watch.times_said == pytest.approx([30.0, 150.0], abs=1.5)


def test_one_line_says_that_the_job_moves_again() -> None:
    watch = Watch()
    watch.watch(47.0, evidence(waits(), sleeps()))
    watch.move()
    assert [line for _, line in watch.said][-1] == "hangwatch: moving again after 47 s"
    assert len(watch.said) == 3  # 10 s, 30 s, and this


FAILED = ExceptionFacts("DistStoreError", "wait timeout after 30000ms", ())


@pytest.mark.parametrize("parts", [{"phase": Phase.FAILED, "exception": FAILED}, {"phase": Phase.MAIN_DONE}])
def test_a_rank_that_gives_up_its_wait_does_not_move_again(parts: dict[str, Any]) -> None:
    watch = Watch()
    watch.watch(27.0, evidence(waits(), sleeps()))
    watch.parts = parts
    watch.move()
    assert "moving again" not in watch.said[-1][1]


def test_a_pause_that_was_not_reported_ends_without_a_line() -> None:
    watch = Watch()
    watch.watch(8.0, evidence(waits(), sleeps()))
    watch.move()
    assert not watch.said


def test_a_pause_that_has_ended_before_is_given_more_time_the_next_time() -> None:
    watch = Watch()
    watch.watch(40.0, evidence(waits(), computes()))
    before = len(watch.said)
    watch.watch(50.0, evidence(waits(), computes()))
    assert [line for _, line in watch.said[before:]] == ["hangwatch: moving again after 40 s"]


@pytest.mark.parametrize("parts", [{"phase": Phase.INIT}, {"times": StepTimes(), "phase": Phase.READY}])
def test_what_lies_before_the_steps_says_nothing_of_them(parts: dict[str, Any]) -> None:
    watch = Watch()
    watch.parts = parts
    watch.watch(40.0, evidence(waits(), computes()))
    watch.parts = {}
    watch.watch(2.0, evidence(waits(), sleeps()))
    moved, before = watch.now, len(watch.said)
    watch.watch(12.0, evidence(waits(), sleeps()))
    assert [at - moved for at, _ in watch.said[before:]] == pytest.approx([10.0], abs=1.5)


def test_a_loop_without_steps_is_measured_by_its_pauses() -> None:
    watch = Watch()
    watch.parts = {"times": StepTimes(), "phase": Phase.READY}
    for _ in range(4):
        watch.watch(12.0, evidence(waits(), sleeps()))
    assert [line for _, line in watch.said if "no progress" in line] == [watch.said[0][1]]


def test_an_open_incident_says_what_there_is_to_say() -> None:
    watch = Watch()
    watch.watch(12.0, evidence(waits(), sleeps()))
    watch.words.note(watch.ranks(1000.0), told=True)
    watch.move()
    assert [line for _, line in watch.said if "moving" in line] == []


def test_a_stage_that_is_known_to_be_long_is_told_rarely() -> None:
    watch = Watch()
    watch.watch(260.0, evidence(waits(), computes(phase=Phase.EVAL)))
    assert watch.times_said == pytest.approx([10.0, 50.0, 250.0], abs=1.5)
    assert "which evaluates (train.py:50)" in watch.said[0][1]


def test_ranks_that_have_gone_are_no_standstill() -> None:
    assert last_progress([rank_state(0, state="X"), rank_state(1, state="X")]) is None


def test_a_launcher_without_ranks_stands_still_since_it_waits() -> None:
    assert last_progress([], no_rank_since=7.0) == 7.0
    assert last_progress([], no_rank_since=None) is None
