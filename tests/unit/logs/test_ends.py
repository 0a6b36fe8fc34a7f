"""Ends of processes in logs: of attempts, seen at once, of devices, of Slurm's tasks, and in torch's store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangwatch.logs import Logs, read
from hangwatch.logs.attempt import bare
from hangwatch.model import Verdict
from tests.unit.logs.lines import asked_to_dump, failure, far, gave_up, judged, set_up, table
from tests.unit.logs.test_own_words import SET_UP, trace

UNTOLD = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
ANEW = "I1123 agent/server/api.py:894] [default] Worker group FAILED. 3/3 attempts left; will restart worker group"


def told(tmp_path: Path, *texts: str) -> Verdict:
    found = judged(tmp_path, "\n".join(texts)).judgement
    assert found is not None
    return found.verdict


def named(verdict: Verdict) -> list[int | None]:
    return [each.rank for each in verdict.culprits]


# ------------------------------------------------------------------------------------------ attempts


@pytest.mark.parametrize("line", [ANEW, "  restart_count=1"])
def test_what_was_said_before_a_restart_is_of_another_attempt(line: str, tmp_path: Path) -> None:
    before = [trace(3), *(gave_up(rank, 640) for rank in (0, 1, 2))]
    after = [gave_up(rank, 10) for rank in (0, 2, 3)]
    found = told(tmp_path, *before, line, *after, asked_to_dump(1, 9, 9))
    assert (found.cause, named(found)) == ("undetermined", [1])
    assert "all_reduce 10 " in found.summary


def test_the_first_attempt_is_no_restart(tmp_path: Path) -> None:
    found = told(tmp_path, "  restart_count=0", trace(3))
    assert named(found) == [3]


# ------------------------------------------------------------------------------------------ which was first


def test_failures_that_torchrun_saw_in_one_second_do_not_tell_which_was_first(tmp_path: Path) -> None:
    found = told(tmp_path, table(failure(1, 1, UNTOLD), failure(0, 1, UNTOLD, root=True)))
    assert (named(found), found.certainty) == ([0, 1], "undetermined")
    # AND an earlier one is first
    early = failure(0, 1, UNTOLD, root=True).replace("10:30:31", "10:30:29")
    found = told(tmp_path, table(failure(1, 1, UNTOLD), early))
    assert (named(found), found.certainty) == ([0], "likely")


def test_ranks_that_failed_of_the_same_are_not_told_apart_by_time(tmp_path: Path) -> None:
    early = failure(0, 1, UNTOLD, root=True).replace("10:30:31", "10:30:29")
    found = told(tmp_path, trace(0), trace(1), table(failure(1, 1, UNTOLD), early))
    assert (named(found), found.certainty) == ([0, 1], "undetermined")


def test_an_end_that_only_torchruns_agent_saw(tmp_path: Path) -> None:
    line = (
        "E1123 18:44:21 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 2"
    )
    end = f"{line} (pid: 4002) of binary: /venv/bin/python3"
    found = told(tmp_path, end)
    assert (found.cause, found.certainty) == ("rank-died", "likely")
    assert [(each.rank, each.pid) for each in found.culprits] == [(None, 4002)]
    assert found.summary.startswith("Local rank 2 (pid 4002) died by signal 9")
    # AND where NCCL's lines tell the rank of that process
    assert told(tmp_path, *SET_UP, end).summary.startswith("Rank 2 (pid 4002)")
    # AND an abort may be the watchdog's
    logs = Logs()
    (tmp_path / "abort.log").write_text(end.replace("-9", "-6") + "\n")
    assert read(tmp_path / "abort.log", logs)
    assert named(told(tmp_path, end.replace("-9", "-6"), gave_up(0, 5), gave_up(1, 5), asked_to_dump(2, 4, 4))) == [2]


# ------------------------------------------------------------------------------------------ devices and networks


def broken(rank: int, error: str, place: int | None = None) -> str:
    place = rank if place is None else place
    return (
        f"[rank{rank}]:[E1206 18:34:12.3 ProcessGroupNCCL.cpp:1834] [PG ID 2 PG GUID 7(tp) Rank {place}] Process group"
        f" watchdog thread terminated with exception: {error}"
    )


def test_an_error_of_a_device_that_ended_the_watchdogs_thread_is_of_its_rank(tmp_path: Path) -> None:
    waiting = [gave_up(rank, 90) for rank in (0, 1, 2)]
    found = told(tmp_path, broken(3, "CUDA error: an illegal memory access was encountered"), *waiting)
    assert (found.cause, named(found), found.victims) == ("exception-on-one-rank", [3], (0, 1, 2))
    found = told(tmp_path, broken(3, "CUDA error: uncorrectable ECC error encountered"), *waiting)
    assert (found.cause, named(found)) == ("gpu-fault", [3])


def test_the_abort_that_follows_an_error_of_a_device_is_no_victims(tmp_path: Path) -> None:
    line = broken(1, "CUDA error: an illegal memory access was encountered")
    aborted = table(failure(1, -6, "Signal 6 (SIGABRT) received by PID 4001", root=True))
    assert named(told(tmp_path, line, aborted)) == [1]
    assert named(told(tmp_path, aborted)) == []


def test_what_a_process_throws_names_the_rank_within_its_group_only(tmp_path: Path) -> None:
    line = broken(6, "CUDA error: unspecified launch failure", place=0)
    thrown = "  what():  " + line.partition("] ")[2]
    assert named(told(tmp_path, line, thrown)) == [6]
    given_up = gave_up(6, 12)
    again = "  what():  [PG ID 2 PG GUID 7(tp) Rank 0] Process group watchdog thread terminated with exception: " + (
        given_up.partition("] ")[2].replace("[Rank 6]", "[Rank 0]")
    )
    logs = Logs()
    (tmp_path / "thrown.log").write_text(f"{given_up}\n{again}\n")
    assert read(tmp_path / "thrown.log", logs)
    assert [each.rank for each in logs.timeouts] == [6]


def test_the_last_error_of_nccl_that_an_exception_repeats_is_a_warning(tmp_path: Path) -> None:
    error = trace(0, "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error")
    last = "[rank0]: Last error:\n[rank0]: socketStartConnect: Connect to 10.0.0.3<43215> failed : Connection refused"
    found = told(tmp_path, error, last)
    assert (found.cause, found.certainty, named(found)) == ("interconnect-stall", "undetermined", [])
    assert "seen by rank 0: socketStartConnect" in found.summary


# ------------------------------------------------------------------------------------------ groups


def test_numbers_too_far_apart_for_one_group_are_not_compared(tmp_path: Path) -> None:
    """Before torch 2.3 the lines name no group: rank 3 is not to be blamed for calls of different groups."""
    lines = [gave_up(2, 900), *(gave_up(rank, 40, "_REDUCE_SCATTER_BASE") for rank in (0, 1, 4))]
    found = told(tmp_path, *lines)
    assert (found.cause, named(found), found.victims) == ("undetermined", [], (0, 1, 2, 4))
    assert "of several groups" in found.summary
    # AND with the groups told, they are
    found = told(tmp_path, *lines, *(far(rank, 40, 40, 39) for rank in (0, 1, 4)), far(2, 900, 900, 899, "2 PG GUID 7"))
    assert "of several groups" not in found.summary


# ------------------------------------------------------------------------------------------ the store


def test_ranks_that_never_came_to_the_rendezvous(tmp_path: Path) -> None:
    error = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined."
    found = told(tmp_path, *(trace(rank, error) for rank in (0, 1, 3)))
    assert (found.cause, named(found)) == ("rendezvous-missing-ranks", [2])
    # AND where only some of those that came have said so, none is named
    found = told(tmp_path, trace(0, error))
    assert (found.cause, named(found)) == ("rendezvous-missing-ranks", [])


@pytest.mark.parametrize(
    ("said", "cause", "summary"),
    [
        ("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
         "rendezvous-missing-ranks", "1 of 2 came"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "node-not-started", "not all came"),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen. port: 29500, name: EADDRINUSE",
         "rendezvous-port-conflict", "port 29500 is in use already"),
    ],
)  # fmt: skip
def test_a_launcher_whose_rendezvous_failed(said: str, cause: str, summary: str, tmp_path: Path) -> None:
    found = told(tmp_path, "Traceback (most recent call last):", said)
    assert (found.cause, named(found)) == (cause, [])
    assert summary in found.summary
    # AND where ranks have begun, what they say comes first
    assert told(tmp_path, said, trace(1, "ValueError: no")).cause != cause


NO_MASTER = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to"
    " (node-a, 29500)."
)


def test_a_process_that_did_not_reach_the_store(tmp_path: Path) -> None:
    """Beside it, the store's own process waits for that one in vain."""
    for lines, who, victims in ((NO_MASTER, "A process of this job", ()), (trace(8, NO_MASTER), "Rank 8", (8,))):
        found = told(tmp_path, "Traceback (most recent call last):", lines)
        assert (found.cause, found.culprits, found.victims) == ("rendezvous-unreachable-master", (), victims)
        assert found.summary == f"{who} did not reach the store at node-a:29500, and gave it up after 10 min."
    came = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 15/16 clients joined."
    found = told(tmp_path, "Traceback (most recent call last):", came, NO_MASTER)
    assert found.cause == "rendezvous-unreachable-master"
    assert came in found.evidence
    # AND where a rank failed by itself, its store is gone with it
    assert told(tmp_path, NO_MASTER, trace(0, "ValueError: no")).cause == "exception-on-one-rank"


