"""Exceptions behind which a job went on, and those at the end of a rank's own file; what launchers say of an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, read
from hangwatch.recorder import QueueReader
from tests.unit.logs.lines import blamed, failure, judged, table
from tests.unit.logs.test_own_words import trace


def steps(count: int, label: str = "", first: int = 0) -> str:
    """Lines of a program, with a date and a loss that do not say that it counts up."""
    return "\n".join(
        f"{label}2026-11-24 10:{step % 60:02d}:00,000 INFO step {step} | loss {7.0 / (step + 1):.4f}"
        for step in range(first, first + count)
    )


def test_an_exception_behind_which_its_rank_goes_on_was_caught(tmp_path: Path) -> None:
    label = "[rank1]: "
    found = judged(tmp_path, "\n".join([steps(3, label), trace(1, "ValueError: bad answer"), steps(12, label, 3)]))
    assert found.judgement is None
    few = judged(tmp_path, "\n".join([steps(3, label), trace(1, "ValueError: bad answer"), steps(6, label, 3)]))
    assert blamed(few) == [1]


@pytest.mark.parametrize("label", ["", "[rank0]: "])
def test_what_other_ranks_count_up_says_nothing_of_it(tmp_path: Path, label: str) -> None:
    """Rank 0 may evaluate by itself for long before it misses the one that has failed."""
    assert blamed(judged(tmp_path, "\n".join([trace(1, "ValueError: bad answer"), steps(40, label)]))) == [1]


def test_the_lines_of_its_own_stack_are_no_steps(tmp_path: Path) -> None:
    stack = "\n".join(f"[rank1]: frame #{n}: c10::Error + 0x{n}0 (0x7f0 in libc10.so)" for n in range(30))
    assert blamed(judged(tmp_path, "\n".join([trace(1, "RuntimeError: CUDA error: out of range"), stack]))) == [1]


def test_parts_of_a_whole_are_counted_up_as_well(tmp_path: Path) -> None:
    label = "[rank1]: "
    bars = "\n".join(f"{label}eval {n}/100" for n in range(14))
    assert judged(tmp_path, "\n".join([trace(1, "ValueError: bad answer"), bars])).judgement is None


def test_neither_dates_nor_losses_count_anything_up(tmp_path: Path) -> None:
    stands = "\n".join(f"2026-11-24 10:{minute:02d}:00 INFO heartbeat of loss 0.{minute % 7}" for minute in range(30))
    assert blamed(judged(tmp_path, "\n".join([trace(1, "ValueError: bad answer"), stands]))) == [1]


def of_all(count: int, first: int) -> list[str]:
    return [
        f"[rank{rank}]: step {step} loss {7.0 / step:.3f}" for step in range(first, first + count) for rank in range(3)
    ]


def test_a_rank_that_steps_on_among_the_others_has_caught_its_exception(tmp_path: Path) -> None:
    lines = [*of_all(1, 1), trace(1, "OSError: image file is truncated"), *of_all(10, 2)]
    found = judged(tmp_path, "\n".join(lines))
    assert found.judgement is None
    assert "rank 1 raised OSError: image file is truncated" in found.sentences[1]
    # BUT where anything else tells of a failure it may have been the cause
    failed = judged(
        tmp_path, "\n".join([*lines, "mpirun noticed that process rank 2 with PID 7 on node n exited on signal 6"])
    )
    assert blamed(failed) == [1]


def test_an_exception_that_its_rank_tells_of_is_caught_where_the_job_goes_on(tmp_path: Path) -> None:
    said = ["[rank1]: ERROR the upload failed, will retry", trace(1, "OSError: timed out there"), "[rank1]: upload ok"]
    assert judged(tmp_path, "\n".join([steps(3), *said, steps(12, first=3)])).judgement is None
    assert blamed(
        judged(tmp_path, "\n".join([steps(3), *said[1:], steps(12, first=3)]).replace("timed out", "lost"))
    ) == [1]
    assert blamed(judged(tmp_path, "\n".join([steps(3), *said, steps(5, first=3)]).replace("timed out", "lost"))) == [1]


def test_fewer_steps_show_it_where_a_line_of_the_rank_introduces_the_exception(tmp_path: Path) -> None:
    """Nothing introduces what torch's hook prints at the end of a process, whose buffer may hold its last steps."""
    caught = [trace(1, "OSError: image file is truncated"), *of_all(3, 2)]
    introduced = [*of_all(1, 1), "[rank1]: WARNING could not decode, retrying with another:", *caught]
    assert judged(tmp_path, "\n".join(introduced)).judgement is None
    assert blamed(judged(tmp_path, "\n".join([*of_all(1, 1), *caught]))) == [1]


def own_files(tmp_path: Path, **errors: str) -> Logs:
    logs = Logs()
    for name, error in errors.items():
        path = tmp_path / f"{name}.log"
        path.write_text(f"step 1\n{trace(None, error)}\n")
        assert read(path, logs)
    return logs


