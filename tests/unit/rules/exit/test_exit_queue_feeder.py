"""`exit-queue-feeder`: a queue that is never emptied keeps the process alive."""

from __future__ import annotations

from hangwatch.model import Phase
from tests.unit.job import CONNECTION, IN_FEEDER_JOIN, IN_SPAWN_JOIN, blamed, judge, launcher, leaving, told
from tests.unit.rules.exit.exits import DONE, thread


def test_a_queue_that_no_process_reads() -> None:
    feeder = thread("QueueFeederThread", (CONNECTION, 384, "_send"), (CONNECTION, 427, "_send_bytes"))
    judgement = judge(DONE, leaving(1, IN_FEEDER_JOIN, Phase.ATEXIT, threads=(feeder,)))
    assert told(judgement) == ("exit-queue-feeder", "proven", "lingering")
    assert blamed(judgement) == [(1, 101, "rank")]


def test_a_parent_that_joins_before_it_reads_is_told() -> None:
    feeder = thread("QueueFeederThread", (CONNECTION, 384, "_send"), (CONNECTION, 427, "_send_bytes"))
    parent = launcher(IN_SPAWN_JOIN)
    judgement = judge(DONE, leaving(1, IN_FEEDER_JOIN, Phase.ATEXIT, threads=(feeder,)), launchers=(parent,))
    assert "the process that started them waits for their end (train.py:50)" in judgement.verdict.summary
    assert "join them only then" in judgement.verdict.fix
