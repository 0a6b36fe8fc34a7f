"""Lines of torch's watchdog, of NCCL and of torchrun, each format by itself and all together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, completed, elastic, is_log, nccl, read, watchdog
from hangwatch.model import Certainty, Frame, Stage, Status, Verdict
from hangwatch.queues import Queues
from hangwatch.recorder import QueueReader
from tests.dumps import Job, Op, alike, loop
from tests.unit.logs.lines import asked_to_dump, blamed, failure, far, gave_up, judged, set_up, table

# ------------------------------------------------------------------------------------------ torch's watchdog


def test_a_line_of_the_watchdog() -> None:
    logs = Logs()
    assert watchdog.take(gave_up(3, 7753, "_REDUCE_SCATTER_BASE", 800, 100), logs, None)
    assert watchdog.take(far(3, 7753, 7755, 7752, "1 PG GUID 8(tp)"), logs, None)
    (timeout,), (progress,) = logs.timeouts, logs.progress
    assert (timeout.rank, timeout.number, timeout.op) == (3, 7753, "_REDUCE_SCATTER_BASE")
    assert (timeout.given, timeout.made, timeout.timeout_s) == (800, 100, 600.0)
    assert (progress.group, progress.description) == ("8", "tp")
    assert (progress.number, progress.enqueued, progress.started, progress.completed) == (7753, 7755, -1, 7752)


OLD = (
    "[E ProcessGroupNCCL.cpp:458] [Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=64088,"
    " OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800251 milliseconds before timing out."
)
THROWN = (
    "  what():  [PG 3 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064,"
    " Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
)


@pytest.mark.parametrize(("line", "expected"), [(OLD, (7, 64088)), (THROWN, (5, 9141))])
def test_lines_of_older_versions(line: str, expected: tuple[int, int]) -> None:
    logs = Logs()
    assert watchdog.take(line, logs, None)
    assert [(each.rank, each.number) for each in logs.timeouts] == [expected]


EARLY_FAR = (
    "[PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 53, last enqueued NCCL work:"
    " 55, last completed NCCL work: 52."
)
LATE_FAR = (
    "[PG ID 2 PG GUID 4(dp) Rank 0]  failure detected by watchdog at work sequence id: 53 PG status: last enqueued"
    " work: 55, last started work: 53, last completed work: 52"
)


@pytest.mark.parametrize(("text", "expected"), [(EARLY_FAR, ("1", 53, 55, -1, 52)), (LATE_FAR, ("4", 53, 55, 53, 52))])
def test_how_far_a_rank_was_in_all_versions(text: str, expected: tuple[str, int, int, int, int]) -> None:
    logs = Logs()
    assert watchdog.take("[rank0]:[E1121 ProcessGroupNCCL.cpp:1785] " + text, logs, None)
    (told,) = logs.progress
    assert (told.group, told.number, told.enqueued, told.started, told.completed) == expected


def test_the_stack_of_the_call_that_was_given_up() -> None:
    logs = Logs()
    for line in (
        gave_up(0, 5),
        "[rank0]:[E1121 ProcessGroupNCCL.cpp:697] Stack trace of the failed collective: ",
        "#0 all_reduce from /venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2806",
        "#1 step from /home/mia/train.py:71",
    ):
        watchdog.take(line, logs, None)
    assert logs.timeouts[0].frames[-1] == Frame("/home/mia/train.py", 71, "step")


def test_a_rank_that_never_enqueued_what_the_others_gave_up(tmp_path: Path) -> None:
    lines = [line for rank in (0, 1, 2) for line in (gave_up(rank, 90), far(rank, 90, 92, 89))]
    found = judged(tmp_path, "\n".join([*lines, asked_to_dump(3, 89, 89)]))
    assert found.judgement is not None
    assert blamed(found) == [3]
    assert found.judgement.verdict.summary.startswith("Rank 3 never enqueued all_reduce 90 of the default group")
    assert found.judgement.verdict.victims == (0, 1, 2)
    assert found.judgement.status is Status.HUNG


def test_a_rank_of_which_no_line_speaks(tmp_path: Path) -> None:
    # GIVEN the lines of three of four ranks; a reduce_scatter tells by its sizes that there are four
    lines = [
        line
        for rank in (0, 1, 3)
        for line in (gave_up(rank, 90, "_REDUCE_SCATTER_BASE", 400, 100), far(rank, 90, 90, 89))
    ]
    found = judged(tmp_path, "\n".join(lines))
    assert blamed(found) == [2]
    assert found.judgement is not None
    assert "no line of the watchdog of rank 2" in found.judgement.verdict.summary


def test_ranks_that_gave_up_different_calls(tmp_path: Path) -> None:
    lines = [gave_up(rank, 90, "BROADCAST" if rank == 2 else "ALLREDUCE") for rank in range(4)]
    found = judged(tmp_path, "\n".join(lines))
    assert found.judgement is not None
    assert found.judgement.verdict.cause == "collective-mismatch"
    assert blamed(found) == [2]


def test_all_ranks_gave_up_the_same_call(tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join(gave_up(rank, 90) for rank in range(4)))
    assert found.judgement is not None
    assert (found.judgement.verdict.cause, blamed(found)) == (
        "undetermined",
        [],
    )  # rank 4 may be the one that is awaited
    assert "interconnect-stall" in {each.cause for each in found.judgement.verdict.alternatives}
    # WHEN NCCL's lines tell how many ranks there are
    whole = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)]
    found = judged(tmp_path, "\n".join([*whole, *(gave_up(rank, 90) for rank in range(4))]))
    assert found.judgement is not None
    assert (found.judgement.verdict.cause, blamed(found)) == ("interconnect-stall", [])
    assert found.judgement.verdict.certainty is Certainty.UNDETERMINED
    assert any("victims" in sentence for sentence in found.judgement.verdict.evidence)


def test_the_call_that_was_started_last_tells_a_device_that_is_held(tmp_path: Path) -> None:
    verdict = _all_enqueued(tmp_path, 90, 90, 89, 90)
    assert (verdict.cause, verdict.culprits) == ("undetermined", ())  # lines of one group do not say by what
    assert "the device of rank 2 has not started it" in verdict.summary


def test_the_call_that_was_started_last_tells_a_wire(tmp_path: Path) -> None:
    verdict = _all_enqueued(tmp_path, 90, 90, 90, 90)
    assert (verdict.cause, verdict.certainty) == ("interconnect-stall", Certainty.LIKELY)


def test_of_a_rank_without_start_events_it_is_not_told_that_its_device_is_held(tmp_path: Path) -> None:
    assert "has not started" not in _all_enqueued(tmp_path, -1, 90, 90, 90).summary


def _all_enqueued(tmp_path: Path, *started: int) -> Verdict:
    """Four ranks that gave up their call 90, each with the number of the call that its device started last."""
    whole = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)]
    lines = [text for n, last in enumerate(started) for text in (gave_up(n, 90), far(n, 90, 92, 89, started=last))]
    found = judged(tmp_path, "\n".join([*whole, *lines]))
    assert found.judgement is not None
    return found.judgement.verdict


def test_lines_complete_dumps(tmp_path: Path) -> None:
    # GIVEN dumps of ranks 0 and 1, which wait in number 31, and a line that says how far rank 2 was
    whole = loop(11, Op("all_reduce", 20), Op("all_reduce", 21), Op("all_reduce", 22))
    job = Job(3, alike(3, whole, rank2=whole[:30]), silent=(2,))
    reader = QueueReader()
    for rank, document in job.documents().items():
        reader.add(rank, document)
    found = judged(tmp_path, f"{gave_up(0, 31)}\n{asked_to_dump(2, 30, 30)}", reader=reader)
    assert blamed(found) == [2]
    assert found.judgement is not None
    assert "all_reduce 31 of the default group (train.py:20)" in found.judgement.verdict.summary


# ------------------------------------------------------------------------------------------ NCCL


LINES = f"""\
node-a:4000:4000 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
node-a:4000:5000 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node-a:4000:5000 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node-a:4000:5000 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0
{set_up(0, "START")}
node-b:4002:5002 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<38560> with status=12 opcode=0 vendor err 129
[2026-11-21 10:20:30] node-b:4002:5002 [0] misc/socket.cc:484 NCCL WARN Connect to 10.0.0.1<48425> failed : timed out
"""


def test_lines_of_nccl() -> None:
    logs = Logs()
    for line in LINES.splitlines():
        assert nccl.take(line, logs), line
    assert logs.networks == {"node-a": {"eth0", "mlx5_0:1/IB", "mlx5_1:1/RoCE"}}
    assert logs.transports == {"P2P/CUMEM": 1, "NET/IB/0": 1}
    (communicator,) = logs.communicators.values()
    assert (communicator.size, communicator.begun, communicator.complete) == (4, {0: "node-a"}, set())
    assert [text.partition(":")[0] for text in logs.warnings] == ["node-b", "node-b"]


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "node-a:1:2 [0] NCCL INFO Connected all rings",
        "node-a:1:2 [0] NCCL WARN NCCL_IB_HCA is set and there is no such device",
    ],
)
def test_lines_of_no_use(line: str) -> None:
    logs = Logs()
    assert not nccl.take(line, logs)
    assert logs == Logs()


def test_a_rank_that_never_began_to_set_up_its_communicator(tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join(set_up(rank, "START") for rank in (0, 1, 3)))
    assert blamed(found) == [2]
    assert found.judgement is not None
    assert found.judgement.stage is Stage.START
    assert found.judgement.verdict.summary.startswith(
        "Rank 2 never began to set up communicator 0x9ad9b5e4ab2566da of 4"
    )


def test_all_began_and_some_did_not_finish(tmp_path: Path) -> None:
    lines = [set_up(rank, "START", host=f"node-{'ab'[rank // 2]}") for rank in range(4)]
    found = judged(tmp_path, "\n".join([*lines, set_up(0, "COMPLETE"), set_up(1, "COMPLETE")]))
    assert found.judgement is not None
    assert (found.judgement.verdict.cause, found.judgement.verdict.certainty) == ("network-partition", Certainty.LIKELY)
    assert "ranks 2-3 on node-b have not finished it" in found.judgement.verdict.summary


def _split(rank: int, place: int, word: str, color: int, count: str = "splitCount") -> str:
    """As NCCL writes it since 2.22: without an id, and at the start without a space before the dash."""
    dash = "- " if word == "START" else " - "
    return (
        f"node-a:{4000 + rank}:{5000 + rank} [{rank}] NCCL INFO ncclCommSplit comm 0x66d0{rank}0 rank {place} nranks 2"
        f" cudaDev {rank} nvmlDev {rank} busId {rank}000 parent 0x55d0{rank}0 {count} 1 color {color} key {place}"
        f"{dash}Init {word}"
    )


@pytest.mark.parametrize("count", ["splitCount", "childCount"])
def test_a_split_that_did_not_come_to_its_end(count: str, tmp_path: Path) -> None:
    """The numbers of a part of the ranks are its own: they name no rank of the job."""
    whole = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)]
    first = [_split(rank, rank, word, 7, count) for word in ("START", "COMPLETE") for rank in (0, 1)]
    found = judged(tmp_path, "\n".join([*whole, *first, _split(2, 0, "START", 8, count)]))
    assert found.judgement is not None
    told = found.judgement.verdict
    assert not told.culprits
    assert told.victims == (2,)
    assert told.summary == (
        "Rank 2 began to set up communicator of split 1 (color 8) of 2 ranks and did not finish; of its own rank 1 no"
        " line is in these logs."
    )
    every = [
        *whole,
        *first,
        *(_split(rank, rank - 2, word, 8, count) for word in ("START", "COMPLETE") for rank in (2, 3)),
    ]
    (tmp_path / "job-0.log").unlink()
    assert judged(tmp_path, "\n".join(every)).judgement is None


def test_a_communicator_that_all_have_set_up_is_well(tmp_path: Path) -> None:
    lines = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)]
    found = judged(tmp_path, "\n".join(lines))
    assert found.judgement is None
    assert found.sentences[0].startswith("nothing is wrong in 1 log")


def test_the_log_of_one_node_only_is_well(tmp_path: Path) -> None:
    lines = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(2)]
    assert judged(tmp_path, "\n".join(lines)).judgement is None


def test_warnings_of_the_network_make_a_stall_likely(tmp_path: Path) -> None:
    warning = "node-b:4002:5002 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<38560> with status=12 opcode=0"
    found = judged(tmp_path, "\n".join([warning, *(gave_up(rank, 90) for rank in range(4))]))
    assert found.judgement is not None
    assert found.judgement.verdict.cause == "interconnect-stall"
    assert found.judgement.verdict.certainty is Certainty.LIKELY
    assert any(sentence.startswith("node-b: NET/IB") for sentence in found.judgement.verdict.evidence)


# ------------------------------------------------------------------------------------------ torchrun


ABORTED = "Signal 6 (SIGABRT) received by PID 4000"


def test_the_first_failure_is_the_cause_where_it_died_by_itself(tmp_path: Path) -> None:
    killed = failure(2, -9, "Signal 9 (SIGKILL) received by PID 4002", root=True)
    found = judged(tmp_path, table(failure(0, -6, ABORTED), killed))
    assert found.judgement is not None
    assert (found.judgement.verdict.cause, found.judgement.status) == ("rank-died", Status.FAILED)
    (culprit,) = found.judgement.verdict.culprits
    assert (culprit.rank, culprit.pid, culprit.host) == (2, 4002, "node-a")
    assert found.judgement.verdict.victims == (0,)


def test_a_victim_of_the_watchdog_is_never_the_cause(tmp_path: Path) -> None:
    # GIVEN a job that torch's watchdog aborted: rank 0 died first, because it waited for rank 3
    lines = [line for rank in (0, 1, 2) for line in (gave_up(rank, 90), far(rank, 90, 92, 89))]
    log = "\n".join(
        [*lines, asked_to_dump(3, 89, 89), table(failure(1, -6, ABORTED), failure(0, -6, ABORTED, root=True))]
    )
    assert blamed(judged(tmp_path, log)) == [3]


def test_of_victims_alone_no_rank_is_named(tmp_path: Path) -> None:
    found = judged(tmp_path, table(failure(0, -6, ABORTED, root=True)))
    assert blamed(found) == []
    assert found.judgement is not None
    assert "no log tells which" in found.judgement.verdict.summary


def test_an_error_with_its_traceback(tmp_path: Path) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '    File "/home/mia/train.py", line 42, in step\n'
        "      loss = labels[index]\n"
        "  IndexError: index 7 is out of bounds"
    )
    found = judged(tmp_path, table(failure(1, 1, trace, root=True)))
    assert found.judgement is not None
    (culprit,) = found.judgement.verdict.culprits
    assert (culprit.rank, culprit.where) == (1, Frame("/home/mia/train.py", 42, "step"))
    assert found.judgement.verdict.summary == (
        "Rank 1 failed with exit code 1 (train.py:42): IndexError: index 7 is out of bounds."
    )


def test_ranks_that_the_watchdog_ended_without_a_word_on_the_call(tmp_path: Path) -> None:
    line = (
        "[rank{rank}]:[E1127 14:22:31.1 ProcessGroupNCCL.cpp:758] [Rank {rank}] To avoid data inconsistency, we are"
        " taking the entire process down."
    )
    found = judged(tmp_path, "\n".join(line.format(rank=rank) for rank in (0, 1, 3))).judgement
    assert found is not None
    assert (found.verdict.cause, found.verdict.victims) == ("undetermined", (0, 1, 3))
    assert "torch's watchdog ended ranks 0-1 and 3" in found.verdict.summary


def test_an_error_file(tmp_path: Path) -> None:
    folder = tmp_path / "attempt_0" / "3"
    folder.mkdir(parents=True)
    stack = 'Traceback (most recent call last):\n  File "/home/mia/train.py", line 42, in step\nValueError: no\n'
    content = {
        "message": {"message": "ValueError: no", "extraInfo": {"py_callstack": stack, "timestamp": "1790000000"}}
    }
    (folder / "error.json").write_text(json.dumps(content))
    logs = Logs()
    assert read(folder / "error.json", logs)
    assert (logs.failures[3].text, logs.failures[3].where) == (
        "ValueError: no",
        Frame("/home/mia/train.py", 42, "step"),
    )
    # AND one that was moved out of its attempt
    (tmp_path / "6").mkdir()
    moved, alone = tmp_path / "6" / "error.json", tmp_path / "error.json"
    for path in (moved, alone):
        path.write_text(json.dumps(content))
    assert read(moved, logs)
    assert logs.failures[6].where == Frame("/home/mia/train.py", 42, "step")
    # AND one of which no folder tells the rank
    logs = Logs()
    assert read(alone, logs)
    found = assess(completed(Queues(), logs), logs).judgement
    assert found is not None
    assert found.verdict.summary == "A process of this job raised an exception (train.py:42): ValueError: no."
    assert not elastic.error_file(b'{"message": 3}', 3, logs)
    assert not elastic.error_file(b"[]", 3, logs)


_STACK = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 357, in f
  File "/home/mia/train.py", line 42, in step
  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 648, in backward
torch.OutOfMemoryError: CUDA out of memory. 1.05 GiB is free.
"""