def test_the_first_rank_of_a_group_that_never_made_its_communicators_id(tmp_path: Path) -> None:
    error = (
        "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0]"
        " via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /{}//0"
    )
    found = told(tmp_path, *(trace(rank, error.format("default_pg/0")) for rank in (1, 2, 3)))
    assert (found.cause, named(found), found.victims) == ("undetermined", [0], (1, 2, 3))
    assert named(told(tmp_path, *(trace(rank, error.format("7/0")) for rank in (5, 6)))) == []


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("exited unexpectedly", "loader-worker-died"),
        ("is killed by signal: Killed.", "loader-worker-died"),
        ("is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
         "shared-memory-exhausted"),
    ],
)  # fmt: skip
def test_a_rank_whose_loader_worker_died(end: str, cause: str, tmp_path: Path) -> None:
    found = told(tmp_path, trace(2, f"RuntimeError: DataLoader worker (pid(s) 7712) {end}"))
    assert (found.cause, named(found)) == (cause, [2])


# ------------------------------------------------------------------------------------------ launchers


def test_a_task_of_slurm_is_a_rank_where_the_labels_say_so(tmp_path: Path) -> None:
    killed = "srun: error: node-a: task 1: Out Of Memory"
    labelled = [f"{rank}: {gave_up(rank, 31)}" for rank in (0, 2, 3)]
    found = told(tmp_path, *labelled, killed)
    assert (found.cause, named(found), found.victims) == ("rank-died", [1], (0, 2, 3))
    assert "srun says: Out Of Memory" in found.summary
    # AND with one task a node, its number is no rank's
    found = told(tmp_path, *(f"0: {gave_up(rank, 31)}" for rank in (0, 2, 3)), killed)
    assert (named(found), found.summary.startswith("Task 1 of Slurm on node-a")) == ([None], True)
    # AND tasks that were ended from outside did not fail by themselves
    assert told(tmp_path, *labelled, "srun: error: node-a: tasks 0,2-3: Terminated").cause == "undetermined"


