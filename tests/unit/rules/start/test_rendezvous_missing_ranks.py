"""`rendezvous-missing-ranks`: ranks never came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import OpenFile, Phase, ProcessEvidence, Progress, Stage, Status
from tests.unit.job import (
    IN_CODE,
    IN_SPAWN_JOIN,
    IN_WAIT,
    NOW,
    blamed,
    judge,
    launcher,
    other,
    rank,
    started,
    starting,
    told,
)
from tests.unit.rules.start.starts import NEVER_CAME


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


@pytest.mark.parametrize(
    ("facts", "pauses"),
    [
        ({"parent": 50, "sleeps_s": 50.0}, True),
        ({"parent": 50, "cpu_delta_s": 0.0}, True),  # a copy, perhaps
        ({"parent": 50, "state": "Z"}, False),
        ({"parent": 50, "started_at": NOW - 500}, False),  # before rank 0: it lies in the background
        ({"parent": 50, "blocked_on": OpenFile(0, "pipe:[7]")}, False),  # as `tee` does, of what a rank prints
        ({"parent": 50, "sleeps_s": 100_000.0}, False),  # it only keeps the script alive
        ({"parent": 51, "sleeps_s": 50.0}, False),
    ],
)
def test_a_script_that_runs_a_command_between_two_ranks_may_start_more(facts: dict[str, Any], *, pauses: bool) -> None:
    """GIVEN a shell that has started rank 0 WHEN it runs `sleep 50` before it starts the other one."""
    shell = launcher((), 50, command="bash launch.sh", system_call="wait4")
    one = starting(0, started_at=NOW - 60, facts={"parent": 50, "started_at": NOW - 60})
    judgement = judge(one, world_size=2, launchers=(shell,), others=(other(60, "job", **facts),))
    assert told(judgement) == (("rendezvous-missing-ranks", "likely", "waiting") if pauses else NEVER_CAME)
    assert ("has not come yet" in judgement.verdict.summary) is pauses


def test_a_rank_that_a_person_started_by_hand_may_be_followed_by_others() -> None:
    """GIVEN a command that is rank 0 itself, with no launcher, THEN another terminal may start rank 1 in a while."""
    assert judge(starting(0, still_s=60.0), world_size=2).status is Status.WAITING
    by_a_script = judge(starting(0, still_s=60.0), world_size=2, launchers=(launcher((), 50, command="bash x"),))
    assert by_a_script.status is Status.HUNG


@pytest.mark.parametrize(("waits_for", "children", "proven"), [(100, (100,), True), (70, (100, 70), False)])
def test_a_launcher_in_a_command_of_its_own_may_start_more_ranks_after_it(
    waits_for: int, children: tuple[int, ...], proven: bool
) -> None:
    """GIVEN a program that starts rank 0 and copies data with `subprocess.run` before it starts the other one."""
    parent = launcher(IN_WAIT, waits_for=waits_for, children=children)
    judgement = judge(starting(0), world_size=2, launchers=(parent,))
    assert told(judgement) == ("rendezvous-missing-ranks", "proven", "hung") or not proven
    assert (judgement.status is Status.HUNG) is proven


def test_a_child_that_was_started_a_moment_ago_may_be_the_missing_rank() -> None:
    """GIVEN a launcher that waits for rank 0 already, and a child of it that no list of processes knows yet."""
    parent = launcher(IN_WAIT, waits_for=100, children=(100, 101))
    assert judge(starting(0), world_size=2, launchers=(parent,)).status is Status.WAITING
    # AND no child that came before the ranks, as multiprocessing's resource tracker does
    earlier = launcher(IN_WAIT, waits_for=100, children=(99, 100))
    assert told(judge(starting(0), world_size=2, launchers=(earlier,))) == (
        "rendezvous-missing-ranks",
        "proven",
        "hung",
    )


def test_a_master_elsewhere_leaves_room_for_other_machines() -> None:
    far = starting(0, environment={"MASTER_ADDR": "10.0.0.1"})
    assert told(judge(far, world_size=2, launchers=(launcher(IN_WAIT, waits_for=100),))) == NEVER_CAME


def test_spawn_with_fewer_processes_than_the_world() -> None:
    ranks = [starting(number, world_size=3, launcher="spawn") for number in (0, 1)]
    judgement = judge(*ranks, launchers=(launcher(IN_SPAWN_JOIN, system_call="poll"),))
    assert told(judgement) == ("rendezvous-missing-ranks", "proven", "hung")
    assert judgement.verdict.fix == "mp.spawn(..., nprocs=3), or init_process_group(..., world_size=2)"


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


def test_a_world_size_that_is_slurm_s_number_of_tasks_is_started_by_srun() -> None:
    tasks = {"environment": {"SLURM_NTASKS": "2"}}
    verdict = judge(starting(0, facts=tasks), world_size=2).verdict
    assert verdict.fix.startswith("start the command with srun")
    assert "the world size is Slurm's number of tasks, SLURM_NTASKS=2" in verdict.evidence
    assert "srun" not in judge(starting(0, facts={"environment": {"SLURM_NTASKS": "8"}}), world_size=2).verdict.fix
