"""Launches whose numbers contradict each other, and launches that are only not complete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import ExceptionFacts, Frame, NodeFacts, ProcessEvidence, Progress, RankEvidence, Socket
from tests.unit.job import (
    IN_BARRIER,
    IN_NEXT_RENDEZVOUS,
    NOW,
    TORCH,
    blamed,
    gone,
    judge,
    launcher,
    rank,
    snapshot,
    started,
    starting,
    told,
)

CAUSE = "launch-mismatch"
SURE = (CAUSE, "proven", "hung")
IN_TCP_STORE = tuple(
    Frame(f"{TORCH}/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line, name)
    for line, name in ((150, "_create_tcp_store"), (251, "create_backend"))
)


def slurm(number: int, size: int, **more: str) -> dict[str, str]:
    return {"SLURM_PROCID": str(number), "SLURM_NTASKS": str(size), "SLURM_STEP_ID": "0", **more}


def task(number: int, size: int, *, world_size: int, rank_number: int | None = None, **parts: Any) -> RankEvidence:
    """A task of srun in init_process_group."""
    own = number if rank_number is None else rank_number
    return starting(own, world_size=world_size, pid=100 + number, environment=slurm(number, size), **parts)


# ------------------------------------------------------------------------------------------ tasks


def test_world_size_counts_more_than_srun_starts() -> None:
    judgement = judge(task(0, 2, world_size=8), task(1, 2, world_size=8))
    verdict = judgement.verdict
    assert told(judgement) == SURE
    assert (blamed(judgement), verdict.victims) == ([], (0, 1))
    assert verdict.summary == (
        "WORLD_SIZE is 8, and srun starts 2 tasks (SLURM_NTASKS=2); ranks 0-1 wait in init_process_group (train.py:50)."
    )
    assert verdict.evidence == (
        "rank 0 (pid 100) has WORLD_SIZE=8, SLURM_NTASKS=2 and SLURM_PROCID=0",
        "2 tasks of srun are seen",
    )
    assert "#SBATCH --ntasks=8" in verdict.fix


def test_until_all_tasks_have_come_patience_decides() -> None:
    early = task(0, 2, world_size=8, started_at=NOW - 6)
    assert told(judge(early)) == (CAUSE, "likely", "waiting")
    assert told(judge(task(0, 2, world_size=8))) == (CAUSE, "likely", "hung")


def test_mpirun() -> None:
    settings = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    judgement = judge(starting(0, world_size=2, environment=settings))
    assert told(judgement) == (CAUSE, "likely", "hung"), "of a single task it is not known whether it is a step of many"
    assert "mpirun -np 2" in judgement.verdict.fix


@pytest.mark.parametrize(
    "other",
    [{"SLURM_PTY_PORT": "40000"}, {"SLURM_JOB_NUM_NODES": "4"}, {"SLURM_HET_SIZE": "2"}],
    ids=["a shell by srun --pty", "a step for each node", "a heterogeneous job"],
)
def test_a_step_of_one_task_beside_others(other: dict[str, str]) -> None:
    judgement = judge(starting(0, world_size=4, environment=slurm(0, 1, **other)))
    assert judgement.verdict.cause == "rendezvous-missing-ranks"


def test_mpirun_inside_of_a_slurm_job() -> None:
    def inside(number: int) -> dict[str, str]:
        return slurm(0, 16, OMPI_COMM_WORLD_RANK=str(number), OMPI_COMM_WORLD_SIZE="2")

    ranks = [starting(number, world_size=2, environment=inside(number)) for number in (0, 1)]
    assert judge(*ranks).verdict.cause != CAUSE


def test_where_the_numbers_agree_a_rank_was_only_not_started() -> None:
    assert judge(task(0, 2, world_size=2)).verdict.cause == "rendezvous-missing-ranks"


def test_the_script_of_sbatch_is_told_of_all_tasks_and_is_no_task() -> None:
    settings = {"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}
    assert judge(starting(0, world_size=2, environment=settings)).verdict.cause == "rendezvous-missing-ranks"


def test_ranks_that_torchrun_started_inside_of_a_task_are_no_tasks() -> None:
    settings = slurm(0, 1, TORCHELASTIC_RUN_ID="run")
    ranks = [starting(number, world_size=4, launcher="torchrun", environment=settings) for number in (0, 1)]
    assert judge(*ranks).verdict.cause == "rendezvous-missing-ranks"


def test_ranks_that_a_task_has_spawned_are_no_tasks() -> None:
    ranks = [starting(number, world_size=4, launcher="spawn", environment=slurm(0, 1)) for number in (0, 1, 2)]
    assert judge(*ranks).verdict.cause == "rendezvous-missing-ranks"


def test_every_task_is_rank_zero() -> None:
    first, second = task(0, 2, world_size=2), task(1, 2, world_size=2, rank_number=0)
    judgement = judge(first, second)
    verdict = judgement.verdict
    assert told(judgement) == SURE
    assert verdict.summary.startswith(
        "srun started 2 tasks, and all of them have RANK=0 and WORLD_SIZE=2: the others of its world never come"
    )
    assert "the tasks with SLURM_PROCID 0 and 1 have RANK=0: pid 100 and pid 101" in verdict.evidence
    assert "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS" in verdict.fix


def test_the_second_rank_zero_was_refused_the_port() -> None:
    error = ExceptionFacts("DistNetworkError", "EADDRINUSE", (), at=NOW - 12, fatal=True)
    first = gone(0, 1, world_size=2, pid=101, exception=error)
    launched = tuple(started(0, pid=100 + number, environment=slurm(number, 2)) for number in (0, 1))
    judgement = judge(first, task(0, 2, world_size=2), launched=launched)
    assert told(judgement) == SURE


def test_without_a_scheduler_two_processes_claim_one_rank() -> None:
    judgement = judge(starting(0), starting(0, pid=222))
    assert judgement.verdict.cause == "rendezvous-duplicate-rank"


def test_an_error_of_its_own_comes_first() -> None:
    error = ExceptionFacts("ImportError", "No module named 'birds'", (), at=NOW - 12, fatal=True)
    judgement = judge(task(0, 2, world_size=8), gone(1, 1, world_size=8, exception=error, progress=Progress()))
    assert judgement.verdict.cause == "rank-died-before-init"


def test_a_world_that_has_come_together_is_none_of_its_business() -> None:
    settings = slurm(0, 4)
    judgement = judge(rank(0, IN_BARRIER, issued=4, completed=3, environment=settings), starting(1))
    assert judgement.verdict.cause != CAUSE


# ------------------------------------------------------------------------------------------ machines


def on(host: str, number: int, *, local: int = 1, **parts: Any) -> RankEvidence:
    environment = {"LOCAL_WORLD_SIZE": str(local), **parts.pop("environment", {})}
    return replace(starting(number, world_size=parts.pop("world_size", 2), environment=environment, **parts), host=host)


def test_every_machine_meets_itself() -> None:
    lost = on("node-b", 1, environment={"MASTER_ADDR": "localhost"}, facts={"sockets": ()})
    judgement = judge(on("node-a", 0, environment={"MASTER_ADDR": "localhost"}), lost)
    assert told(judgement) == SURE
    assert "MASTER_ADDR is localhost on 2 machines (node-a and node-b)" in judgement.verdict.summary
    assert "rank 1 is not connected to it" in judgement.verdict.evidence


def test_two_names_of_one_machine_may_meet_there() -> None:
    judgement = judge(on("node-a", 0, world_size=3), on("node-b", 1, world_size=3))
    assert judgement.verdict.cause == "rendezvous-missing-ranks"


def test_nodes_with_different_numbers_of_ranks() -> None:
    ranks = [on("node-a", number, local=2, world_size=4) for number in (0, 1)]
    judgement = judge(*ranks, on("node-b", 2, local=1, world_size=4))
    assert told(judgement) == SURE
    assert "WORLD_SIZE is 4, and the nodes start 3 ranks together: node-a starts 2 ranks and node-b starts 1 rank" in (
        judgement.verdict.summary
    )


def test_different_numbers_whose_sum_is_the_world_are_fine() -> None:
    ranks = [on("node-a", number, local=2, world_size=3) for number in (0, 1)]
    waiting = on("node-b", 2, local=1, world_size=3)
    assert judge(*ranks, waiting).verdict.cause != CAUSE


# ------------------------------------------------------------------------------------------ launchers


def agent(options: str, pid: int = 50, stack: tuple[Frame, ...] = IN_NEXT_RENDEZVOUS, **facts: Any) -> ProcessEvidence:
    return launcher(
        stack, pid, command=f"python -m torch.distributed.run {options} train.py", started_at=NOW - 60, **facts
    )


STATIC = "--nnodes=2 --nproc-per-node=8 --master-addr=node-a --master-port=29500"


def test_one_node_rank_for_two_nodes() -> None:
    judgement = judge(launchers=(agent(f"{STATIC} --node_rank 1"), agent(f"{STATIC} --node-rank=1", 51)))
    verdict = judgement.verdict
    assert told(judgement) == SURE
    assert verdict.summary == (
        "2 launchers that meet at node-a:29500 have node rank 1; 2 launchers (pid 50 and pid 51) wait in the"
        " rendezvous."
    )
    assert verdict.evidence == ("pid 50 has --node-rank=1", "pid 51 has --node-rank=1")


def test_node_ranks_that_differ_are_fine() -> None:
    judgement = judge(launchers=(agent(f"{STATIC} --node_rank 0"), agent(f"{STATIC} --node-rank=1", 51)))
    assert judgement.verdict.cause == "node-not-started"


def test_options_by_the_environment() -> None:
    settings = {"PET_NNODES": "2", "PET_MASTER_ADDR": "node-a", "PET_NODE_RANK": "0"}
    judgement = judge(launchers=tuple(agent("", pid, environment=settings) for pid in (50, 51)))
    assert told(judgement) == SURE


C10D = "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=node-a:29500"


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (f"{C10D} --rdzv-id=7", f"{C10D} --rdzv-id=8", "--rdzv-id: 7 and 8"),
        (f"{C10D} --rdzv-id=7", C10D, "--rdzv-id: none and 7"),
        (C10D, C10D.replace("=2", "=4"), "--nnodes: 2 and 4"),
    ],
)
def test_options_that_must_agree(one: str, other: str, differs: str) -> None:
    judgement = judge(launchers=(agent(one), agent(other, 51)))
    assert told(judgement) == SURE
    assert f"differ in {differs}" in judgement.verdict.summary


def test_more_nodes_than_the_scheduler_gives() -> None:
    settings = {"SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2"}
    judgement = judge(launchers=(agent("--nnodes=4 --rdzv-endpoint=node-a:29500", environment=settings),))
    assert told(judgement) == (CAUSE, "likely", "hung")
    assert "--nnodes=4 waits for 4 nodes, and the Slurm job has 2 nodes" in judgement.verdict.summary
    assert "it has SLURM_JOB_NUM_NODES=2" in judgement.verdict.evidence


def test_as_many_nodes_as_the_scheduler_gives() -> None:
    settings = {"SLURM_JOB_NUM_NODES": "2"}
    judgement = judge(launchers=(agent(C10D, environment=settings),))
    assert judgement.verdict.cause == "node-not-started"


def test_a_step_for_each_node() -> None:
    """`srun --nodes=1 --ntasks=1 torchrun ...` for each node of the job."""
    settings = {"SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "1", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "3"}
    assert judge(launchers=(agent(C10D, environment=settings),)).verdict.cause == "node-not-started"


def test_the_endpoint_of_several_nodes_is_no_nodes_own_address() -> None:
    settings = {"SLURM_JOB_NUM_NODES": "2"}
    judgement = judge(launchers=(agent(C10D.replace("node-a", "localhost"), environment=settings),))
    assert told(judgement) == (CAUSE, "likely", "hung")
    assert "meet at localhost:29500, where each finds only itself" in judgement.verdict.summary


def test_no_machine_takes_itself_for_the_host() -> None:
    judgement = judge(launchers=(agent(C10D, stack=IN_TCP_STORE), agent(C10D, 51, stack=IN_TCP_STORE)))
    assert told(judgement) == SURE
    assert judgement.verdict.summary.startswith(
        "No launcher hosts the rendezvous at node-a:29500, which is node-a itself: each takes itself for a client"
    )
    assert "is_host=true" in judgement.verdict.fix


def test_one_launcher_on_the_machine_that_is_named() -> None:
    full = C10D.replace("node-a", "node-a.cluster.local")
    assert told(judge(launchers=(agent(full, stack=IN_TCP_STORE),))) == (CAUSE, "likely", "hung")


def test_the_host_may_be_on_its_way() -> None:
    starts = agent(C10D, 51, stack=(Frame(f"{TORCH}/__init__.py", 10, "<module>"),))
    assert judge(launchers=(agent(C10D, stack=IN_TCP_STORE), starts)).verdict.cause != CAUSE


def test_another_machine_may_host_it() -> None:
    far = C10D.replace("node-a", "node-z")
    assert judge(launchers=(agent(far, stack=IN_TCP_STORE),)).verdict.cause != CAUSE


def test_a_launcher_that_listens_is_the_host() -> None:
    listening = (Socket("0.0.0.0:29500", "0.0.0.0:0", "listen"),)
    host = agent(C10D, sockets=listening, stack=IN_TCP_STORE)
    nodes = (NodeFacts("node-a"),)
    assert diagnose(replace(snapshot(launchers=(host,)), nodes=nodes)).verdict.cause != CAUSE
