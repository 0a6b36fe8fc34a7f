"""`exit-child-process`: a child process keeps the process alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import Frame, Phase, ProcessEvidence, RankEvidence, Socket
from tests.unit.job import (
    COMMAND,
    IN_CHILD_JOIN,
    IN_WAIT,
    SCRIPT,
    blamed,
    frames,
    judge,
    leaving,
    main_thread,
    process,
    told,
)
from tests.unit.rules.exit.exits import DONE


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


@pytest.mark.parametrize(
    ("sleeps_s", "still_s", "status"),
    [(9.0, 35.0, "waiting"), (9.0, 200.0, "lingering"), (0.5, 35.0, "lingering"), (3600.0, 35.0, "lingering")],
)
def test_a_child_in_a_sleep_whose_end_is_near_is_given_time(sleeps_s: float, still_s: float, status: str) -> None:
    asleep = child(system_call="clock_nanosleep", sleeps_s=sleeps_s)
    rank = replace(joining(asleep, waits_for=300), still_s=still_s, patience_s=30.0)
    assert told(judge(DONE, rank))[2] == status


@pytest.mark.parametrize(
    ("sleeps_s", "still_s", "status"),
    [(30.0, 35.0, "waiting"), (30.0, 200.0, "lingering"), (3600.0, 35.0, "lingering"), (None, 35.0, "waiting")],
)
def test_a_command_of_an_exit_handler_has_its_time(sleeps_s: float | None, still_s: float, status: str) -> None:
    shell = ProcessEvidence("child", process(300, command="sh -c sync", system_call="wait4"), rank=1)
    inner = ProcessEvidence("child", process(301, command="sleep 30", sleeps_s=sleeps_s), rank=1)
    rank = leaving(
        1,
        frames(*((each.file, each.line, each.function) for each in IN_WAIT[:2]), below=(Frame(SCRIPT, 20, "sync"),)),
        Phase.ATEXIT,
        facts={"system_call": "wait4", "waits_for": 300},
        evidence={"children": (shell, inner)},
    )
    judgement = judge(DONE, replace(rank, still_s=still_s, patience_s=30.0))
    assert told(judgement) == ("exit-child-process", "likely", status)
    assert "timeout=60" in judgement.verdict.fix


@pytest.mark.parametrize(("command", "status"), [("python upload.py", "waiting"), (COMMAND, "lingering")])
def test_a_program_of_its_own_that_talks_to_others_is_given_time(command: str, status: str) -> None:
    """What a forked child has open it may have from its parent."""
    talks = (Socket("10.0.0.1:4000", "10.0.0.9:443", "established"),)
    naps = child(system_call="clock_nanosleep", sleeps_s=0.2, sockets=talks, command=command)
    rank = replace(joining(naps, waits_for=300), still_s=35.0, patience_s=30.0)
    assert told(judge(DONE, rank))[2] == status
