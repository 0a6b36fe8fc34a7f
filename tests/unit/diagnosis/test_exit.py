"""Jobs whose training is over, and that do not end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import Frame, LoaderFacts, OpenFile, Phase, Pipe, ProcessEvidence, RankEvidence, Stage, ThreadStack
from tests.unit.diagnosis.job import (
    CONNECTION,
    IDLE,
    IN_BACKWARD,
    IN_BARRIER,
    IN_CHILD_JOIN,
    IN_CODE,
    IN_DESTRUCTOR,
    IN_FEEDER_JOIN,
    IN_HANDLER,
    IN_SHUTDOWN,
    IN_WAIT,
    LIB,
    NOW,
    SCRIPT,
    blamed,
    feeding,
    frames,
    gone,
    judge,
    launcher,
    leaving,
    main_thread,
    other,
    process,
    rank,
    told,
    worker,
)

OUTPUT = "pipe:[7]"
DONE = gone(0)

# ------------------------------------------------------------------------------------------ what keeps a process


def thread(name: str, *inner: tuple[str, int, str]) -> ThreadStack:
    return ThreadStack(7, name, frames(*inner, (f"{LIB}/threading.py", 982, "run"), below=()))


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


@pytest.mark.parametrize("sign", [{"cpu_delta_s": 0.5}, {"io_delta_bytes": 20 << 20}])
def test_a_thread_that_works_is_waited_for(sign: dict[str, Any]) -> None:
    judgement = judge(leaving(1, IN_SHUTDOWN, threads=(HEARTBEAT,), facts=sign))
    assert told(judgement)[2] == "waiting"


def test_patience_before_it() -> None:
    judgement = judge(leaving(1, IN_SHUTDOWN, threads=(HEARTBEAT,), still_s=4.0))
    assert told(judgement)[2] == "waiting"


def child(**facts: Any) -> ProcessEvidence:
    return ProcessEvidence("child", process(300, **facts), (main_thread((Frame(SCRIPT, 33, "serve"),)),), rank=1)


def joining(*children: ProcessEvidence, **facts: Any) -> RankEvidence:
    facts = {"system_call": "wait4", **facts}
    return leaving(1, IN_CHILD_JOIN, Phase.ATEXIT, facts=facts, evidence={"children": children})


def test_a_child_that_lives() -> None:
    judgement = judge(DONE, joining(child(), waits_for=300))
    assert told(judgement) == ("exit-child-process", "proven", "lingering")
    assert blamed(judgement) == [(1, 300, "other")]
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 33, "serve")


def test_of_two_children_the_one_that_is_waited_for() -> None:
    elder = ProcessEvidence("child", process(299), rank=1)
    assert blamed(judge(DONE, joining(elder, child(), waits_for=300))) == [(1, 300, "other")]


def test_the_only_child_where_the_system_does_not_say() -> None:
    helper = ProcessEvidence("helper", process(298), rank=1)
    assert blamed(judge(DONE, joining(helper, child(), waits_for=None))) == [(1, 300, "other")]


def test_a_child_that_computes_is_waited_for() -> None:
    assert told(judge(DONE, joining(child(cpu_delta_s=0.9), waits_for=300)))[2] == "waiting"


def test_a_queue_that_nobody_reads() -> None:
    feeder = thread("QueueFeederThread", (CONNECTION, 384, "_send"), (CONNECTION, 427, "_send_bytes"))
    judgement = judge(DONE, leaving(1, IN_FEEDER_JOIN, Phase.ATEXIT, threads=(feeder,)))
    assert told(judgement) == ("exit-queue-feeder", "proven", "lingering")
    assert blamed(judgement) == [(1, 101, "rank")]


def in_handler(**facts: Any) -> RankEvidence:
    still = facts.pop("still_s", 12.0)
    return leaving(1, IN_HANDLER, Phase.ATEXIT, facts=facts, still_s=still)


def test_a_handler_that_waits_for_ever() -> None:
    judgement = judge(DONE, in_handler(system_call="recvfrom"))
    assert told(judgement) == ("exit-atexit-handler", "proven", "lingering")
    assert "the exit handler upload (train.py:5) does not return" in judgement.verdict.summary


def test_a_handler_that_sleeps_for_long() -> None:
    judgement = judge(DONE, in_handler(system_call="clock_nanosleep", sleeps_s=900.0))
    assert told(judgement)[2] == "lingering"
    assert "it sleeps for another 15 min" in judgement.verdict.evidence[0]


def test_a_handler_that_takes_naps_may_come_to_its_end() -> None:
    naps = {"system_call": "clock_nanosleep", "sleeps_s": 0.3}
    assert told(judge(DONE, in_handler(**naps)))[2] == "waiting"
    assert told(judge(DONE, in_handler(**naps, still_s=25.0)))[2] == "waiting"
    assert told(judge(DONE, in_handler(**naps, still_s=61.0)))[2] == "lingering"


def test_a_handler_written_in_c() -> None:
    judgement = judge(DONE, leaving(1, (), Phase.ATEXIT, threads=(main_thread(()),)))
    assert told(judgement)[:2] == ("exit-atexit-handler", "proven")


def test_a_destructor() -> None:
    judgement = judge(DONE, leaving(1, IN_DESTRUCTOR, Phase.FINALIZING))
    assert told(judgement) == ("exit-destructor", "proven", "lingering")
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 11, "close")


def test_a_native_destructor() -> None:
    judgement = judge(DONE, leaving(1, (), Phase.FINALIZING, threads=(main_thread(()),)))
    assert told(judgement)[:2] == ("exit-destructor", "likely")


def test_an_interpreter_that_is_being_taken_down_on_a_busy_machine() -> None:
    busy = leaving(1, (), Phase.FINALIZING, threads=(main_thread(()),), facts={"state": "R", "cpu_delta_s": 0.4})
    assert told(judge(DONE, busy))[2] == "waiting"


def test_user_code_after_the_group_is_destroyed_is_no_exit() -> None:
    evaluating = rank(1, IN_CODE, phase=Phase.DESTROYED, patience_s=120.0)
    assert told(judge(DONE, evaluating))[2] == "waiting"


@pytest.mark.parametrize("code", [0, None, -6])
def test_a_clean_end_is_nothing_to_speak_of(code: int | None) -> None:
    """-6: gloo's threads abort one process in ten at its exit."""
    judgement = judge(gone(0, code), gone(1, 0))
    assert told(judgement) == ("undetermined", "undetermined", "waiting")


