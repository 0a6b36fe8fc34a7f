"""Workers of Ray that died without an exception of their own."""

from __future__ import annotations

from pathlib import Path

from hangwatch.logs import Logs, read
from tests.unit.logs.lines import gave_up, judged

NAMED = "(RayTrainWorker pid=5102, ip=10.0.0.8) Setting up process group for: env:// [rank=3, world_size=4]"
RAYLET = (
    "(raylet, ip=10.0.0.8) A worker died or was killed while executing a task by an unexpected system error. Worker ID:"
    " 5d2c Node ID: 77aa Worker IP address: 10.0.0.8 Worker port: 10012 Worker PID: 5102 Worker exit type: SYSTEM_ERROR"
    " Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
)
ACTOR = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: RayTrainWorker\n\tactor_id: 9a1c5f\n\tpid: 5102\n\tip: 10.0.0.8\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
)
PRESSURE = (
    "(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at"
    " node (ID: 77aa, IP: 10.0.0.8) over the last time period."
)
MEMORY = (
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
    "Memory on the node (IP: 10.0.0.8, ID: 77aa) where the task (actor ID: 9a1c5f, name=RayTrainWorker.__init__,"
    " pid=5102, memory used=181.20GB) was running was 240.11GB / 251.00GB (0.956613), which exceeds the threshold."
)


def test_a_worker_that_died_is_told_once_with_its_node(tmp_path: Path) -> None:
    found = judged(tmp_path, f"{RAYLET}\n{ACTOR}").judgement
    assert found is not None
    assert (found.verdict.cause, found.verdict.certainty) == ("rank-died", "likely")
    assert [(each.rank, each.pid, each.host) for each in found.verdict.culprits] == [(None, 5102, "10.0.0.8")]
    assert found.verdict.summary.startswith("A worker of Ray (pid 5102 on 10.0.0.8): it died unexpectedly")


def test_its_rank_is_told_where_a_line_names_it(tmp_path: Path) -> None:
    found = judged(tmp_path, f"{NAMED}\n{ACTOR}").judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [3]
    assert found.verdict.summary.startswith("Rank 3, a worker of Ray (pid 5102 on 10.0.0.8): ")


def test_a_worker_that_ray_killed_for_lack_of_memory(tmp_path: Path) -> None:
    found = judged(tmp_path, f"{PRESSURE}\n{MEMORY}").judgement
    assert found is not None
    assert [(each.pid, each.host) for each in found.verdict.culprits] == [(5102, "10.0.0.8")]
    assert "Ray killed it, since its node was low on memory" in found.verdict.summary
    assert "more memory" in found.verdict.fix
    assert found.verdict.evidence == ("a worker of Ray (pid 5102 on 10.0.0.8) used 181.20GB of memory",)


def test_a_job_that_went_on_without_the_worker_has_not_failed(tmp_path: Path) -> None:
    steps = "\n".join(f"(RayTrainWorker pid=4000, ip=10.0.0.7) step {step} loss 2.1" for step in range(20))
    assert judged(tmp_path, f"{RAYLET}\n{steps}").judgement is None


def test_workers_that_the_watchdog_aborts_are_victims(tmp_path: Path) -> None:
    """Ray sees no more of them than that they ended."""
    found = judged(tmp_path, "\n".join((*(gave_up(rank, 7) for rank in (0, 1, 3)), RAYLET))).judgement
    assert found is not None
    assert found.verdict.cause != "rank-died"
    assert [each.rank for each in found.verdict.culprits] == [2]


def test_other_lines_of_the_raylet_are_of_no_use(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    path.write_text("(raylet) 0 Workers crashed\nWorker exit type: INTENDED_USER_EXIT Worker PID: 12\n")
    assert not read(path, Logs())