def test_the_line_of_an_error_is_the_user_s_and_not_the_library_s_below_it(tmp_path: Path) -> None:
    folder = tmp_path / "attempt_0" / "3"
    folder.mkdir(parents=True)
    message = {"message": "OutOfMemoryError: no", "extraInfo": {"py_callstack": _STACK}}
    (folder / "error.json").write_text(json.dumps({"message": message}))
    logs = Logs()
    assert read(folder / "error.json", logs)
    assert logs.failures[3].where == Frame("/home/mia/train.py", 42, "step")
    # AND so it is in torchrun's table
    found = judged(tmp_path, table(failure(1, 1, _STACK.replace("\n", "\n    "), root=True)))
    assert found.judgement is not None
    assert found.judgement.verdict.culprits[0].where == Frame("/home/mia/train.py", 42, "step")
    assert found.judgement.verdict.summary.endswith("1.05 GiB is free.")
    assert ".." not in found.judgement.verdict.summary


# ------------------------------------------------------------------------------------------ files


def test_what_is_a_log() -> None:
    assert is_log(gave_up(0, 1).encode())
    assert is_log(set_up(0, "START").encode())
    assert not is_log(b"\x80\x02WorkNCCL(")
    assert not is_log(b'{"entries": "ProcessGroupNCCL"}')
    assert not is_log(b"epoch 3, loss 0.2")