@pytest.mark.parametrize(
    "label",
    ["2025-12-06T18:44:44.903881911Z stderr F ", "[1,3]<stderr>:", "\x1b[36m(W pid=9, ip=10.0.0.3)\x1b[0m ", " 3: "],
)
def test_labels_of_containers_and_launchers(label: str, tmp_path: Path) -> None:
    text = "\n".join(label + line for line in trace(3).splitlines())
    assert named(told(tmp_path, text)) == [3]
    assert bare(label + "node-a:1:2 [0] NCCL INFO x") == "node-a:1:2 [0] NCCL INFO x"
    assert bare(f"{label}  rank      : 3 (local_rank: 3)").strip().startswith("rank ")


def test_interfaces_in_the_words_of_newer_versions(tmp_path: Path) -> None:
    line = "node-a:4000:4000 [0] NCCL INFO Bootstrap: Using bond0:172.19.50.38<0>"
    (tmp_path / "n.log").write_text("\n".join([line, *(set_up(rank, "START") for rank in range(4))]) + "\n")
    logs = Logs()
    assert read(tmp_path / "n.log", logs)
    assert logs.networks == {"node-a": {"bond0"}}


SPAWNED = """torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 2 terminated with the following error:
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "/home/mia/train.py", line 88, in main
    loss = model(x)
ValueError: bad shape"""
KILLED = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"
DEEPSPEED = "[ERROR] [launch.py:322] ['python', '-u', 'train.py', '--local_rank=3'] exits with return code = -9"


