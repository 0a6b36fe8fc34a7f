"""What NCCL, torch's monitor and the ranks themselves say in logs: warnings, stuck threads, exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.catalogue import cause
from hangwatch.logs import Logs, assess, nccl, read, tracebacks
from hangwatch.logs.attempt import bare
from hangwatch.model import Frame, Verdict
from hangwatch.recorder import QueueReader
from tests.unit.logs.lines import failure, far, gave_up, judged, set_up, table


def warn(rank: int, text: str, host: str = "node-a") -> str:
    return f"{host}:{4000 + rank}:{5000 + rank} [{rank % 2}] NCCL WARN {text}"


def told(tmp_path: Path, *texts: str) -> Verdict:
    found = judged(tmp_path, "\n".join(texts)).judgement
    assert found is not None
    return found.verdict


SET_UP = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)]


def test_one_rank_alone_that_did_not_finish_is_no_partition(tmp_path: Path) -> None:
    """Its neighbours have finished, and so they have reached it."""
    lines = [line for line in SET_UP if line != set_up(2, "COMPLETE")]
    found = told(tmp_path, *lines)
    assert (found.cause, [each.rank for each in found.culprits]) == ("undetermined", [2])
    assert "rank 2 on node-a has not finished it, and ranks 0-1 and 3 have" in found.summary
    assert found.docs == cause("undetermined").docs


def test_ranks_of_one_host_that_did_not_finish_are_no_partition_of_hosts(tmp_path: Path) -> None:
    found = told(tmp_path, *SET_UP[:4])
    assert (found.cause, found.culprits) == ("undetermined", ())


def test_ranks_that_warn_of_their_network_and_did_not_finish_do_not_reach_each_other(tmp_path: Path) -> None:
    found = told(tmp_path, *SET_UP[:4], warn(1, "socketStartConnect: Connect to 10.0.0.9<41321> failed : No route"))
    assert (found.cause, found.certainty, found.culprits) == ("network-partition", "likely", ())
    assert "they do not reach each other" in found.summary


def test_a_rank_without_a_line_of_the_watchdog_may_just_not_wait(tmp_path: Path) -> None:
    found = told(tmp_path, *SET_UP, *(gave_up(rank, 90) for rank in (0, 1, 3)))
    assert [each.rank for each in found.culprits] == [2]
    assert any("nor does a rank that waits for no call" in said for said in found.evidence)


def test_the_rank_that_met_a_network_error_is_told_and_not_blamed(tmp_path: Path) -> None:
    found = told(
        tmp_path, *SET_UP, warn(1, "NET/IB : Got completion from peer 10.0.0.1<38560> with status=12 opcode=0")
    )
    assert (found.cause, found.certainty, found.culprits) == ("interconnect-stall", "undetermined", ())
    assert "seen by rank 1" in found.summary
    assert "ibstat" in found.fix


def test_an_error_of_cuda_is_of_a_rank_and_not_of_the_network(tmp_path: Path) -> None:
    found = told(tmp_path, *SET_UP, warn(2, "Cuda failure 'an illegal memory access was encountered'"))
    assert (found.cause, found.certainty) == ("undetermined", "undetermined")
    assert [each.rank for each in found.culprits] == [2]
    # AND it is evidence where the watchdog's lines name nobody
    found = told(tmp_path, *SET_UP, warn(2, "Cuda failure 999"), *(gave_up(rank, 90) for rank in range(4)))
    assert [each.rank for each in found.culprits] == [2]
    assert 2 not in found.victims


def test_a_connection_that_a_peer_closed_blames_nobody(tmp_path: Path) -> None:
    found = told(tmp_path, *SET_UP, warn(0, "socketProgress: Connection closed by remote peer node-b<51234>"))
    assert (found.cause, found.culprits) == ("undetermined", ())
    assert "ended first" in found.fix


def test_two_ranks_on_one_gpu(tmp_path: Path) -> None:
    line = "init.cc:943 NCCL WARN Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 1000"
    found = told(tmp_path, *SET_UP[:4], f"node-a:4001:5001 [1] {line}")
    assert (found.cause, found.certainty) == ("duplicate-gpu", "proven")
    assert [each.rank for each in found.culprits] == [1, 3]


def test_a_process_in_groups_of_its_own_only_has_no_known_rank() -> None:
    logs = Logs()
    for pid in (1, 2):  # two groups of two ranks, of which each has a rank 0
        nccl.take(f"node-a:{pid}:9 [0] NCCL INFO comm 0x{pid} rank 0 nranks 2 commId 0x{pid} - Init START", logs)
    assert logs.rank_of(("node-a", 1)) is None
    assert logs.rank_of(("node-a", 7)) is None


# ------------------------------------------------------------------------------------------ threads of the watchdog


def stuck(rank: int) -> str:
    return (
        f"[rank{rank}]:[F1122 15:20:00.1 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        " ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued"
    )


def no_lock(rank: int) -> str:
    return f"[rank{rank}]:[E1122 15:11:00.1 ProcessGroupNCCL.cpp:1400] Could not acquire GIL within 300 ms on exit"


def test_a_watchdog_thread_that_is_stuck(tmp_path: Path) -> None:
    found = told(tmp_path, no_lock(2), stuck(2))
    assert (found.cause, [each.rank for each in found.culprits]) == ("undetermined", [2])
    assert "stuck for 480 s" in found.evidence[0]
    assert [each.cause for each in found.alternatives] == ["gil-held"]


def test_the_awaited_rank_whose_watchdog_is_stuck_is_told_so_first(tmp_path: Path) -> None:
    waiting = [line for rank in (0, 1, 3) for line in (gave_up(rank, 90), far(rank, 90, 90, 89))]
    found = told(tmp_path, *waiting, stuck(2))
    assert [each.rank for each in found.culprits] == [2]
    assert "the watchdog thread of rank 2 got stuck" in found.summary


def test_stuck_threads_of_all_ranks_blame_nobody(tmp_path: Path) -> None:
    assert told(tmp_path, *(stuck(rank) for rank in range(4))).culprits == ()


def test_a_lock_that_was_held_at_the_end_is_no_hang_by_itself(tmp_path: Path) -> None:
    assert judged(tmp_path, no_lock(2)).judgement is None


def test_stuck_threads_are_evidence_beside_calls_that_were_given_up(tmp_path: Path) -> None:
    lines = [line for rank in (0, 1, 3) for line in (gave_up(rank, 90), far(rank, 90, 92, 89))]
    found = told(tmp_path, *lines, stuck(2))
    assert [each.rank for each in found.culprits] == [2]
    assert "rank 2: torch found its watchdog thread stuck for 480 s" in found.evidence


# ------------------------------------------------------------------------------------------ tracebacks


def trace(rank: int | None, error: str = "IndexError: index 7 is out of bounds", line: int = 42) -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/mia/train.py", line 90, in <module>',
        "    main()",
        f'  File "/home/mia/train.py", line {line}, in step',
        "    loss = labels[index]",
        '  File "/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 7, in f',
        "    g()",
        error,
    )
    return "\n".join(f"[rank{rank}]: {each}" if rank is not None else each for each in lines)


def test_an_exception_that_ended_a_rank_is_the_cause_and_those_that_waited_are_victims(tmp_path: Path) -> None:
    found = told(tmp_path, trace(3), *(gave_up(rank, 90) for rank in (0, 1, 2)))
    assert (found.cause, found.certainty) == ("exception-on-one-rank", "likely")
    assert [(each.rank, each.where) for each in found.culprits] == [(3, Frame("/home/mia/train.py", 42, "step"))]
    assert found.victims == (0, 1, 2)
    assert found.summary == "Rank 3 raised an exception (train.py:42): IndexError: index 7 is out of bounds."


def test_a_traceback_completes_what_torchrun_says(tmp_path: Path) -> None:
    untold = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    found = told(tmp_path, trace(1), table(failure(1, 1, untold, root=True)))
    assert found.summary == "Rank 1 failed with exit code 1 (train.py:42): IndexError: index 7 is out of bounds."


def test_an_exception_because_of_another_rank_is_no_cause(tmp_path: Path) -> None:
    closed = trace(0, "torch.distributed.DistBackendError: NCCL error: remote process exited")
    found = told(tmp_path, closed, trace(3))
    assert [each.rank for each in found.culprits] == [3]


def test_a_traceback_that_may_have_been_caught_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "all.log").write_text(trace(None) + "\n")
    (tmp_path / "rank_2.log").write_text(trace(None) + "\n")
    logs = Logs()
    assert not read(tmp_path / "all.log", logs)
    assert read(tmp_path / "rank_2.log", logs)
    assert not logs.raised[2].ended
    assert assess(QueueReader().queues(), logs).judgement is None


def test_where_nothing_tells_which_failed_first_all_are_named(tmp_path: Path) -> None:
    found = told(tmp_path, trace(0), trace(2), trace(1, "ValueError: no", 50))
    assert [each.rank for each in found.culprits] == [0, 1, 2]
    assert found.certainty == "undetermined"
    assert "nothing tells which of them failed first" in found.evidence


def test_an_interrupted_rank_did_not_fail() -> None:
    logs = Logs()
    taker = tracebacks.Tracebacks()
    assert not any(taker.take(line, logs, None) for line in trace(0, "KeyboardInterrupt").splitlines())
    assert not logs.raised


# ------------------------------------------------------------------------------------------ sends and receives


def test_numbers_of_sends_and_receives_are_compared_with_no_other_rank(tmp_path: Path) -> None:
    """Each rank counts its own: that they differ is no sign of anything."""
    found = told(tmp_path, gave_up(0, 12, "SEND"), far(0, 12, 12, 11), gave_up(1, 23, "RECV"), far(1, 23, 23, 22))
    assert (found.cause, found.culprits, found.victims) == ("undetermined", (), (0, 1))
    assert "its lines do not name their peers" in found.summary
    assert found.evidence[:2] == ("rank 0: send 12", "rank 1: recv 23")


def test_a_rank_that_gave_a_send_up_is_not_said_to_be_as_far_as_its_number(tmp_path: Path) -> None:
    lines = [line for rank in (0, 1, 2) for line in (gave_up(rank, 90), far(rank, 90, 92, 89))]
    found = told(tmp_path, *lines, gave_up(3, 91, "SEND"), far(3, 91, 91, 90))
    assert found.certainty == "undetermined"
    assert "enqueued by ranks 0-3" not in found.summary


# ------------------------------------------------------------------------------------------ what launchers add


@pytest.mark.parametrize("label", ["[default3]:", "3: ", "(RayTrainWorker pid=81, ip=10.0.0.3) ", "12: [worker12]:"])
def test_what_a_launcher_puts_before_a_line_is_no_part_of_it(label: str, tmp_path: Path) -> None:
    text = "\n".join(label + line for line in trace(3).splitlines())
    assert told(tmp_path, text).summary.startswith("Rank 3 raised an exception (train.py:42)")
    assert bare(f"{label}node-a:1:2 [0] NCCL INFO x") == "node-a:1:2 [0] NCCL INFO x"


def test_the_rank_that_torch_puts_before_a_line_stays() -> None:
    for line in ("[rank3]: text", "[rank3]:[E1122 ProcessGroupNCCL.cpp:1] text", "plain", "", "[0]:"):
        assert bare(line) == line


def test_an_error_of_cuda_while_communicators_are_set_up_names_its_rank(tmp_path: Path) -> None:
    """That none is complete is its consequence."""
    lines = SET_UP[:4]
    host, pid = lines[2].split(":")[:2]
    found = told(
        tmp_path, *lines, f"{host}:{pid}:{pid} [2] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'"
    )
    assert (found.cause, [each.rank for each in found.culprits]) == ("exception-on-one-rank", [2])
