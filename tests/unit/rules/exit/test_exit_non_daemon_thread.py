"""`exit-non-daemon-thread`: a thread keeps the process alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import ExceptionFacts, Frame, Stage
from tests.unit.job import IN_SHUTDOWN, LIB, SCRIPT, blamed, frames, judge, leaving, told
from tests.unit.rules.exit.exits import DONE, thread

HEARTBEAT = thread("heartbeat", (SCRIPT, 25, "beat"))
TICKER = thread(
    "hangwatch-ticker", (f"{LIB}/threading.py", 327, "wait"), ("/x/hangwatch_agent/rank/ticker.py", 70, "run")
)


def test_a_thread_that_is_no_daemon() -> None:
    judgement = judge(DONE, leaving(1, IN_SHUTDOWN, threads=(TICKER, HEARTBEAT)))
    assert told(judgement) == ("exit-non-daemon-thread", "proven", "lingering")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 25, "beat")
    assert judgement.stage is Stage.EXIT
    assert "thread 'heartbeat' still runs (train.py:25)" in judgement.verdict.summary


def test_a_pool_of_threads() -> None:
    pool = frames(
        (f"{LIB}/threading.py", 1119, "join"),
        (f"{LIB}/concurrent/futures/thread.py", 31, "_python_exit"),
        (f"{LIB}/threading.py", 1560, "_shutdown"),
        below=(),
    )
    saver = thread("saver_0", (SCRIPT, 30, "save"), (f"{LIB}/concurrent/futures/thread.py", 58, "run"))
    assert told(judge(DONE, leaving(1, pool, threads=(saver,)))) == ("exit-non-daemon-thread", "proven", "lingering")


def test_one_of_two_threads_is_only_likely() -> None:
    judgement = judge(leaving(1, IN_SHUTDOWN, threads=(HEARTBEAT, thread("reader", (SCRIPT, 40, "read")))))
    assert told(judgement)[:2] == ("exit-non-daemon-thread", "likely")
    assert blamed(judgement) == [(1, 101, "rank")]


def test_the_rank_itself_says_which_of_its_threads_are_no_daemons() -> None:
    reader = replace(thread("reader", (SCRIPT, 40, "read")), thread_id=8)
    evidence = leaving(1, IN_SHUTDOWN, threads=(HEARTBEAT, reader))
    assert evidence.reading is not None
    evidence = replace(evidence, reading=replace(evidence.reading, lasting_threads=(8,)))
    judgement = judge(DONE, evidence)
    assert told(judgement) == ("exit-non-daemon-thread", "proven", "lingering")
    assert "thread 'reader' still runs (train.py:40)" in judgement.verdict.summary
    assert blamed(judgement) == [(1, 101, "rank")]
    assert not any("heartbeat" in sentence for sentence in judgement.verdict.evidence)


def test_an_error_comes_first_and_is_told_with_the_thread_that_keeps_its_process() -> None:
    error = ExceptionFacts("TypeError", "no number", frames((SCRIPT, 99, "save")))
    judgement = judge(DONE, leaving(1, IN_SHUTDOWN, threads=(TICKER, HEARTBEAT), exception=error))
    assert told(judgement)[0] == "exception-on-one-rank"
    assert blamed(judgement) == [(1, 101, "rank")]
    kept = "The process of rank 1 has not ended: thread 'heartbeat' still runs (train.py:25) and is no daemon."
    assert judgement.verdict.summary.endswith(kept)
    assert "daemon" in judgement.verdict.fix


def test_of_two_threads_none_is_said_to_keep_the_process_of_a_failed_rank() -> None:
    error = ExceptionFacts("TypeError", "no number", frames((SCRIPT, 99, "save")))
    threads = (HEARTBEAT, thread("reader", (SCRIPT, 40, "read")))
    judgement = judge(DONE, leaving(1, IN_SHUTDOWN, threads=threads, exception=error))
    assert told(judgement)[0] == "exception-on-one-rank"
    assert "daemon" not in judgement.verdict.summary


@pytest.mark.parametrize("sign", [{"cpu_delta_s": 0.5}, {"io_delta_bytes": 20 << 20}])
def test_a_thread_that_works_is_waited_for(sign: dict[str, Any]) -> None:
    judgement = judge(leaving(1, IN_SHUTDOWN, threads=(HEARTBEAT,), facts=sign))
    assert told(judgement)[2] == "waiting"


def test_patience_before_it() -> None:
    judgement = judge(leaving(1, IN_SHUTDOWN, threads=(HEARTBEAT,), still_s=4.0))
    assert told(judgement)[2] == "waiting"
