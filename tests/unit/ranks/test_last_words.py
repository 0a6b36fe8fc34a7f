"""Lines that backends, launchers and the kernel write when they end a process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.ranks.last_words import Kind, LastWord, last_words, rank_of

GLOO = (
    "  what():  [enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456]"
    " op.preamble.length <= op.nbytes. 676 vs 4. Received data size doesn't match expected size."
    " Is there a distributed collective mismatch in your code?"
)
WATCHDOG = (
    "[rank1]:[E1122 04:45:37.607 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1024, NumelOut=2048, Timeout(ms)=600000) ran for 600029"
    " milliseconds before timing out."
)
STATE = (
    "[rank3]:[E1122 04:45:37.608 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 4(tp) Rank 3]  failure detected by"
    " watchdog at work sequence id: 12 PG status: last enqueued work: 13, last completed work: 11"
)


def only(text: str) -> LastWord:
    found = last_words(text)
    assert len(found) == 1, found
    return found[0]


def test_gloo_prints_two_sizes() -> None:
    word = only(GLOO)
    assert (word.kind, word.received, word.expected, word.rank) == (Kind.SIZE_MISMATCH, 676, 4, None)


def test_ncclss_watchdog_tells_the_collective() -> None:
    word = only(WATCHDOG)
    assert (word.kind, word.rank, word.seq, word.op) == (Kind.WATCHDOG, 1, 12, "ALLREDUCE")
    assert word.timeout_s == 600.0


def test_the_state_of_a_communicator() -> None:
    word = only(STATE)
    assert (word.kind, word.rank, word.group) == (Kind.NCCL_STATE, 3, "4(tp)")


@pytest.mark.parametrize(
    ("line", "kind", "peer"),
    [
        ("RuntimeError: [x/pair.cc:537] Read error [127.0.0.1]:61094: Connection reset by peer.", Kind.CONNECTION,
         "[127.0.0.1]:61094"),
        ("Connection closed by peer [fe80::1]:59549", Kind.CONNECTION, "[fe80::1]:59549"),
        ("Timed out waiting 6000ms for recv operation to complete", Kind.TIMEOUT, ""),
        ("terminate called without an active exception", Kind.TERMINATED, ""),
        ("Fatal Python error: Segmentation fault", Kind.CRASH, ""),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", Kind.DEVICE, ""),
        ("CUDA error: an illegal memory access was encountered", Kind.DEVICE, ""),
    ],
)  # fmt: skip
def test_each_kind_of_line(line: str, kind: Kind, peer: str) -> None:
    assert (only(line).kind, only(line).peer) == (kind, peer)


def test_the_kernels_killer_names_the_process() -> None:
    line = "[123.4] Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB"
    assert (only(line).kind, only(line).pid) == (Kind.OUT_OF_MEMORY, 4711)
    assert only("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0.").kind is Kind.OUT_OF_MEMORY


def test_tracebacks_of_two_ranks_in_one_log_are_kept_apart() -> None:
    text = """[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 20, in main
[rank1]:   File "/home/me/data.py", line 7, in load
[rank1]:     raise ValueError("bad sample")
[rank1]: ValueError: bad sample
[rank0]: torch.distributed.DistBackendError: it timed out
"""
    first, second = last_words(text)
    assert first == LastWord(Kind.EXCEPTION, "[rank1]: ValueError: bad sample", 1)
    assert second == LastWord(Kind.EXCEPTION, "[rank0]: torch.distributed.DistBackendError: it timed out", 0)


def test_what_is_said_twice_is_kept_once() -> None:
    assert len(last_words("\n".join([GLOO, GLOO]))) == 1


@pytest.mark.parametrize("line", ["", "epoch 3, loss 0.5", "saved to /tmp/timeout.pt", "rank 3 done", "[1] 3 errors"])
def test_other_lines_say_nothing(line: str) -> None:
    assert last_words(line) == ()


@pytest.mark.parametrize(
    ("line", "rank"), [("[rank12]: x", 12), ("[PG ID 0 PG GUID 0 Rank 7] x", 7), ("[Rank 1] y", 1), ("rank 3", None)]
)
def test_the_rank_of_a_line(line: str, rank: int | None) -> None:
    assert rank_of(line) == rank


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert all(isinstance(word.kind, Kind) for word in last_words(text + WATCHDOG[:150] + text))
