"""`exit-orphan-holds-pipe`: an orphan holds the output open."""

from __future__ import annotations

from hangwatch.model import OpenFile, Pipe
from tests.unit.job import IN_SHUTDOWN, LIB, NOW, SCRIPT, blamed, frames, gone, judge, launcher, leaving, other, told
from tests.unit.rules.exit.exits import OUTPUT

READER = launcher(frames((SCRIPT, 4, "collect")), system_call="read", blocked_on=OpenFile(3, OUTPUT))
HELD = {"pipes": (Pipe(OUTPUT, (50,), (400,)),)}


def test_an_orphan_that_holds_the_output() -> None:
    judgement = judge(gone(0), gone(1), launchers=(READER,), others=(other(400, rank=1),), node=HELD)
    assert told(judgement) == ("exit-orphan-holds-pipe", "proven", "lingering")
    assert blamed(judgement) == [(1, 400, "other")]
    assert "pid 50 (python launch.py) waits for the end of the ranks' output" in judgement.verdict.summary


def test_a_launcher_whose_other_threads_read() -> None:
    copying = launcher(frames((f"{LIB}/threading.py", 1119, "join")), system_call="futex")
    judgement = judge(gone(0), launchers=(copying,), others=(other(400, rank=0),), node=HELD)
    assert blamed(judgement) == [(0, 400, "other")]
    busy = launcher(frames((SCRIPT, 70, "evaluate")), system_call="futex")
    assert judge(gone(0), launchers=(busy,), others=(other(400),), node=HELD).verdict.cause == "undetermined"


def test_an_orphan_that_works() -> None:
    judgement = judge(gone(0), launchers=(READER,), others=(other(400, cpu_delta_s=0.7),), node=HELD)
    assert told(judgement)[2] == "waiting"


def test_a_reader_is_given_a_moment() -> None:
    just_now = gone(0, evidence={"ended_at": NOW - 2})
    assert told(judge(just_now, launchers=(READER,), others=(other(400),), node=HELD))[2] == "waiting"


def test_ranks_that_live_still_write() -> None:
    judgement = judge(leaving(0, IN_SHUTDOWN), launchers=(READER,), others=(other(400),), node=HELD)
    assert judgement.verdict.cause != "exit-orphan-holds-pipe"
