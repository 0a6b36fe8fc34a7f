"""`output-pipe-full`: no process reads the output."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import Certainty, Frame, OpenFile, Pipe, ProcessEvidence, RankEvidence, Socket, ThreadStack
from tests.unit.job import (
    IDLE,
    IN_BARRIER,
    IN_CODE,
    LIB,
    SCRIPT,
    blamed,
    feeding,
    judge,
    launcher,
    main_thread,
    process,
    rank,
    told,
    worker,
)
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


def test_the_hang_is_proven_where_all_others_wait_for_the_rank_that_writes() -> None:
    in_barrier = rank(0, IN_BARRIER, issued=11, completed=10)
    for writer, parts in (
        (printing(still_s=3.0), {"launchers": (launcher(waits_for=101),), "node": READS}),
        (asking(server()), {"node": UNREAD}),
    ):
        verdict = judge(in_barrier, writer, **parts).verdict
        assert (verdict.hang, verdict.argument) == (
            Certainty.PROVEN,
            ("the one reader of the full pipe waits for its writer",),
        )


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


CHILD = 300
ANSWER = "socket 127.0.0.1:5001 -> 127.0.0.1:8000"
UNREAD = {"pipes": (Pipe(OUTPUT, (101,), (CHILD,)),)}


def server(**facts: Any) -> ProcessEvidence:
    """A child of rank 1 that is stuck in a write to its standard output."""
    written = {
        "system_call": "write",
        "blocked_on": OpenFile(1, OUTPUT),
        "standard_pipes": (OpenFile(1, OUTPUT), OpenFile(2, "pipe:[8]")),
        "sockets": (Socket("127.0.0.1:8000", "127.0.0.1:5001", "established"),),
    }
    stack = (main_thread((Frame("/home/ann/server.py", 14, "<module>"),)),)
    return ProcessEvidence("child", process(CHILD, **{**written, **facts}), stack, stack, 1)


def asking(child: ProcessEvidence, threads: tuple[ThreadStack, ...] = (), **facts: Any) -> RankEvidence:
    asked = {"system_call": "recvfrom", "blocked_on": OpenFile(13, ANSWER), **facts}
    return rank(1, IN_CODE, facts=asked, threads=threads, issued=10, completed=10, evidence={"children": (child,)})


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"system_call": "wait4", "waits_for": CHILD, "blocked_on": None},
        {"system_call": "read", "blocked_on": OpenFile(5, "pipe:[8]")},
    ],
    ids=["for its answer", "for its end", "for what it writes elsewhere"],
)
def test_a_rank_that_waits_for_a_child_whose_output_it_does_not_read(facts: dict[str, Any]) -> None:
    judgement = judge(WAITS, asking(server(), **facts), node=UNREAD)
    assert told(judgement) == ("output-pipe-full", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "child process 300, which is stuck writing to standard output (server.py:14)" in judgement.verdict.summary


@pytest.mark.parametrize(("reader", "cause"), [(CHILD, "output-pipe-full"), (50, "user-code-blocked")])
def test_a_rank_that_writes_to_a_child_whose_output_it_does_not_read(reader: int, cause: str) -> None:
    """Both pipes are full: a filter of which nobody reads what it writes."""
    pipes = (*UNREAD["pipes"], Pipe("pipe:[77]", (reader,), (101,)))
    writes: dict[str, Any] = {"system_call": "write", "blocked_on": OpenFile(12, "pipe:[77]")}
    judgement = judge(WAITS, asking(server(), **writes), node={"pipes": pipes})
    assert judgement.verdict.cause == cause


@pytest.mark.parametrize("file", [SCRIPT, f"{LIB}/shutil.py"])
def test_a_thread_of_the_rank_may_yet_read_it(file: str) -> None:
    reader = ThreadStack(9, "reader", (Frame(file, 7, "copyfileobj"), Frame(f"{LIB}/threading.py", 982, "run")))
    judgement = judge(WAITS, asking(server(), (reader,)), node=UNREAD)
    assert judgement.verdict.cause == "output-pipe-full"
    assert judgement.verdict.certainty is Certainty.LIKELY


@pytest.mark.parametrize(
    ("child", "facts", "readers"),
    [
        ({"io_delta_bytes": 4096}, {}, (101,)),
        ({}, {"blocked_on": OpenFile(13, "socket 127.0.0.1:5001 -> 10.0.0.9:8000")}, (101,)),
        ({}, {"system_call": "poll"}, (101,)),
        ({}, {}, (101, 50)),
    ],
    ids=["bytes move", "another peer", "with a timeout", "another reader"],
)
def test_children_that_are_not_held_by_the_rank(
    child: dict[str, Any], facts: dict[str, Any], readers: tuple[int, ...]
) -> None:
    judgement = judge(WAITS, asking(server(**child), **facts), node={"pipes": (Pipe(OUTPUT, readers, (CHILD,)),)})
    assert judgement.verdict.cause == "user-code-blocked"