@pytest.mark.parametrize(
    ("text", "cause", "said"),
    [
        (SPAWNED, "exception-on-one-rank", "Local rank 2 raised an exception (train.py:88): ValueError: bad shape."),
        (KILLED, "rank-died", "Local rank 1 died by signal 9."),
        (DEEPSPEED, "rank-died", "Local rank 3 died by signal 9."),
    ],
    ids=["spawn", "spawn, killed", "deepspeed"],
)
def test_launchers_that_know_the_rank_within_a_node_only(text: str, cause: str, said: str, tmp_path: Path) -> None:
    found = told(tmp_path, text)
    assert (found.cause, found.summary, named(found)) == (cause, said, [None])
    # AND the rank is told where it says so itself
    assert named(told(tmp_path, text, trace(5))) == [5]


def test_two_ranks_that_wrote_into_one_line(tmp_path: Path) -> None:
    lines = [gave_up(rank, 90) for rank in (0, 1, 2)]
    found = told(tmp_path, "".join(lines), "Epoch 3:  40%|####  | 12/30\r" + asked_to_dump(3, 89, 89))
    assert (named(found), found.victims) == ([3], (0, 1, 2))


def test_an_error_of_a_device_in_a_traceback_is_no_victims_either(tmp_path: Path) -> None:
    """The abort behind it comes from the watchdog, which finds the same error a moment later."""
    error = trace(1, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    aborted = table(failure(1, -6, "Signal 6 (SIGABRT) received by PID 4001", root=True))
    waiting = [gave_up(rank, 90) for rank in (0, 2)]
    found = told(tmp_path, error, *waiting, aborted)
    assert (found.cause, named(found)) == ("exception-on-one-rank", [1])


# ------------------------------------------------------------------------------------------ what to do


@pytest.mark.parametrize(
    ("code", "kernel", "advice"),
    [
        (-9, "Out of memory: Killed process {pid} (python3) total-vm:9kB", "give the host or container more memory"),
        (-9, "", "find out who sent SIGKILL"),
        (-11, "", "run again with PYTHONFAULTHANDLER=1"),
        (-11, "Out of memory: Killed process 77 (other) total-vm:9kB", "run again with PYTHONFAULTHANDLER=1"),
        (-7, "", "look whether /dev/shm or the disk is full"),
    ],
)
def test_the_advice_follows_from_how_a_process_ended(code: int, kernel: str, advice: str, tmp_path: Path) -> None:
    line = (
        f"E1123 18:44:21 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code})"
        " local_rank: 2 (pid: 4002) of binary: /venv/bin/python3"
    )
    found = told(tmp_path, *SET_UP, line, kernel.format(pid=4002))
    assert found.cause == "rank-died"
    assert advice in found.fix


def test_an_exception_for_lack_of_a_gpu_s_memory_is_advised_on_as_such(tmp_path: Path) -> None:
    lacks = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    found = told(tmp_path, trace(3, lacks))
    assert found.summary.startswith("Rank 3 raised an exception")
    assert "use less of the GPU's memory" in found.fix


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("OSError: [Errno 28] No space left on device: '/ckpt/rank3.pt'", "free space on that disk"),
        ("RuntimeError: CUDA error: invalid device ordinal", "no more processes on a node than it has GPUs"),
        ("RuntimeError: CUDA error: device-side assert triggered", "is out of range"),
        ("ValueError: bad", "mend what raised it (train.py:42)"),
    ],
)
def test_the_advice_follows_from_the_words_of_an_exception(error: str, advice: str, tmp_path: Path) -> None:
    assert advice in told(tmp_path, trace(3, error)).fix


