"""What ends or stops ranks from outside: Slurm, torchrun's own signal, the kernel, the GPU's driver; and what
torch's monitor and its desync report add to the watchdog's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.model import Verdict
from hangwatch.queues import Queues
from tests.unit.logs.lines import asked_to_dump, failure, far, gave_up, judged, set_up

ANEW = "[default] Worker group FAILED. 3/3 attempts left; will restart worker group"
SIGNAL = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15"
OOM = "[88211.2] Memory cgroup out of memory: Killed process {pid} (python) total-vm:91227344kB, anon-rss:6kB"
XID = "Dec  6 18:33:59 node-a kernel: [88.1] NVRM: Xid (PCI:0000:4a:00): {number}, pid={pid}, name=python, said"
READY = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)]


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


def waiting(*ranks: int) -> list[str]:
    return [line for rank in ranks for line in (gave_up(rank, 90), far(rank, 90, 90, 89))]


def raised(rank: int, error: str, prefix: str | None = None) -> list[str]:
    own = f"[rank{rank}]: " if prefix is None else prefix
    return [own + line for line in ("Traceback (most recent call last):", '  File "/u/train.py", line 9, in f', error)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "slurmstepd: error: *** STEP 14.0 ON node-a CANCELLED AT 2025-12-06T18:44:20 DUE TO PREEMPTION ***",
            "Slurm cancelled the job (preemption)",
        ),
        ("slurmstepd: error: *** STEP 14.0 ON node-a CANCELLED AT 2025-12-06T18:44:20 ***", "Slurm cancelled the step"),
        ("W1 api.py:739] Received 15 death signal, shutting down workers", "torchrun was told to end (signal 15)"),
        ("W1] Received Signals.SIGTERM death signal, shutting down workers", "torchrun was told to end (SIGTERM)"),
    ],
)  # fmt: skip
def test_a_job_that_was_ended_from_outside_blames_no_rank(tmp_path: Path, line: str, said: str) -> None:
    found = judged(tmp_path, "\n".join(["torch.distributed.elastic", line, *raised(0, SIGNAL), *raised(1, SIGNAL)]))
    assert found.judgement is not None
    assert found.judgement.status == "failed"
    assert found.judgement.verdict.summary == f"{said}: these logs blame no rank."
    assert not found.judgement.verdict.culprits


def test_an_end_from_outside_does_not_hide_a_rank_that_failed(tmp_path: Path) -> None:
    cancelled = "slurmstepd: error: *** STEP 14.0 ON node-a CANCELLED AT 2025-12-06T18:44:20 ***"
    found = told(tmp_path, *raised(2, "ValueError: bad"), cancelled, *raised(0, SIGNAL))
    assert (found.cause, [each.rank for each in found.culprits]) == ("exception-on-one-rank", [2])
    assert "Slurm cancelled the step" in found.evidence


@pytest.mark.parametrize("order", [("STEP", "JOB"), ("JOB", "STEP")])
def test_a_job_that_was_cancelled_with_its_step_is_one_sentence(order: tuple[str, str], tmp_path: Path) -> None:
    said = [f"slurmstepd: error: *** {what} 14.0 ON node-a CANCELLED AT 2025-12-06T18:44:20 ***" for what in order]
    found = told(tmp_path, *said)
    assert found.summary == "Slurm cancelled the job: these logs blame no rank."
    assert found.evidence == ("Slurm cancelled the job",)


def test_a_node_that_failed_is_told_beside_its_ranks(tmp_path: Path) -> None:
    found = told(tmp_path, *READY, "srun: error: Node failure on node-b", *waiting(0, 1, 2))
    assert [each.rank for each in found.culprits] == [3]
    assert "Slurm says that node node-b failed" in found.evidence


def test_a_process_that_the_kernel_killed_is_its_rank(tmp_path: Path) -> None:
    found = told(tmp_path, *READY, OOM.format(pid=4002), *waiting(0, 1, 3))
    assert (found.cause, [each.rank for each in found.culprits]) == ("rank-died", [2])
    assert "for lack of memory" in found.summary
    assert found.evidence[0] == "the kernel log says so of its process 4002"


def test_a_process_of_no_known_rank_is_told_and_no_rank_is_blamed_for_it(tmp_path: Path) -> None:
    found = told(tmp_path, OOM.format(pid=77), *waiting(0, 1, 3))
    assert found.cause == "undetermined"
    assert any("process 77" in said and "its rank is not known" in said for said in found.evidence)


def test_an_xid_of_the_hardware_is_the_gpu_of_its_rank_though_that_rank_gave_its_call_up(tmp_path: Path) -> None:
    found = told(tmp_path, *READY, XID.format(number=79, pid=4001), *waiting(0, 1, 2, 3))
    assert (found.cause, [each.rank for each in found.culprits]) == ("gpu-fault", [1])
    assert "Xid 79 (it has fallen off the bus)" in found.summary


def _on_gpu(rank: int, bus: str, host: str = "node-a") -> str:
    return set_up(rank, "COMPLETE", host=host).replace(f"busId {rank}000", f"busId {bus}")


GONE = "[1043982.9] NVRM: Xid (PCI:0000:4f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_a_gpu_that_has_gone_is_that_of_its_rank_by_its_address(tmp_path: Path) -> None:
    mapped = [_on_gpu(rank, f"{rank + 0x4D:x}000") for rank in range(4)]
    found = told(tmp_path, *mapped, GONE, *waiting(0, 1, 3))
    assert (found.cause, [each.rank for each in found.culprits]) == ("gpu-fault", [2])
    assert found.evidence[0] == "the kernel log says so of its GPU (0000:4f:00)"


@pytest.mark.parametrize(("kernel", "blamed"), [("", []), ("node-b kernel: ", [3])])
def test_of_two_hosts_the_kernel_log_has_to_name_its_own(kernel: str, blamed: list[int], tmp_path: Path) -> None:
    mapped = [_on_gpu(rank, f"{0x4F + rank % 2 - 1:x}000", host=f"node-{'ab'[rank // 2]}") for rank in range(4)]
    found = told(tmp_path, *mapped, f"Dec  6 18:33:59 {kernel}{GONE}" if kernel else GONE, *waiting(0, 1, 2, 3))
    assert (found.cause, [each.rank for each in found.culprits]) == ("gpu-fault", blamed)
    if not blamed:
        said = "the kernel log tells of Xid 79 (it has fallen off the bus) of the GPU at 0000:4f:00"
        assert found.evidence[1].startswith(said)


def test_an_error_of_a_gpu_that_works_on_may_be_of_long_ago(tmp_path: Path) -> None:
    mapped = [_on_gpu(rank, f"{rank + 0x4D:x}000") for rank in range(4)]
    found = told(tmp_path, *mapped, GONE.replace(": 79", ": 48"), *waiting(0, 1, 2, 3))
    assert not found.culprits
    assert any("at some time, of the GPU of rank 2" in said for said in found.evidence)


def test_a_silent_rank_whose_data_was_not_delivered_is_a_victim_of_the_network(tmp_path: Path) -> None:
    failed = (
        "node-a:4003:5003 [1] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with status=12 vendor err 129"
    )
    found = told(tmp_path, *READY, failed, *waiting(0, 1, 2))
    assert (found.cause, found.certainty, found.culprits) == ("interconnect-stall", "likely", ())
    assert 3 in found.victims
    assert "rank 3" in found.summary
    # BUT a peer that closed its connection may have done so because of that rank
    (tmp_path / "two").mkdir()
    closed = failed.split("NET/IB")[0] + "socketProgress: Connection closed by remote peer node-b<42830>"
    assert [each.rank for each in told(tmp_path / "two", *READY, closed, *waiting(0, 1, 2)).culprits] == [3]


def test_a_port_that_failed_is_told_and_not_what_its_peers_saw_of_it(tmp_path: Path) -> None:
    seen = "node-a:4003:5003 [1] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with status=12 vendor err 129"
    port = "node-b:4002:5002 [0] NCCL WARN NET/IB : mlx5_1:1 Got async event : port error"
    summary = told(tmp_path, seen, seen.replace("5003", "5004"), port).summary
    assert "mlx5_1:1 Got async event : port error" in summary


def test_an_xid_of_a_program_is_no_fault_of_a_gpu(tmp_path: Path) -> None:
    found = told(tmp_path, *READY, XID.format(number=43, pid=4001), *waiting(0, 1, 2, 3))
    assert found.cause == "interconnect-stall"


def test_a_monitor_without_a_heartbeat_says_that_its_rank_has_a_line(tmp_path: Path) -> None:
    beat = (
        "[rank3]:[E1206 18:52:11.2 ProcessGroupNCCL.cpp:1182] [PG 0 Rank 3] Heartbeat monitor timed out! Process will"
        " be terminated after dumping debug info. workMetaList_.size()=1"
    )
    found = told(tmp_path, *waiting(0, 1, 2), beat)
    assert [each.rank for each in found.culprits] == [3]
    assert "rank 3: torch found its watchdog thread stuck" in found.evidence
    assert not any("writes none" in said for said in found.evidence)
    # AND the later sentence, with the time, stands for both
    later = beat.replace("Heartbeat monitor timed out!", "watchdog got stuck for 600 seconds without making progress")
    (tmp_path / "two").mkdir()
    assert "rank 3: torch found its watchdog thread stuck for 600 s" in told(tmp_path / "two", beat, later).evidence


DESYNC = (
    "\t - To our best knowledge, ranks [3, 4] are the lagging ranks that caused this timeout. They never joined any"
)


def test_the_desync_report_tells_of_ranks_without_any_line(tmp_path: Path) -> None:
    found = told(tmp_path, *(gave_up(rank, 1) for rank in range(3)), f"{DESYNC} collectives")
    assert [each.rank for each in found.culprits] == [3, 4]
    assert "torch's desync report: ranks 3-4 started no collective" in found.evidence
    assert found.summary.startswith("By torch's desync report ranks 3-4 started no collective; ranks 0-2 wait")
    assert not any("not known" in said for said in found.details)


def test_the_desync_report_of_another_group_numbers_other_ranks(tmp_path: Path) -> None:
    lines = [line for rank in range(3) for line in (gave_up(rank, 9), far(rank, 9, 9, 8, "2 PG GUID 5(dp)"))]
    found = told(tmp_path, *lines, f"{DESYNC} collectives")
    assert not any("desync" in said for said in found.evidence)
    assert 4 not in [each.rank for each in found.culprits]


def test_a_traceback_at_the_end_of_a_file_ended_the_rank_that_left_no_record(tmp_path: Path) -> None:
    (tmp_path / "rank2.err").write_text("\n".join(raised(2, "ValueError: bad", prefix="")) + "\n")
    logs = Logs()
    assert read(tmp_path / "rank2.err", logs)
    assert logs.raised[2].last
    (tmp_path / "rank2.err").write_text("\n".join([*raised(2, "ValueError: bad", prefix=""), "step 7"]) + "\n")
    assert read(tmp_path / "rank2.err", other := Logs())
    assert not other.raised[2].last


def test_no_room_in_shared_memory_is_no_fault_of_the_network(tmp_path: Path) -> None:
    lines = [
        f"node-a:{4000 + rank}:5{rank} [{rank}] misc/shmutils.cc:87 NCCL WARN Call to posix_fallocate failed : No space"
        " left on device"
        for rank in range(2)
    ]
    found = told(tmp_path, *lines)
    assert (found.cause, found.certainty, found.culprits) == ("shared-memory-exhausted", "likely", ())


def test_last_errors_of_ranks_that_write_at_once_are_each_rank_s_own(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        "torch.distributed.elastic",
        "[rank1]: Last error:",
        "[rank0]: Last error:",
        "[rank1]: Cuda failure 2 'out of memory'",
        "[rank0]: socketPollConnect: connect to node-a<40001> returned Connection refused",
        *READY,
        failure(0, 1, "torch.distributed.DistBackendError: NCCL error in: x.cpp:1"),
    )
    assert (found.cause, [each.rank for each in found.culprits]) == ("exception-on-one-rank", [1])
    assert "rank 0: socketPollConnect: connect to node-a<N> returned Connection refused" in found.evidence


def test_ranks_that_are_not_known_to_have_come_in_two_groups_are_all_named(tmp_path: Path) -> None:
    lines = []
    for rank in (0, 1, 4, 5, 6, 7):
        group = f"{2 + rank % 2} PG GUID {20 + rank % 2}(dp)"
        lines += [gave_up(rank, 12), far(rank, 12, 12, 11, group).replace(f" Rank {rank}]  ", f" Rank {rank // 2}]  ")]
    found = told(tmp_path, *lines, asked_to_dump(2, 8, 8), asked_to_dump(3, 8, 8))
    assert [each.rank for each in found.culprits] == [2, 3]


@pytest.mark.parametrize("behind", ["", "\n"])
def test_what_stands_before_the_last_restart_is_left_out(tmp_path: Path, behind: str) -> None:
    path = tmp_path / "job.log"
    path.write_text("\n".join([*waiting(0, 1), ANEW, *waiting(2), ANEW, *raised(1, "ValueError: bad")]) + behind)
    assert read(path, logs := Logs())
    assert (logs.timeouts, list(logs.raised)) == ([], [1])
    path.write_text("\n".join([*waiting(0, 1), ANEW]) + behind)
    assert not read(path, Logs())


def test_a_gpu_that_has_gone_is_told_though_no_log_tells_its_rank(tmp_path: Path) -> None:
    """GIVEN a kernel log alone, or beside warnings of a network to the lost rank THEN the GPU is the cause."""
    wire = "node-b:4003:5003 [1] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with status=12 vendor err 129"
    for lines in ((GONE,), (wire, GONE)):
        found = told(tmp_path, *lines)
        assert (found.cause, found.certainty, found.culprits) == ("gpu-fault", "likely", ())
        assert found.summary == "The GPU at 0000:4f:00 has failed: Xid 79 (it has fallen off the bus)."
    assert any("NET/IB" in said for said in found.evidence)


def test_the_only_rank_whose_calls_of_cuda_fail_has_lost_the_gpu_that_has_gone(tmp_path: Path) -> None:
    error = "torch.AcceleratorError: CUDA error: unspecified launch failure"
    found = told(tmp_path, *raised(3, error), GONE, GONE.replace(": 79", ": 154"))
    assert (found.cause, [each.rank for each in found.culprits]) == ("gpu-fault", [3])
    assert found.summary == "Rank 3 lost its GPU: Xid 79 (it has fallen off the bus)."
    assert f"rank 3 raised {error} (train.py:9)" in found.evidence
    # AND where those of two fail, it is not known whose it was
    assert told(tmp_path, *raised(3, error), *raised(1, error), GONE).certainty == "undetermined"


def test_an_error_of_a_gpu_is_told_first_where_all_have_come_and_none_is_to_blame(tmp_path: Path) -> None:
    error = XID.format(number=74, pid=0).replace("pid=0, name=python", "pid='<unknown>', name=<unknown>")
    found = told(tmp_path, *READY, error, *waiting(0, 1, 2, 3))
    assert (found.cause, found.certainty, found.culprits) == ("gpu-fault", "undetermined", ())
    assert "The GPU at 0000:4a:00 of node-a had an error: Xid 74 (an NVLink error)." in found.summary
    # BUT one rank that has not come is looked at first
    assert [each.rank for each in told(tmp_path, *READY, error, *waiting(0, 1, 2)).culprits] == [3]


def test_a_kernel_log_alone_is_no_sign_that_all_is_well(tmp_path: Path) -> None:
    found = told(tmp_path, XID.format(number=94, pid=9007))
    assert (found.cause, found.certainty, found.culprits) == ("gpu-fault", "undetermined", ())
    assert found.summary == "The GPU at 0000:4a:00 of node-a had an error: Xid 94 (an ECC error, contained)."
    found = told(tmp_path, OOM.format(pid=77))
    assert found.cause == "undetermined"
    assert "process 77 (python): the kernel killed it for lack of memory" in found.summary
    # BUT that of another program, of which no line says that it is a rank, is no failure of the job
    logs, path = Logs(), tmp_path / "dmesg.txt"
    path.write_text(OOM.format(pid=77).replace("python", "node_exporter"))
    assert read(path, logs)
    assert assess(completed(Queues(), logs), logs).judgement is None
    assert "(node_exporter)" in assess(completed(Queues(), logs), logs).sentences[1]
