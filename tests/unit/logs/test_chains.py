"""Exceptions that one handler raised after another, and crashes of which Python's faulthandler tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.model import Frame
from hangwatch.recorder import QueueReader
from tests.unit.logs.lines import failure, far, gave_up, table
from tests.unit.logs.test_ends import UNTOLD, named, told

OWN = ("step.py", "KeyError: 'mask'")
LATER = ("run.py", "AttributeError: 'NoneType' object has no attribute 'finish'")
GONE = ("run.py", "torch.distributed.DistBackendError: NCCL error in: x.cpp:36, remote process exited")
HANDLED = "During handling of the above exception, another exception occurred:"
MADE = "The above exception was the direct cause of the following exception:"
BAD = ("tok.py", "ValueError: bad token")


def chain(rank: int | None, *parts: tuple[str, str], link: str = HANDLED) -> str:
    """The traceback of a rank, in torch's words; without its number where `rank` is None."""
    lines: list[str] = []
    for file, error in parts:
        lines += ["", link, ""] if lines else []
        lines += ["Traceback (most recent call last):", f'  File "/home/ann/{file}", line 41, in f', "    g()", error]
    return "\n".join(line if rank is None else f"[rank{rank}]: {line}" for line in lines)


@pytest.mark.parametrize("then", [GONE, LATER])
def test_the_first_of_a_chain_tells_why(then: tuple[str, str], tmp_path: Path) -> None:
    found = told(tmp_path, chain(3, OWN, then))
    assert (found.cause, named(found)) == ("exception-on-one-rank", [3])
    assert found.summary == "Rank 3 raised an exception (step.py:41): KeyError: 'mask'."
    assert any("while that was handled, rank 3 raised" in said and then[1][:20] in said for said in found.evidence)


def test_what_follows_another_ranks_end_is_a_consequence_too(tmp_path: Path) -> None:
    found = told(tmp_path, chain(0, GONE, LATER), chain(3, BAD), chain(1, GONE, LATER))
    assert named(found) == [3]
    # AND where no rank's own error is there, all of them are victims
    assert named(told(tmp_path, chain(0, GONE, LATER), chain(1, GONE, LATER))) == []


def test_an_exception_made_of_another_on_purpose_says_so_itself(tmp_path: Path) -> None:
    wrapped = ("io.py", "RuntimeError: cannot read shard 7")
    assert "cannot read shard 7" in told(tmp_path, chain(3, OWN, wrapped, link=MADE)).summary
    assert "KeyError" in told(tmp_path, chain(3, OWN, GONE, link=MADE)).summary


def test_two_tracebacks_of_a_rank_are_no_chain(tmp_path: Path) -> None:
    assert "bad token" in told(tmp_path, chain(3, OWN), chain(3, BAD)).summary


def test_torchruns_table_and_error_file_tell_the_first_as_well(tmp_path: Path) -> None:
    found = told(tmp_path, table(failure(3, 1, chain(None, OWN, LATER).replace("\n", "\n    "), root=True)))
    assert (named(found), "KeyError" in found.summary, "step.py:41" in found.summary) == ([3], True, True)
    folder = tmp_path / "attempt_0" / "3"
    folder.mkdir(parents=True)
    message = {"message": GONE[1], "extraInfo": {"py_callstack": chain(None, OWN, GONE)}}
    (folder / "error.json").write_text(json.dumps({"message": message}))
    logs = Logs()
    assert read(folder / "error.json", logs)
    assert logs.failures[3].text == OWN[1]


CRASH = """\
Fatal Python error: {kind}

Current thread 0x00007f12aa (most recent call first):
  File "/opt/conda/lib/python3.11/site-packages/torch/nn/linear.py", line 9 in forward
  File "/home/ann/ext.py", line 12 in fused
  File "/home/ann/train.py", line 40 in main"""


def crash(kind: str, rank: int | None) -> str:
    lines = CRASH.format(kind=kind).splitlines()
    return "\n".join(line if rank is None else f"[rank{rank}]: {line}" for line in lines)


def test_a_crash_is_told_with_the_innermost_line_of_the_program(tmp_path: Path) -> None:
    found = told(tmp_path, chain(0, GONE), crash("Segmentation fault", 9))
    assert (found.cause, named(found)) == ("rank-died", [9])
    assert found.summary == "Rank 9 crashed (ext.py:12): Fatal Python error: Segmentation fault."