def test_a_node_that_failed_is_named_where_the_scheduler_ended_the_job_for_it(tmp_path: Path) -> None:
    cancelled = "slurmstepd: error: *** JOB 7 ON a CANCELLED AT 2025-11-24T13:02:10 DUE TO NODE FAILURE, SEE LOG ***"
    found = told(tmp_path, "srun: error: Node failure on gpu-14", cancelled)
    assert (found.cause, [each.host for each in found.culprits]) == ("node-lost", ["gpu-14"])
    assert found.fix.startswith("drain gpu-14")


def test_versions_of_nccl_that_do_not_match_are_told_as_people_write_them(tmp_path: Path) -> None:
    line = "a:1:2 [0] init.cc:914 NCCL WARN Mismatched NCCL version detected : rank 0 22105 rank 8 22005"
    found = told(tmp_path, line)
    assert found.cause == "launch-mismatch"
    assert found.summary == "Rank 0 has NCCL 2.21.5 and rank 8 has NCCL 2.20.5, which do not work together."


@pytest.mark.parametrize("key", ["line", "log", "message", "_raw"])
def test_what_a_collector_of_logs_has_put_into_records_is_taken_out_of_them(key: str, tmp_path: Path) -> None:
    records = [json.dumps({"ts": "2026-11-28T03:11:00Z", "pod": "job-1", key: line}) for line in trace(3).splitlines()]
    assert told(tmp_path, *records) == told(tmp_path, trace(3))
    assert named(told(tmp_path, *(record[:-2] for record in records), trace(3))) == [3]  # records that are cut off
    assert named(told(tmp_path, '{"line":' * 2000, trace(3))) == [3]  # and one that is none


def test_a_launcher_that_names_no_rank_says_that_its_process_failed(tmp_path: Path) -> None:
    """As that of accelerate, by the exit status of the one process that it has started."""
    own = (
        'Traceback (most recent call last):\n  File "/w/run.py", line 140, in main\n    load()\nValueError: bad size\n'
    )
    launch = "/opt/conda/lib/python3.11/site-packages/accelerate/commands/launch.py"
    ended = "subprocess.CalledProcessError: Command '['python', 'run.py']' returned non-zero exit status 1."
    launcher = (
        f'Traceback (most recent call last):\n  File "{launch}", line 763, in simple_launcher\n    raise\n{ended}\n'
    )
    found = told(tmp_path, own + launcher)
    assert found.cause == "exception-on-one-rank"
    assert found.summary.startswith("A process of this job raised an exception (run.py:140): ValueError: bad size")
    # BUT a program that calls a tool which fails, and goes on, has not failed
    tool = launcher.replace(launch, "/w/run.py")
    path = tmp_path / "run.log"
    path.write_text(f"{own}{tool}step 1\n")
    assert not read(path, Logs())
