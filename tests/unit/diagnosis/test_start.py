"""Jobs that never start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import ExceptionFacts, Frame, LockFile, Phase, ProcessEvidence, Progress, RankEvidence, Stage
from tests.unit.diagnosis.job import (
    IN_BARRIER,
    IN_BATON,
    IN_CODE,
    IN_MESH,
    IN_NEW_GROUP,
    IN_NEXT_RENDEZVOUS,
    IN_SPAWN_JOIN,
    IN_WAIT,
    NOW,
    SCRIPT,
    blamed,
    gone,
    judge,
    launcher,
    made,
    member,
    other,
    process,
    rank,
    started,
    starting,
    told,
)

NEVER_CAME = ("rendezvous-missing-ranks", "likely", "hung")


# ------------------------------------------------------------------------------------------ ranks that never come


def test_a_rank_that_was_never_started() -> None:
    judgement = judge(starting(0), world_size=2)
    assert told(judgement) == NEVER_CAME
    assert blamed(judgement) == [(1, None, "rank")]
    assert judgement.stage is Stage.START
    assert "Rank 1 never came: 1 of 2 ranks was started" in judgement.verdict.summary


def test_patience_before_it() -> None:
    early = starting(0, still_s=5.0, started_at=NOW - 6)
    assert told(judge(early, world_size=2)) == ("rendezvous-missing-ranks", "likely", "waiting")


def test_a_launcher_on_this_machine_that_only_waits_proves_it_at_once() -> None:
    early = starting(0, still_s=5.0, started_at=NOW - 6)
    judgement = judge(early, world_size=2, launchers=(launcher(IN_WAIT, waits_for=100),))
    assert told(judgement) == ("rendezvous-missing-ranks", "proven", "hung")


def test_a_launcher_that_still_does_something_may_start_more() -> None:
    judgement = judge(starting(0), world_size=2, launchers=(launcher(IN_CODE),))
    assert told(judgement) == ("rendezvous-missing-ranks", "likely", "waiting")


def test_a_master_elsewhere_leaves_room_for_other_machines() -> None:
    far = starting(0, environment={"MASTER_ADDR": "10.0.0.1"})
    assert told(judge(far, world_size=2, launchers=(launcher(IN_WAIT, waits_for=100),))) == NEVER_CAME


def test_spawn_with_fewer_processes_than_the_world() -> None:
    ranks = [starting(number, world_size=3, launcher="spawn") for number in (0, 1)]
    judgement = judge(*ranks, launchers=(launcher(IN_SPAWN_JOIN, system_call="poll"),))
    assert told(judgement) == ("rendezvous-missing-ranks", "proven", "hung")
    assert judgement.verdict.fix == "mp.spawn(..., nprocs=3), or init_process_group(..., world_size=2)"


def coming(**facts: Any) -> ProcessEvidence:
    """A process that rank 0 started: a trainer starts its other ranks so, and gives them no RANK."""
    return other(222, "child", rank=0, **facts)


@pytest.mark.parametrize("facts", [{"state": "R"}, {"cpu_delta_s": 0.6}, {"environment": {"LOCAL_RANK": "1"}}])
def test_a_child_of_a_rank_that_may_become_one_is_waited_for(facts: dict[str, Any]) -> None:
    judgement = judge(starting(0, evidence={"children": (coming(**facts),)}), world_size=2)
    assert told(judgement) == ("rendezvous-missing-ranks", "likely", "waiting")
    assert "pid 222, started by rank 0, is no rank yet and may become one" in judgement.verdict.evidence


@pytest.mark.parametrize("facts", [{}, {"state": "Z"}, {"environment": {"LOCAL_RANK": "0"}}])
def test_a_child_that_does_nothing_is_not_waited_for(facts: dict[str, Any]) -> None:
    assert told(judge(starting(0, evidence={"children": (coming(**facts),)}), world_size=2)) == NEVER_CAME


def test_a_spawned_process_that_still_imports_speaks_against_a_proof() -> None:
    on_its_way = other(222, "job", cpu_delta_s=0.8)
    judgement = judge(
        starting(0, launcher="spawn"),
        world_size=2,
        launchers=(launcher(IN_SPAWN_JOIN, system_call="poll"),),
        others=(on_its_way,),
    )
    assert told(judgement) == ("rendezvous-missing-ranks", "likely", "waiting")


def test_patience_begins_when_a_rank_begins_to_wait() -> None:
    judgement = judge(starting(0, still_s=5.0, started_at=NOW - 60), world_size=2)
    assert told(judgement) == ("rendezvous-missing-ranks", "likely", "waiting")
    assert "they have waited for 5.0 s at most" in judgement.verdict.evidence


def test_a_rank_that_a_fact_keeps_from_coming_is_not_waited_for_as_long() -> None:
    late = rank(
        1, IN_CODE, phase=Phase.START, progress=Progress(), still_s=62.0, patience_s=60.0, evidence={"held": "waits"}
    )
    assert told(judge(starting(0), late)) == ("user-code-blocked", "likely", "hung")
    assert told(judge(starting(0), replace(late, held=""))) == ("user-code-blocked", "likely", "waiting")
    assert told(judge(starting(0), replace(late, still_s=58.0))) == ("user-code-blocked", "likely", "waiting")


def test_a_rank_that_comes_late_is_waited_for() -> None:
    late = rank(1, IN_CODE, phase=Phase.START, progress=Progress())
    judgement = judge(starting(0), late)
    assert told(judgement) == ("user-code-blocked", "likely", "waiting")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.stage is Stage.START


def test_a_rank_that_never_comes_although_it_lives() -> None:
    late = rank(1, IN_CODE, phase=Phase.START, progress=Progress(), started_at=NOW - 400)
    assert told(judge(starting(0), late)) == ("user-code-blocked", "likely", "hung")


def test_a_process_without_a_board_is_on_its_way() -> None:
    judgement = judge(starting(0), launched=(started(0), started(1, pid=222)))
    assert told(judgement) == ("user-code-blocked", "likely", "waiting")
    assert blamed(judgement) == [(1, 222, "rank")]


# ------------------------------------------------------------------------------------------ ended before they came


def raised(kind: str = "ImportError", message: str = "No module named 'birds'", **parts: object) -> ExceptionFacts:
    return ExceptionFacts(kind, message, (Frame(SCRIPT, 7, "<module>"),), at=NOW - 12, **parts)  # type: ignore[arg-type]


def dead_before(number: int, code: int = 1, **parts: object) -> RankEvidence:
    return gone(number, code, progress=Progress(), **parts)  # type: ignore[arg-type]


def test_a_rank_that_raised_before_it_registered() -> None:
    judgement = judge(starting(0), dead_before(1, state="Z", exception=raised()))
    assert told(judgement) == ("rank-died-before-init", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "ImportError: No module named 'birds' (train.py:7)" in judgement.verdict.summary
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 7, "<module>")


@pytest.mark.parametrize("name", ["torchrun", "spawn"])
def test_a_launcher_that_ends_the_others_makes_it_a_failure(name: str) -> None:
    judgement = judge(starting(0, launcher=name), dead_before(1, exception=raised(), launcher=name))
    assert told(judgement) == ("rank-died-before-init", "proven", "failed")


def test_a_rank_that_left_with_code_0_is_missed_too() -> None:
    assert told(judge(starting(0), dead_before(1, 0))) == ("rank-died-before-init", "proven", "hung")


def test_its_last_words_in_a_log() -> None:
    log = "loading\nValueError: lr must be positive\n"
    judgement = judge(starting(0), dead_before(1, evidence={"last_output": log}))
    assert "ValueError: lr must be positive" in judgement.verdict.summary


def test_a_process_that_died_without_a_board() -> None:
    dead = started(1, pid=222, ended_at=NOW - 4, exit_code=-9)
    judgement = judge(starting(0), launched=(started(0), dead), world_size=2)
    assert told(judgement) == ("rank-died-before-init", "proven", "hung")
    assert blamed(judgement) == [(1, 222, "rank")]
    assert "killed by SIGKILL" in judgement.verdict.summary


def test_last_words_are_waited_for_a_moment() -> None:
    dead = started(1, pid=222, ended_at=NOW - 0.5, exit_code=1)
    assert told(judge(starting(0), launched=(dead,), world_size=2))[2] == "waiting"


def test_all_raised_the_same() -> None:
    judgement = judge(*(dead_before(number, exception=raised()) for number in (0, 1)))
    assert told(judgement) == ("rank-died-before-init", "proven", "failed")
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}


def test_who_was_ended_by_the_launcher_is_not_to_blame() -> None:
    judgement = judge(dead_before(0, -15), dead_before(1, exception=raised()))
    assert blamed(judgement) == [(1, 101, "rank")]


def test_a_rank_that_was_a_member_died_later() -> None:
    judgement = judge(rank(0, IN_BARRIER, issued=4, completed=3), gone(1, 1, Phase.STEP, issued=3, completed=3))
    assert judgement.verdict.cause == "rank-died"


# ------------------------------------------------------------------------------------------ where they meet


def lost(number: int, **parts: object) -> RankEvidence:
    return starting(number, facts={"sockets": ()}, **parts)  # type: ignore[arg-type]


def test_another_port() -> None:
    astray = lost(1, environment={"MASTER_PORT": "29501"}, world_size=3)
    judgement = judge(starting(0, world_size=3), astray, starting(2, world_size=3))
    assert told(judgement) == ("rendezvous-unreachable-master", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.fix == "give every rank the same MASTER_PORT: 29500"


def test_of_two_ports_that_of_rank_0_is_right_but_nothing_proves_it() -> None:
    judgement = judge(starting(0), lost(1, environment={"MASTER_PORT": "29501"}))
    assert told(judgement) == ("rendezvous-unreachable-master", "likely", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.fix == "give every rank the same MASTER_PORT: 29500"


def test_the_majority_is_right_even_against_rank_0() -> None:
    astray = starting(0, environment={"MASTER_ADDR": "10.0.0.9"}, world_size=3)
    judgement = judge(astray, lost(1, world_size=3), lost(2, world_size=3))
    assert blamed(judgement) == [(0, 100, "rank")]
    assert judgement.verdict.fix == "give every rank the same MASTER_ADDR: 127.0.0.1"


def test_another_name_for_the_same_place_is_no_fault() -> None:
    judgement = judge(starting(0), starting(1, IN_MESH, environment={"MASTER_ADDR": "localhost"}), world_size=3)
    assert judgement.verdict.cause == "rendezvous-missing-ranks"


def test_nobody_listens_because_rank_0_never_came() -> None:
    judgement = judge(lost(1), world_size=2)
    assert told(judgement) == ("rendezvous-unreachable-master", "likely", "hung")
    assert blamed(judgement) == [(0, None, "rank")]


def test_nobody_listens_yet_because_rank_0_is_late() -> None:
    late = rank(0, IN_CODE, phase=Phase.START, progress=Progress())
    assert told(judge(late, lost(1))) == ("user-code-blocked", "likely", "waiting")


def test_a_name_that_does_not_resolve() -> None:
    ranks = [lost(number, environment={"MASTER_ADDR": "node-0"}) for number in (0, 1)]
    judgement = judge(*ranks, node={"master_resolves": False})
    assert told(judgement) == ("rendezvous-unreachable-master", "likely", "hung")
    assert blamed(judgement) == []
    assert "the name does not resolve" in judgement.verdict.summary


def test_unreadable_sockets_say_nothing() -> None:
    blind = starting(0, facts={"sockets": (), "unreadable": ("sockets: permission denied",)})
    assert told(judge(blind, world_size=2)) == NEVER_CAME


TAKEN = raised("DistNetworkError", "The server socket has failed to listen. port: 29500, code: -98, name: EADDRINUSE")


def test_a_port_that_another_job_has() -> None:
    stranger = process(9, command="python other_train.py")
    judgement = judge(dead_before(0, exception=TAKEN), starting(1), node={"master_listener": stranger})
    assert told(judgement) == ("rendezvous-port-conflict", "proven", "hung")
    assert blamed(judgement) == [(None, 9, "other")]
    assert "pid 9 (python other_train.py)" in judgement.verdict.summary


def test_a_port_that_somebody_had() -> None:
    judgement = judge(dead_before(0, exception=TAKEN, launcher="torchrun"), starting(1, launcher="torchrun"))
    assert told(judgement) == ("rendezvous-port-conflict", "likely", "failed")
    assert blamed(judgement) == []


def test_a_store_of_our_own_is_no_conflict() -> None:
    ours = launcher(IN_WAIT, pid=50, waits_for=100)
    judgement = judge(starting(1), world_size=2, launchers=(ours,), node={"master_listener": process(50)})
    assert judgement.verdict.cause == "rendezvous-missing-ranks"


# ------------------------------------------------------------------------------------------ twice


def test_two_living_processes_of_one_rank() -> None:
    ranks = [starting(0), starting(1, IN_MESH, pid=111), starting(1, IN_MESH, pid=122, started_at=NOW - 50)]
    judgement = judge(*ranks)
    assert told(judgement) == ("rendezvous-duplicate-rank", "proven", "hung")
    assert blamed(judgement) == [(1, 111, "rank"), (1, 122, "rank")]


def test_one_of_an_earlier_start() -> None:
    ranks = [starting(0), starting(1, pid=122), starting(1, pid=11, started_at=NOW - 7200)]
    judgement = judge(*ranks)
    assert judgement.verdict.fix == "kill 11, which is left from an earlier start"


def test_a_child_of_a_rank_is_not_its_twin() -> None:
    child = starting(1, pid=122, facts={"parent": 101})
    assert judge(starting(0), starting(1), child).verdict.cause != "rendezvous-duplicate-rank"


def test_twins_that_failed_together() -> None:
    twins = (started(1, pid=111, ended_at=NOW - 2), started(1, pid=122, ended_at=NOW - 2))
    judgement = judge(gone(0), gone(1, 1, exception=raised("RuntimeError", "Connection reset by peer")), launched=twins)
    assert told(judgement) == ("rendezvous-duplicate-rank", "proven", "failed")


def test_a_successor_is_not_a_twin() -> None:
    earlier = started(1, pid=111, ended_at=NOW - 50)
    later = started(1, pid=122, started_at=NOW - 50)
    judgement = judge(starting(0), starting(1, pid=122), launched=(started(0), earlier, later), world_size=3)
    assert judgement.verdict.cause == "rendezvous-missing-ranks"


# ------------------------------------------------------------------------------------------ nodes


TORCHRUN = "torchrun --nnodes=2 --rdzv-endpoint=node-a:29400 train.py"


def test_torchrun_waits_for_another_node() -> None:
    waiting = launcher(IN_NEXT_RENDEZVOUS, command=TORCHRUN, started_at=NOW - 45)
    judgement = judge(launchers=(waiting,))
    assert told(judgement) == ("node-not-started", "likely", "hung")
    assert "1 of 2 nodes has come" in judgement.verdict.summary
    assert "at node-a:29400" in judgement.verdict.evidence[0]
    assert blamed(judgement) == []


def test_it_has_patience_with_nodes() -> None:
    waiting = launcher(IN_NEXT_RENDEZVOUS, command=TORCHRUN, started_at=NOW - 20)
    assert told(judge(launchers=(waiting,))) == ("node-not-started", "likely", "waiting")


@pytest.mark.parametrize("command", ["torchrun --standalone --nproc-per-node=2 train.py", "torchrun --nnodes=1:2 t.py"])
def test_one_node_is_enough_for_itself(command: str) -> None:
    waiting = launcher(IN_NEXT_RENDEZVOUS, command=command, started_at=NOW - 45)
    assert judge(launchers=(waiting,)).verdict.cause == "undetermined"


def test_a_launcher_that_works_is_not_waiting_for_nodes() -> None:
    busy = launcher(IN_NEXT_RENDEZVOUS, command=TORCHRUN, started_at=NOW - 45, state="R")
    assert told(judge(launchers=(busy,)))[2] == "waiting"


# ------------------------------------------------------------------------------------------ new_group


def test_different_lists() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_BARRIER, (made(1, 0, 2, line=22),)),
        member(2, IN_BARRIER, (made(1, 0, 1),)),
    )
    assert told(judgement) == ("new-group-mismatch", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 22, "main")
    assert "call 1 was made with ranks 0 and 2 [0, 1] and rank 1 [0, 2]" in judgement.verdict.summary


def test_without_a_majority_both_sides_are_named() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_NEW_GROUP, (made(1, 1, 2, done=False),), phase=Phase.GROUP),
    )
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}


def test_a_member_that_never_called_it() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP),
        member(1, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP),
        member(2, IN_BARRIER),
    )
    assert told(judgement) == ("new-group-mismatch", "proven", "hung")
    assert blamed(judgement) == [(2, 102, "rank")]


def test_a_member_that_is_only_late() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_CODE, patience_s=120.0),
        member(2, IN_BARRIER),
    )
    assert told(judgement) == ("user-code-blocked", "likely", "waiting")
    assert blamed(judgement) == [(1, 101, "rank")]


def test_equal_calls_are_no_mismatch() -> None:
    ranks = [member(number, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP) for number in range(3)]
    assert judge(*ranks).verdict.cause != "new-group-mismatch"


# ------------------------------------------------------------------------------------------ lock files


def polling(lock: LockFile, **parts: object) -> RankEvidence:
    return rank(1, IN_BATON, evidence={"lock_files": (lock,)}, issued=3, completed=3, **parts)  # type: ignore[arg-type]


BARRED = rank(0, IN_BARRIER, issued=4, completed=3)


def test_a_lock_that_nobody_holds() -> None:
    judgement = judge(BARRED, polling(LockFile("/home/ann/.cache/ext/lock", None, False, 3600.0)))
    assert told(judgement) == ("stale-file-lock", "proven", "hung")
    assert judgement.verdict.fix == "rm /home/ann/.cache/ext/lock"
    assert (blamed(judgement), judgement.verdict.victims) == ([], (0, 1))


def test_a_lock_whose_owner_is_dead() -> None:
    judgement = judge(BARRED, polling(LockFile("/data/lock", 77, False, 60.0)))
    assert blamed(judgement) == [(None, 77, "other")]


def test_a_lock_that_somebody_holds() -> None:
    judgement = judge(BARRED, polling(LockFile("/data/lock", 77, True, 60.0)))
    assert judgement.verdict.cause == "user-code-blocked"


def test_a_lock_that_was_made_just_now() -> None:
    fresh = polling(LockFile("/data/lock", None, False, 1.0), still_s=2.0)
    assert told(judge(BARRED, fresh)) == ("stale-file-lock", "likely", "waiting")


def test_nothing_at_all_is_judged_without_a_word() -> None:
    assert told(judge()) == ("undetermined", "undetermined", "waiting")
    assert told(judge(replace(starting(0), reading=None, process=None), world_size=2))[2] in ("waiting", "hung")
