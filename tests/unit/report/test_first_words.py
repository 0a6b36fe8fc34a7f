"""The line of a standstill: which ranks wait where and for which, what those do, and when that is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.catalogue import BY_ID
from hangwatch.judge import diagnose
from hangwatch.judge.countdown import HORIZON_S, later, reported_after
from hangwatch.model import OpenFile, Phase, Progress, RankEvidence, Snapshot, Status, StepTimes
from hangwatch.report import first_words
from tests.unit.job import (
    FETCHING,
    IDLE,
    IN_BACKWARD,
    IN_BARRIER,
    IN_CODE,
    IN_NEXT_RENDEZVOUS,
    LIB,
    NOW,
    TORCH,
    feeding,
    frames,
    gone,
    launcher,
    leaving,
    other,
    rank,
    snapshot,
    started,
    starting,
    worker,
)

IN_SAVE = frames((f"{TORCH}/serialization.py", 900, "save"))
IN_COMPILE = frames((f"{TORCH}/_inductor/compile_fx.py", 700, "compile_fx"))
FOUR: dict[str, Any] = {"world_size": 4, "still_s": 10.0, "patience_s": 60.0, "times": StepTimes(steps=9)}


def waits(number: int, stack: Any = IN_BACKWARD, **parts: Any) -> RankEvidence:
    return rank(number, stack, issued=11, completed=10, **{**FOUR, **parts})


def behind(number: int, stack: Any = IN_CODE, **parts: Any) -> RankEvidence:
    return rank(number, stack, issued=10, completed=10, **{**FOUR, **parts})


def still(*ranks: RankEvidence, **parts: Any) -> Snapshot:
    return replace(snapshot(*ranks, **parts), last_progress_at=NOW - 10.0)


def line(found: Snapshot, **parts: Any) -> str:
    return first_words.stands(found, 10.2, reported_after(found, 10.0), **parts)


def test_all_wait_for_one_whose_worker_is_in_uninterruptible_sleep() -> None:
    workers = (worker(0, FETCHING, rank=1, state="D"), worker(1, IDLE, rank=1))
    fed = feeding(1, *workers, issued=10, completed=10, **FOUR)
    assert line(still(waits(0), fed, waits(2), waits(3))) == (
        "hangwatch: no progress for 10 s: ranks 0 and 2-3 wait in backward (train.py:50) for rank 1, which waits"
        " (train.py:50) for loader worker 0 (pid 210), which sleeps uninterruptibly in the kernel (state D) in"
        " __getitem__ (train.py:12); reported as hung after 60 s"
    )


def test_a_rank_that_computes_may_work_for_long() -> None:
    found = still(waits(0), waits(1), waits(2), behind(3, facts={"cpu_delta_s": 0.9, "system_call": ""}))
    assert "ranks 0-2 wait in backward (train.py:50) for rank 3, which computes in main (train.py:50)" in line(found)
    assert line(found).endswith("reported as hung after 5 min")  # five times its patience, as the verdict has it


def test_a_rank_whose_other_threads_compute_waits_for_them_or_for_others() -> None:
    """Such as those of torch's RPC, which look for messages all the time."""
    found = still(waits(0), waits(1), waits(2), behind(3, facts={"cpu_delta_s": 0.9, "system_call": "futex"}))
    assert "for rank 3, which waits in main (train.py:50), while other threads of it compute" in line(found)


@pytest.mark.parametrize(
    ("stack", "parts", "says"),
    [
        (IN_SAVE, {"facts": {"cpu_delta_s": 0.5, "io_delta_bytes": 3 << 20}}, "reads or writes a checkpoint"),
        (IN_COMPILE, {"facts": {"cpu_delta_s": 0.9}}, "compiles"),
        (IN_CODE, {"phase": Phase.EVAL, "facts": {"cpu_delta_s": 0.9}}, "evaluates"),
    ],
)
def test_long_stages_are_named(stack: Any, parts: Any, says: str) -> None:
    found = still(waits(0), waits(1), waits(2), behind(3, stack, **parts))
    assert f"for rank 3, which {says} (train.py:50)" in line(found)
    assert first_words.is_long_stage(found, reported_after(found, 10.0))


def test_bytes_of_a_checkpoint_are_told_and_that_it_is_not_reported_while_they_move() -> None:
    saving = behind(1, IN_SAVE, facts={"io_delta_bytes": 3 << 20, "written_delta_bytes": 3 << 20}, world_size=2)
    said = line(still(waits(0, world_size=2), saving))
    assert "reads or writes a checkpoint (train.py:50), 3.0 MiB in the last second" in said
    assert said.endswith("; not reported as hung while this lasts")