def test_the_rank_of_a_line_without_one_is_that_of_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "attempt_0" / "2"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text(gave_up(0, 9).replace("[rank0]:", "") + "\n")
    logs = Logs()
    assert read(folder / "stderr.log", logs)
    assert [each.rank for each in logs.timeouts] == [2]


def test_a_log_of_no_use_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("epoch 3, loss 0.2\n" * 10)
    (tmp_path / "binary").write_bytes(b"\0" * 100)
    logs = Logs()
    assert not read(tmp_path / "out.log", logs)
    assert not read(tmp_path / "binary", logs)
    assert not logs


# ------------------------------------------------------------------------------------------ monitored barriers


LATE = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/mia/train.py", line 90, in main
[rank0]:     dist.monitored_barrier(timeout=timedelta(seconds=30))
[rank0]:   File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 4950, in barrier
[rank0]: RuntimeError: [Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in 30000 ms
"""


def test_a_monitored_barrier_names_the_ranks_that_did_not_come(tmp_path: Path) -> None:
    found = judged(tmp_path, LATE).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [2, 5]
    assert "(train.py:90) within 30 s" in found.verdict.summary


def test_each_rank_that_did_not_come_may_have_a_line_of_its_own(tmp_path: Path) -> None:
    lines = "\n".join(f"[Rank 0]: Rank {rank} failed to pass monitoredBarrier in 2000 ms" for rank in (1, 3))
    found = judged(tmp_path, lines).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [1, 3]


def test_rank_0_that_gave_a_barrier_up_is_a_victim(tmp_path: Path) -> None:
    """The process that raised is not the one that failed."""
    raised = failure(0, 1, "RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 30000 ms", root=True)
    found = judged(tmp_path, LATE.replace("Ranks 2, 5", "Rank 3") + table(raised)).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [3]


def test_a_log_alone_does_not_claim_that_all_ranks_came(tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join(gave_up(rank, 90) for rank in range(3))).judgement
    assert found is not None
    assert "by ranks 0-2 (others may belong to the group and not have come), alike" in found.verdict.summary


@pytest.mark.parametrize(
    ("op", "apart", "named"), [("ALLREDUCE", 1, [5]), ("_REDUCE_SCATTER_BASE", 1, [7]), ("ALLREDUCE", 2, [])]
)
def test_a_member_of_a_group_of_which_no_line_speaks_is_told_by_the_places_of_the_others(
    op: str, apart: int, named: list[int], tmp_path: Path
) -> None:
    """The line says the place in the group behind the group's name: what lies between them is free for one rank."""
    members = range(4, 8) if apart == 1 else [1, 3, 4, 6]
    lost = named[0] if named else 3
    given = 400 if "SCATTER" in op else 100
    lines = [asked_to_dump(rank, 40, 40) for rank in range(8)]
    for place, rank in enumerate(members):
        if rank != lost:
            text = far(rank, 7, 7, 6, "1 PG GUID 3(mesh_tp)")
            lines += [gave_up(rank, 7, op, given), text.replace(f"Rank {rank}]", f"Rank {place}]")]
    found = judged(tmp_path, *lines)
    assert blamed(found) == named
    assert found.judgement is not None
    assert found.judgement.verdict.cause == "undetermined"


def test_in_a_mesh_the_rank_that_waits_nowhere_is_the_one_to_look_at(tmp_path: Path) -> None:
    """GIVEN two groups of which one rank each has no line WHEN one of these two has given up a call with the other
    THEN that call is not told as one to which all came, and only the other is named."""
    lines = [asked_to_dump(rank, 40, 40) for rank in range(8)]
    for rank, place, group in [(rank, rank // 2, f"2 PG GUID {3 + 2 * (rank % 2)}(mesh_dp)") for rank in range(8)]:
        if rank not in (2, 3):
            text = far(rank, 40, 40, 39, group)
            lines += [gave_up(rank, 40, "_REDUCE_SCATTER_BASE", 400), text.replace(f"Rank {rank}]", f"Rank {place}]")]
    lines += [gave_up(2, 900), far(2, 900, 900, 899, "3 PG GUID 7(mesh_tp)").replace("Rank 2]", "Rank 0]")]
    assert blamed(judged(tmp_path, *lines)) == [3]