def test_the_only_stack_without_a_rank_is_of_the_one_that_died_by_such_a_signal(tmp_path: Path) -> None:
    killed = table(failure(2, -11, "Signal 11 (SIGSEGV) received by PID 4002", root=True), failure(0, 1, UNTOLD))
    assert "Rank 2 crashed (ext.py:12)" in told(tmp_path, crash("Segmentation fault", None), killed).summary


def test_an_abort_is_said_of_those_that_the_watchdog_ends(tmp_path: Path) -> None:
    found = told(tmp_path, *(gave_up(rank, 10) for rank in (0, 1)), crash("Aborted", 1), far(2, 9, 9, 9))
    assert 1 not in named(found)


def test_the_rank_that_left_the_order_after_an_error_of_its_own(tmp_path: Path) -> None:
    calls = [gave_up(rank, 45, given=1 if rank == 2 else 100, made=1 if rank == 2 else 100) for rank in range(4)]
    then = [*calls, *(far(rank, 45, 45, 44) for rank in range(4))]
    found = told(tmp_path, chain(2, OWN), *then)
    assert (found.cause, named(found)) == ("exception-on-one-rank", [2])
    assert found.summary.startswith(
        "Rank 2 raised KeyError: 'mask' (step.py:41). The ranks give all_reduce different sizes"
    )
    # AND what all ranks have logged leads none of them astray
    both = told(tmp_path, *(chain(rank, OWN) for rank in range(4)), *then)
    assert "raised" not in both.summary
    # AND what ended it after it had waited did not lead it there, but for a call made in the handler of that error
    assert "raised" not in told(tmp_path, *then, chain(2, OWN)).summary
    assert "Rank 2 raised KeyError" in told(tmp_path, *then, chain(2, OWN, GONE)).summary


def test_an_import_that_failed_and_was_caught_leads_no_rank_astray(tmp_path: Path) -> None:
    calls = [gave_up(rank, 45, given=1 if rank == 0 else 100, made=1 if rank == 0 else 100) for rank in range(4)]
    for rank, call in enumerate(calls):
        missing = chain(None, ("log.py", "ModuleNotFoundError: No module named 'wandb'")) if rank == 0 else ""
        (tmp_path / f"rank{rank}.log").write_text(f"{missing}\n{call}\n{far(rank, 45, 45, 44)}\n")
    logs = Logs()
    for file in sorted(tmp_path.iterdir()):
        assert read(file, logs)
    found = assess(completed(QueueReader().queues(), logs), logs).judgement
    assert found is not None
    assert found.verdict.cause == "collective-mismatch", found.verdict.summary


def test_a_crash_is_told_by_the_stack_of_the_thread_that_crashed(tmp_path: Path) -> None:
    """GIVEN a thread that slept beside it, of which faulthandler tells first."""
    only = CRASH.format(kind="Segmentation fault").replace("Current thread", "Thread")  # where it names none
    (tmp_path / "rank4.log").write_text(only + "\n")
    assert read(tmp_path / "rank4.log", logs := Logs())
    assert logs.raised[4].where == Frame("/home/ann/ext.py", 12, "fused")
    beside = 'Thread 0x00007f11 (most recent call first):\n  File "/home/ann/prefetch.py", line 4 in prefetch\n'
    text = CRASH.format(kind="Segmentation fault").replace("Current thread", f"{beside}\nCurrent thread")
    lines = "\n".join(f"[rank9]: {line}" for line in text.splitlines())
    assert "Rank 9 crashed (ext.py:12)" in told(tmp_path, chain(0, GONE), lines).summary


def test_by_which_signal_a_worker_of_a_loader_ended_is_told_before_the_loader_says_less(tmp_path: Path) -> None:
    signal = "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's"
    inner = ("dataloader.py", f"{signal} workers are out of shared memory.")
    outer = ("train.py", "RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly")
    found = told(tmp_path, chain(1, inner, outer, link=MADE))
    assert (found.cause, named(found)) == ("shared-memory-exhausted", [1])
    assert "(train.py:41): RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error" in found.summary
    # AND what else the loader made it of is no end of a worker
    empty = ("dataloader.py", "_queue.Empty")
    assert told(tmp_path, chain(1, empty, outer, link=MADE)).cause == "loader-worker-died"