def test_ranks_that_have_not_come_are_counted() -> None:
    said = line(still(starting(0, world_size=4), starting(1, world_size=4)))
    assert "ranks 0-1 wait in init_process_group (train.py:50)" in said
    assert "ranks 2-3 have not come: 2 of 4 ranks were started" in said


def test_a_process_that_may_become_the_rank_that_is_missing_has_been_started() -> None:
    """GIVEN a child of mp.spawn that prepares its data: what its rank is, is not known before it joins."""
    said = line(still(starting(0, world_size=2), others=(other(222, "job", cpu_delta_s=0.8),)))
    assert "rank 1 has not come: 1 of 2 ranks has said its number" in said
    assert "started" not in said


def test_a_rank_that_lives_and_has_not_come_is_awaited() -> None:
    late = rank(1, IN_CODE, phase=Phase.START, progress=Progress(), facts={"system_call": "clock_nanosleep"})
    assert "rank 0 waits in init_process_group (train.py:50) for rank 1, which" in line(still(starting(0), late))


def test_a_process_without_torch_is_told_by_its_pid() -> None:
    said = line(still(starting(0), launched=(started(1),)))
    assert "rank 1 (pid 101) has been started and has not imported torch yet" in said


def test_a_launcher_that_has_started_nothing() -> None:
    waiting = launcher(IN_NEXT_RENDEZVOUS, command="torchrun --nnodes=2 train.py")
    said = line(still(world_size=4, launchers=(waiting,)))
    assert "no rank has been started; torchrun (pid 50) runs" in said


def test_ranks_of_other_nodes_are_unknown_here() -> None:
    said = line(still(waits(0), waits(1)), elsewhere=True)
    assert "the job has ranks on other nodes, of which this node knows nothing" in said


def test_all_wait_and_no_rank_is_named_where_none_is_awaited() -> None:
    said = line(still(waits(0, world_size=2), waits(1, IN_BARRIER, world_size=2)))
    assert "rank 0 waits in backward (train.py:50) and rank 1 waits in barrier (train.py:50)" in said


def test_ranks_that_left_or_ended_are_said_to_have() -> None:
    left = leaving(1, frames((f"{LIB}/threading.py", 1590, "_shutdown"), below=()))
    assert "rank 1 has left its training" in line(still(waits(0, world_size=2), left))
    assert "rank 1 has ended (exit code 0)" in line(still(waits(0, world_size=2), gone(1)))


def test_it_is_one_line_of_facts_without_a_cause() -> None:
    blocked = behind(1, facts={"system_call": "recvfrom", "blocked_on": OpenFile(3, "socket a\n\x1b[31m:1 -> b:2")})
    said = line(still(waits(0), blocked, waits(2), waits(3)))
    assert "\n" not in said
    assert "\x1b" not in said
    assert not any(word in said for word in (*BY_ID, "skipped", "stuck", "never", "fault"))


def test_many_ranks_stay_one_line() -> None:
    ranks = [behind(number, frames((f"/home/ann/part{number}.py", 3, "f")), world_size=64) for number in range(64)]
    assert len(line(still(*ranks))) < 500


def test_the_countdown_is_what_the_judge_does() -> None:
    found = still(waits(0), waits(1), waits(2), behind(3))
    after = reported_after(found, 10.0)
    assert after is not None
    assert 59.0 < after < 62.0
    assert diagnose(later(found, after - 10.0 - 2.0)).status is Status.WAITING
    assert diagnose(later(found, after - 10.0 + 1.0)).status is Status.HUNG


def test_nothing_is_counted_down_for_a_rank_whose_bytes_move() -> None:
    found = still(waits(0), waits(1), waits(2), behind(3, facts={"io_delta_bytes": 9 << 20}))
    assert reported_after(found, 10.0) is None
    assert diagnose(later(found, HORIZON_S)).status is Status.WAITING


def test_a_first_step_without_a_fact_may_only_be_slow() -> None:
    new: dict[str, Any] = {"progress": Progress(epoch=0, batch=0, step=0), "world_size": 2}
    assert first_words.may_be_slow(still(waits(0, **new), behind(1, facts={"cpu_delta_s": 0.9}, **new)))
    assert first_words.may_be_slow(still(waits(0, **new), behind(1, **new)))
    blocked = behind(1, evidence={"held": "waits in read on pipe:[7]"}, **new)
    assert not first_words.may_be_slow(still(waits(0, **new), blocked))
    assert not first_words.may_be_slow(still(waits(0, world_size=2), behind(1, world_size=2)))
    assert not first_words.may_be_slow(still(starting(0), world_size=2))