def test_a_failure_after_the_training_is_one() -> None:
    assert told(judge(gone(0, 1), gone(1, 0)))[2] == "failed"


# ------------------------------------------------------------------------------------------ some left, some not


def test_one_destroyed_the_group_that_the_others_still_use() -> None:
    left = rank(1, IN_CODE, phase=Phase.DESTROYED, issued=10, completed=10)
    judgement = judge(rank(0, IN_BARRIER, issued=11, completed=10), left)
    assert told(judgement)[0] == "exit-destroy-asymmetric"
    assert blamed(judgement) == [(1, 101, "rank")]


def test_one_left_an_epoch_before_the_others() -> None:
    def fed(epoch: int, drawn: int, *finished: int, over: bool) -> LoaderFacts:
        return LoaderFacts(0, 60, epoch=epoch, drawn=drawn, exhausted=over, drawn_per_epoch=finished)

    left = rank(1, IN_CODE, phase=Phase.DESTROYED, loaders=(fed(1, 60, 60, 60, over=True),), issued=10, completed=10)
    stayed = rank(0, IN_BACKWARD, loaders=(fed(2, 1, 60, 60, over=False),), issued=11, completed=10)
    assert judge(stayed, left).verdict.cause == "exit-destroy-asymmetric"
    short = rank(1, IN_CODE, phase=Phase.DESTROYED, loaders=(fed(1, 50, 60, 50, over=True),), issued=10, completed=10)
    assert judge(stayed, short).verdict.cause != "exit-destroy-asymmetric"


# ------------------------------------------------------------------------------------------ full pipes


def printing(number: int = 1, fd: int = 1, **parts: Any) -> RankEvidence:
    file = OpenFile(fd, OUTPUT)
    facts = {"system_call": "write", "blocked_on": file, "standard_pipes": (OpenFile(1, OUTPUT), OpenFile(2, OUTPUT))}
    return rank(number, IN_CODE, facts={**facts, **parts.pop("facts", {})}, issued=10, completed=10, **parts)


WAITS = rank(0, IN_BACKWARD, issued=11, completed=10)
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


# ------------------------------------------------------------------------------------------ launchers and orphans


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


def failed(number: int, **parts: Any) -> RankEvidence:
    return gone(number, 3, state="Z", facts={"parent": 50}, **parts)


def test_a_launcher_that_waits_for_the_wrong_one() -> None:
    alive = rank(0, IN_CODE, phase=Phase.DESTROYED, facts={"system_call": "read"})
    judgement = judge(alive, failed(1), launchers=(launcher(IN_WAIT, system_call="wait4", waits_for=100),))
    assert told(judgement) == ("exit-launcher-order", "proven", "lingering")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "while rank 1 has ended already (exit code 3)" in judgement.verdict.summary


def test_nobody_has_had_the_time_to_notice() -> None:
    alive = rank(0, IN_CODE, phase=Phase.DESTROYED, facts={"system_call": "read"}, patience_s=120.0)
    just_now = failed(1, evidence={"ended_at": NOW - 1})
    assert told(judge(alive, just_now, launchers=(launcher(waits_for=100),)))[2] == "waiting"


def test_who_waits_for_the_dead_in_a_collective_is_the_better_story() -> None:
    judgement = judge(WAITS, failed(1, phase=Phase.STEP, issued=10), launchers=(launcher(waits_for=100),))
    assert judgement.verdict.cause == "rank-died"