def test_what_ends_the_file_of_a_rank_ended_it_where_others_lost_a_peer(tmp_path: Path) -> None:
    logs = own_files(tmp_path, rank_0="RuntimeError: NCCL communicator was aborted on rank 0.", rank_2="KeyError: 'x'")
    assert blamed(assess(QueueReader().queues(), logs)) == [2]


def test_the_exception_of_a_loader_worker_is_told_by_its_own_line(tmp_path: Path) -> None:
    worker = (
        'Original Traceback (most recent call last):\n  File "/home/mia/data.py", line 61, in __getitem__\n'
        "    row['image']\nKeyError: 'image'"
    )
    text = f"{trace(3, 'KeyError: Caught KeyError in DataLoader worker process 3.')}\n"
    text += "\n".join(f"[rank3]: {line}" for line in worker.splitlines())
    found = judged(tmp_path, text)
    assert blamed(found) == [3]
    assert found.judgement is not None
    assert found.judgement.verdict.summary == "Rank 3 raised an exception (data.py:61): KeyError: 'image'."


def test_a_run_behind_another_in_one_file_is_another_attempt(tmp_path: Path) -> None:
    path, logs = tmp_path / "train.log", Logs()
    over = table(failure(2, 1, "To enable traceback see", root=True))  # at 10:30:31 on that day
    begins = [f"W1121 {at}.000000 1 torch/distributed/run.py:793] {'*' * 41}" for at in ("10:00:00", "10:40:00")]
    path.write_text("\n".join([begins[0], trace(2, "ValueError: odd"), over, begins[1], steps(5)]) + "\n")
    assert not read(path, logs)
    assert logs.earlier is not None
    assert logs.earlier.raised[2].text == "ValueError: odd"


def test_the_launcher_of_another_node_begins_no_other_run(tmp_path: Path) -> None:
    over = table(failure(2, 1, "To enable traceback see", root=True))
    late = f"W1121 10:30:34.000000 9 torch/distributed/run.py:793] {'*' * 41}"
    found = judged(tmp_path, "\n".join([trace(2, "ValueError: odd"), over, late, steps(5)]))
    assert blamed(found) == [2]


def test_who_ends_a_launcher_behind_the_end_of_its_processes_ends_nothing(tmp_path: Path) -> None:
    agent, other = (f"1124 10:12:05.1 {pid} torch/distributed/elastic/agent/server/api.py:719]" for pid in (1, 77))
    ended = f"W{agent} Received 15 death signal, shutting down workers"
    done = f"I{agent} [default] worker group successfully finished."
    path, logs = tmp_path / "pod.log", Logs()
    path.write_text(f"{done}\n{ended}\n")
    assert not read(path, logs)
    assert judged(tmp_path, ended).judgement is not None
    # AND that of another node, whose processes had not ended
    assert judged(tmp_path, f"{done}\n{ended.replace(agent, other)}").judgement is not None


def test_mpirun_names_the_rank_that_failed_first(tmp_path: Path) -> None:
    said = "mpirun noticed that process rank 3 with PID 7712 on node n2 exited on signal 9 (Killed)."
    found = judged(tmp_path, said)
    assert blamed(found) == [3]
    assert found.judgement is not None
    assert (found.judgement.verdict.cause, found.judgement.verdict.culprits[0].pid) == ("rank-died", 7712)
    path, logs = tmp_path / "interrupted.log", Logs()
    path.write_text(said.replace("signal 9 (Killed)", "signal 2 (Interrupt)") + "\n")
    assert not read(path, logs)  # a person ended it


def test_what_a_shell_says_of_a_signal_is_that_signal(tmp_path: Path) -> None:
    said = "6: [rank6]: step 4\n6: [rank6]: step 5\nsrun: error: n0: task 6: Exited with exit code 137"
    found = judged(tmp_path, said)
    assert found.judgement is not None
    assert (found.judgement.verdict.cause, found.judgement.verdict.summary) == ("rank-died", "Rank 6 died by signal 9.")


def test_what_a_rank_cleans_up_behind_its_exception_is_no_going_on(tmp_path: Path) -> None:
    shards = [f"Rank {rank}: cleanup removing shard {shard}/3" for shard in (1, 2, 3) for rank in (1, 2)]
    assert blamed(judged(tmp_path, "\n".join([steps(5), trace(1, "ValueError: bad"), *shards]))) == [1]


def test_that_no_process_failed_is_not_said_where_an_exception_was_set_aside(tmp_path: Path) -> None:
    label = "[rank1]: "
    own = judged(tmp_path, "\n".join([trace(1, "ValueError: bad answer"), steps(14, label)]))
    uploads = [f"Uploading log part {part}" for part in range(12)]
    of_others = judged(tmp_path, "\n".join([f"{label}caught?", trace(1, "ValueError: bad answer"), *uploads]))
    for found in (own, of_others):
        assert found.judgement is None
        assert "no process is known to have failed" in found.sentences[0]
        assert "rank 1 raised ValueError: bad answer" in found.sentences[1]
