"""Lines of logs as torch, NCCL and torchrun write them, and what hangwatch makes of them."""

from __future__ import annotations

from pathlib import Path

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.queues import Assessment
from hangwatch.recorder import QueueReader


def gave_up(rank: int, number: int, op: str = "ALLREDUCE", given: int = 100, made: int = 100) -> str:
    return (
        f"[rank{rank}]:[E1121 10:20:30.12 ProcessGroupNCCL.cpp:684] [Rank {rank}] Watchdog caught collective operation"
        f" timeout: WorkNCCL(SeqNum={number}, OpType={op}, NumelIn={given}, NumelOut={made}, Timeout(ms)=600000) ran"
        " for 600021 milliseconds before timing out."
    )


def gave_up_in_old_words(rank: int, number: int | None, op: str, shape: str, prefix: str = "") -> str:
    """As torch 2.0 and before say it; those before 2.0 without a number."""
    numbered = f"SeqNum={number}, " if number is not None else ""
    return (
        f"{prefix}[E ProcessGroupNCCL.cpp:828] [Rank {rank}] Watchdog caught collective operation timeout:"
        f" WorkNCCL({numbered}OpType={op}, TensorShape=[{shape}], Timeout(ms)=1800000) ran for 1802710 milliseconds"
        " before timing out."
    )


def far(
    rank: int,
    number: int,
    enqueued: int,
    done: int,
    group: str = "0 PG GUID 0(default_pg)",
    *,
    started: int | None = None,
) -> str:
    begun = f" last started work: {started}," if started is not None else ""
    return (
        f"[rank{rank}]:[E1121 10:20:30.13 ProcessGroupNCCL.cpp:2271] [PG ID {group} Rank {rank}]  failure detected"
        f" by watchdog at work sequence id: {number} PG status: last enqueued work: {enqueued},{begun}"
        f" last completed work: {done}"
    )


def asked_to_dump(rank: int, enqueued: int, done: int) -> str:
    return (
        f"[rank{rank}]:[E1121 10:20:31 ProcessGroupNCCL.cpp:1685] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received"
        " a dump signal due to a collective timeout from rank 0 and we will try our best to dump the debug info. Last"
        f" enqueued NCCL work: {enqueued}, last completed NCCL work: {done}.This is most likely a bug"
    )


def judged(tmp_path: Path, *texts: str, reader: QueueReader | None = None) -> Assessment:
    logs = Logs()
    for index, text in enumerate(texts):
        path = tmp_path / f"job-{index}.log"
        path.write_text(text + "\n")
        assert read(path, logs)
    return assess(completed((reader or QueueReader()).queues(), logs), logs)


def blamed(found: Assessment) -> list[int | None]:
    assert found.judgement is not None
    return [culprit.rank for culprit in found.judgement.verdict.culprits]


def set_up(rank: int, word: str, size: int = 4, host: str = "node-a") -> str:
    return (
        f"{host}:{4000 + rank}:{5000 + rank} [{rank % 2}] NCCL INFO ncclCommInitRank comm 0x55d0{rank}0 rank {rank}"
        f" nranks {size} cudaDev {rank % 2} nvmlDev {rank % 2} busId {rank}000 commId 0x9ad9b5e4ab2566da - Init {word}"
    )


def failure(rank: int, code: int, text: str, *, root: bool = False) -> str:
    head = "Root Cause (first observed failure):\n[0]:" if root else f"[{rank + 1}]:"
    return (
        f"{head}\n  time      : 2026-11-21_10:30:31\n  host      : node-a\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {4000 + rank})\n  error_file: <N/A>\n  traceback : {text}"
    )


def table(*failures: str) -> str:
    rule = "=" * 60
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{rule}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n" + "\n".join(failures) + f"\n{rule}"
    )
