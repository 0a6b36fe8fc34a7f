"""Records that hold different things: what one of them lacks is not known, and no difference between the ranks."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.dump_programs import BUCKETS, TURN
from tests.dump_verdicts import blamed, verdict_on
from tests.dump_world import Call, JobDumps, Join, Step, Stop, StuckKernel, Sync, every

GATHERS: list[Step] = [Call("_all_gather_base", 55, size, out=4 * size) for size in (64, 96)]
BACKWARD = 56  # a call from there has no frames on any rank: torch's own thread makes it
AGAIN: list[Step] = [Call("_all_gather_base", BACKWARD, size, out=4 * size) for size in (96, 64)]
HIDDEN: list[Step] = [*GATHERS, *AGAIN, *BUCKETS, Join(), Sync()]


def rewrite(folder: Path, ranks: tuple[int, ...], change: Callable[[dict[str, Any]], None]) -> None:
    for rank in ranks:
        (path,) = folder.glob(f"*rank_{rank}*")
        written = path.stat().st_mtime_ns
        document = pickle.loads(path.read_bytes())  # noqa: S301 - written by this test
        change(document)
        path.write_bytes(pickle.dumps(document, protocol=2))
        os.utime(path, ns=(written, written))


def _without_frames(document: dict[str, Any]) -> None:
    for entry in document["entries"]:
        entry["frames"] = []


def _as_recorded(document: dict[str, Any]) -> None:
    for entry in document["entries"]:
        if any(frame["line"] == BACKWARD for frame in entry["frames"]):
            entry["frames"] = []


def _without_starts(document: dict[str, Any]) -> None:
    for entry in document["entries"]:
        entry["time_discovered_started_ns"] = None
        entry["state"] = "scheduled" if entry["state"] == "started" else entry["state"]


def test_a_record_without_call_sites_is_no_other_path_of_the_code(tmp_path: Path) -> None:
    """Calls of a backward pass have no frames on any rank; those of the forward pass lack them on two."""
    JobDumps(every(4, HIDDEN * 5, {3: HIDDEN * 4})).write(tmp_path)
    rewrite(tmp_path, (0, 1, 2, 3), _as_recorded)
    rewrite(tmp_path, (1, 3), _without_frames)
    found = verdict_on(tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("undetermined", [3])


def test_a_skipped_call_is_told_by_its_size_where_a_record_has_no_call_sites(tmp_path: Path) -> None:
    program = every(4, HIDDEN * 8, {3: [*HIDDEN * 5, GATHERS[1], *HIDDEN[2:], *HIDDEN * 2]})
    JobDumps(program).write(tmp_path)
    rewrite(tmp_path, (0, 1, 2, 3), _as_recorded)
    rewrite(tmp_path, (0,), _without_frames)
    found = verdict_on(tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("skipped-collective", [3])


def test_a_device_of_a_rank_without_start_events_is_not_called_behind(tmp_path: Path) -> None:
    JobDumps(every(6, TURN * 4, {2: [*TURN * 3, StuckKernel(), *TURN]})).write(tmp_path)
    rewrite(tmp_path, (0, 4), _without_starts)
    found = verdict_on(tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("device-stall", [2])
    assert "started on ranks 1, 3 and 5, only enqueued on rank 2" in found.evidence
    assert "ranks 0 and 4: no start events are recorded" in found.evidence


def test_where_only_ranks_without_start_events_have_not_started_it_nothing_is_told_of_a_device(tmp_path: Path) -> None:
    JobDumps(every(4, TURN * 4, {2: [*TURN * 3, StuckKernel(), *TURN]})).write(tmp_path)
    rewrite(tmp_path, (2,), _without_starts)
    found = verdict_on(tmp_path)
    assert found.certainty == "undetermined"
    assert not found.culprits


def _exchange(rank: int, kind: str = "BFloat16") -> list[Step]:
    return [Call("all_to_all", 75, 16 + rank, dtype=kind, out=18 if rank in (0, 3) else 17), Sync()]


def test_types_of_an_all_to_all_must_agree_and_its_sizes_need_not(tmp_path: Path) -> None:
    program = {rank: _exchange(rank) * 5 for rank in range(4)}
    program[2] = [*_exchange(2) * 3, *_exchange(2, "Float"), *_exchange(2)]
    JobDumps(program).write(tmp_path)
    found = verdict_on(tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("collective-mismatch", [2])
    assert "float32" in found.summary


def test_sizes_that_differ_by_right_are_not_told_as_alike(tmp_path: Path) -> None:
    JobDumps({rank: _exchange(rank) * 5 for rank in range(4)}, broken={"world": 3}).write(tmp_path)
    found = verdict_on(tmp_path)
    assert found.cause == "interconnect-stall"
    assert "ranks 0-3: started, not completed, the same operation and type" in found.evidence


REPORT: list[Step] = [Call("_all_gather_base", 144, 8, "metrics", out=32), Sync()]
METRICS: dict[str, tuple[int, ...]] = {"metrics": (0, 1, 2, 3)}


def test_a_call_of_one_rank_in_another_group_is_no_order_of_groups(tmp_path: Path) -> None:
    """Rank 0 evaluates alone, in a group of its own: the others are in their next step as ever."""
    JobDumps(every(4, TURN * 6, {0: [*TURN * 4, *REPORT, *TURN * 2]}), METRICS).write(tmp_path)
    found = verdict_on(tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("rank-zero-only-collective", [0])
    assert found.victims == (1, 2, 3)
    assert [each.cause for each in found.alternatives] == ["group-order-cycle"]


def test_groups_that_all_ranks_use_in_two_orders_stay_a_circle(tmp_path: Path) -> None:
    turn, swapped = [*REPORT, *TURN], [*TURN, *REPORT]
    JobDumps(every(4, turn * 6, {0: [*turn * 4, *swapped, *turn]}), METRICS).write(tmp_path)
    found = verdict_on(tmp_path)
    assert [each.rank for each in found.culprits] == [0]
    assert found.cause in ("group-order-cycle", "skipped-collective")


def test_a_group_that_the_status_does_not_tell_of_was_never_used_by_that_rank(tmp_path: Path) -> None:
    """The rings no longer hold the beginning; the recorder's status has each group ever used."""
    programs = every(4, TURN * 12, {0: [*TURN * 9, *REPORT, *TURN * 3]})
    JobDumps(programs, METRICS, window=18).write(tmp_path)
    found = verdict_on(tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("rank-zero-only-collective", [0])
    assert "in group 1 (metrics)" in found.evidence[0] or "metrics" in found.evidence[0]


def _step(pair: str, *, without: bool = False) -> list[Step]:
    """A call of all ranks, then the gradients of a pair of ranks: buckets that torch's own thread reduces."""
    buckets: list[Step] = [Call("all_reduce", BACKWARD, size, pair) for size in (4096, 2048)]
    return [Call("broadcast", 20, 8), *buckets[without:], Call("all_reduce", 30, 1), Sync()]


def test_of_two_ranks_the_one_that_left_its_own_order_over_all_groups_is_to_blame(tmp_path: Path) -> None:
    """A pair of ranks has no majority, and calls without sites look alike: the calls before them tell."""
    pairs: dict[str, tuple[int, ...]] = {f"pair{rank}": (rank, rank + 2) for rank in range(2)}
    programs = {rank: _step(f"pair{rank % 2}") * 7 for rank in range(4)}
    programs[3] = [*_step("pair1") * 5, *_step("pair1", without=True), *_step("pair1")]
    JobDumps(programs, pairs).write(tmp_path)
    rewrite(tmp_path, (0, 1, 2, 3), _as_recorded)
    found = verdict_on(tmp_path)
    assert [each.rank for each in found.culprits] == [3]
    assert found.cause in ("skipped-collective", "collective-mismatch")


def test_a_rank_with_a_line_of_another_group_is_not_called_a_rank_without_a_line(tmp_path: Path) -> None:
    """Rank 1's line is of its own group; in that of all ranks it is rank 2 that has not come."""
    common = (
        "] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] failure detected by watchdog at work sequence id: {number} PG"
    )
    line = (
        "[rank{rank}]:[E1 ProcessGroupNCCL.cpp:1] [Rank {rank}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran\n"
        "[rank{rank}]:[E1" + common + " status: last enqueued work: {number}, last completed work: {done}"
    )
    lines = [line.format(rank=rank, number=9, done=8) for rank in (0, 3)]
    lines.append(line.format(rank=1, number=40, done=39).replace("0(default_pg)", "4(tp)"))
    lines.append(
        "[rank2]:[E1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a"
        " collective timeout from rank 0. Last enqueued NCCL work: 8, last completed NCCL work: 8."
    )
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n")
    found = verdict_on(tmp_path)
    assert [each.rank for each in found.culprits] == [2]
    assert "the line of the watchdog of rank 1 does not tell of the default group" in found.evidence


def test_a_dump_without_a_call_of_the_group_is_there_and_tells_enough(tmp_path: Path) -> None:
    """Rank 2 stands before its first call: its record is whole, so that no other one of it is wanted."""
    JobDumps(every(4, [*TURN], {2: [Stop()]}), status=False).write(tmp_path)
    rewrite(tmp_path, (2,), lambda document: document.pop("pg_config"))
    found = verdict_on(tmp_path)
    assert blamed(found) == [2]
    assert found.summary.startswith("Rank 2 never enqueued all_reduce 1 of the default group")
    assert "give the records" not in found.fix
