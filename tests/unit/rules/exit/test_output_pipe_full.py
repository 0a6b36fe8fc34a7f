"""`output-pipe-full`: no process reads the output."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import Frame, OpenFile, Pipe, RankEvidence
from tests.unit.job import IDLE, IN_CODE, SCRIPT, blamed, feeding, judge, launcher, rank, told, worker
from tests.unit.rules.exit.exits import OUTPUT, WAITS


def printing(number: int = 1, fd: int = 1, **parts: Any) -> RankEvidence:
    file = OpenFile(fd, OUTPUT)
    facts = {"system_call": "write", "blocked_on": file, "standard_pipes": (OpenFile(1, OUTPUT), OpenFile(2, OUTPUT))}
    return rank(number, IN_CODE, facts={**facts, **parts.pop("facts", {})}, issued=10, completed=10, **parts)


READS = {"pipes": (Pipe(OUTPUT, (50,), (100, 101)),)}


def test_a_launcher_that_waits_instead_of_reading() -> None:
    judgement = judge(WAITS, printing(still_s=3.0), launchers=(launcher(waits_for=101),), node=READS)
    assert told(judgement) == ("output-pipe-full", "proven", "hung")
    assert blamed(judgement) == [(1, 50, "launcher")]
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 50, "main")
    assert "is stuck writing to standard output (train.py:50): the pipe is full" in judgement.verdict.summary
    assert judgement.verdict.victims == (0, 1)


def test_a_launcher_that_waits_for_a_rank_that_waits_for_the_writer() -> None:
    judgement = judge(WAITS, printing(still_s=3.0), launchers=(launcher(waits_for=100),), node=READS)
    assert told(judgement)[1] == "proven"


def test_a_reader_outside_of_the_job_may_only_be_slow() -> None:
    pipes = {"pipes": (Pipe(OUTPUT, (9,), (100, 101)),)}
    judgement = judge(WAITS, printing(still_s=3.0), launchers=(launcher(waits_for=100),), node=pipes)
    assert told(judgement) == ("output-pipe-full", "likely", "waiting")
    assert blamed(judgement) == [(1, 9, "other")]


def test_a_worker_that_prints() -> None:
    facts: dict[str, Any] = {
        "system_call": "write",
        "blocked_on": OpenFile(2, OUTPUT),
        "standard_pipes": (OpenFile(2, OUTPUT),),
    }
    judgement = judge(feeding(1, worker(0, IDLE, **facts), issued=10, completed=10), WAITS, node=READS)
    assert judgement.verdict.cause == "output-pipe-full"


@pytest.mark.parametrize("facts", [{"io_delta_bytes": 4096}, {"system_call": "read"}, {"standard_pipes": ()}])
def test_bytes_that_move_and_other_pipes_are_none(facts: dict[str, Any]) -> None:
    judgement = judge(WAITS, printing(facts=facts), launchers=(launcher(waits_for=101),), node=READS)
    assert judgement.verdict.cause == "user-code-blocked"
