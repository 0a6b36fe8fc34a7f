"""Mismatches, circles, threads, errors, frozen and dead ranks, and ranks that stand in code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hangwatch import judge as diagnosis
from hangwatch.judge import Case, Finding, diagnose
from hangwatch.model import (
    Certainty,
    Collective,
    ExceptionFacts,
    Excerpt,
    Frame,
    Judgement,
    LockFile,
    OpenFile,
    ProcessEvidence,
    ProcessFacts,
    RankEvidence,
    Snapshot,
    Socket,
    Status,
    ThreadStack,
)
from tests.unit.simulator import SCRIPT, TORCH, Action, Call, Die, Draw, Leave, LoopEnd, Peer, Stall, Stop, World

Program = list[Action]
Groups = dict[str, list[tuple[int, ...]]]
STEP: Program = [Draw(), Call(line=12, via="gradients"), Call(line=13)]


def world(*programs: Program, groups: Groups | None = None) -> Snapshot:
    return World(programs, groups).run().snapshot()


def changed(snapshot: Snapshot, rank: int, change: Callable[[RankEvidence], RankEvidence]) -> Snapshot:
    return replace(snapshot, ranks=tuple(change(e) if e.rank == rank else e for e in snapshot.ranks))


def blamed(judgement: Judgement) -> list[int | None]:
    return [culprit.rank for culprit in judgement.verdict.culprits]


def stuck(kind: str, **process: object) -> Snapshot:
    """Three ranks, of which the middle one stands in code; with facts of its process."""
    snapshot = world(STEP * 5, [*STEP * 3, Draw(), Stall(kind=kind)], STEP * 5)
    return changed(snapshot, 1, lambda e: replace(e, still_s=500, process=replace(_process(e), **process)))  # type: ignore[arg-type]


def _process(entry: RankEvidence) -> ProcessFacts:
    assert entry.process is not None
    return entry.process


def broken_rule(case: Case) -> Finding | None:
    raise KeyError("a rank that is not there")


@pytest.mark.faults_are_told
def test_a_rule_that_fails_is_left_out_and_nothing_is_proven_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, odd = [*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=21)]
    snapshot = world(usual, odd, usual, usual)
    healthy = diagnose(snapshot).verdict
    monkeypatch.setattr(diagnosis, "ORDER", (broken_rule, *diagnosis.ORDER))
    verdict = diagnose(snapshot).verdict
    assert (healthy.certainty, verdict.certainty) == (Certainty.PROVEN, Certainty.LIKELY)
    assert (verdict.cause, verdict.culprits) == (healthy.cause, healthy.culprits)
    assert "broken_rule of hangwatch failed (KeyError('a rank that is not there'))" in verdict.details[0]


# ------------------------------------------------------------------------------------------ mismatches


@pytest.mark.parametrize("culprit", [0, 1, 3])
def test_another_operation_at_the_same_point_is_a_mismatch_with_both_call_sites(culprit: int) -> None:
    usual, odd = [*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=21)]
    judgement = diagnose(world(*(odd if rank == culprit else usual for rank in range(4))))
    assert judgement.verdict.cause == "collective-mismatch"
    assert judgement.verdict.certainty is Certainty.PROVEN
    assert blamed(judgement) == [culprit]
    assert "train.py:20" in judgement.verdict.summary
    assert "train.py:21" in judgement.verdict.summary


def test_another_size_is_a_mismatch_and_the_rank_that_departs_from_its_past_is_to_blame() -> None:
    usual: Program = [Draw(), Call("all_gather", line=20, size=64)] * 4
    judgement = diagnose(world(usual, [*usual[:-1], Call("all_gather", line=20, size=20)]))
    assert judgement.verdict.cause == "collective-mismatch"
    assert blamed(judgement) == [1]


def test_a_mismatch_that_aborts_a_rank_is_no_mere_death() -> None:
    usual: Program = [Draw(), Call("all_gather", line=20, size=64)] * 4
    snapshot = world(usual, [*usual[:-1], Call("all_gather", line=20, size=20)])
    aborted = changed(snapshot, 0, lambda e: replace(e, process=ProcessFacts(4000, "X", exit_code=-6), stacks=()))
    judgement = diagnose(aborted)
    assert judgement.verdict.cause == "collective-mismatch"
    assert judgement.status is Status.FAILED
    assert blamed(judgement) == [1]


# ------------------------------------------------------------------------------------------ circles


def test_two_groups_in_opposite_order_are_a_circle_of_everybody_in_it() -> None:
    groups: Groups = {"a": [(0, 1)], "b": [(0, 1)]}
    one, other = Call(group="a", line=20), Call(group="b", line=21)
    judgement = diagnose(world([*STEP * 3, one, other], [*STEP * 3, other, one], groups=groups))
    assert judgement.verdict.cause == "group-order-cycle"
    assert judgement.status is Status.HUNG
    assert sorted(rank or 0 for rank in blamed(judgement)) == [0, 1]
    assert [wait.awaited for wait in judgement.verdict.waits] == [(1,), (0,)]


def test_a_ring_over_four_groups_is_found_whole() -> None:
    groups: Groups = {f"g{rank}": [(rank, (rank + 1) % 4)] for rank in range(4)}
    programs = [[*STEP * 2, Call(group=f"g{rank}"), Call(group=f"g{(rank - 1) % 4}")] for rank in range(4)]
    judgement = diagnose(world(*programs, groups=groups))
    assert judgement.verdict.cause == "group-order-cycle"
    assert len(judgement.verdict.waits) == 4


def test_everybody_sending_is_a_point_to_point_deadlock() -> None:
    judgement = diagnose(world([*STEP * 3, Peer("send", 1)], [*STEP * 3, Peer("send", 0)]))
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert judgement.status is Status.HUNG


def test_a_receive_whose_sender_waits_elsewhere_is_one_too() -> None:
    judgement = diagnose(world([*STEP, Peer("recv", 1), Call("barrier")], [*STEP, Call("barrier")]))
    assert judgement.verdict.cause == "point-to-point-deadlock"


def test_a_receive_whose_sender_still_computes_is_none() -> None:
    judgement = diagnose(world([*STEP, Peer("recv", 1)], [*STEP, Stall(kind="loop"), Peer("send", 0)]))
    assert judgement.verdict.cause == "user-code-blocked"
    assert judgement.status is Status.WAITING


# ------------------------------------------------------------------------------------------ threads


def test_two_threads_in_one_group_are_named() -> None:
    snapshot = world(STEP * 3, STEP * 4)

    def with_thread(entry: RankEvidence) -> RankEvidence:
        frames = (
            Frame(f"{TORCH}/distributed/distributed_c10d.py", 9, "barrier"),
            Frame("/home/ann/log.py", 8, "report"),
        )
        thread = ThreadStack(7, "reporter", frames)
        stacks = (*entry.stacks, thread)
        open_calls = (*entry.collectives.open_calls, Collective("0", 9, "barrier", thread_name="reporter"))
        collectives = replace(entry.collectives, open_calls=open_calls)
        return replace(entry, stacks=stacks, earlier_stacks=stacks, collectives=collectives)

    verdict = diagnose(changed(snapshot, 1, with_thread)).verdict
    assert verdict.cause == "concurrent-collectives"
    assert [(culprit.rank, culprit.where and culprit.where.function) for culprit in verdict.culprits] == [(1, "report")]
    assert "'reporter'" in verdict.summary


GRADIENTS, SAVE = Call(via="gradients", line=12), Call(line=20, size=1)


def saving_in_background(*programs: Program) -> Snapshot:
    """The calls of line 20 are those of a thread `ckpt`, and DDP's own are not recorded one by one."""

    def change(entry: RankEvidence) -> RankEvidence:
        calls = entry.collectives.recent
        ring = tuple(replace(call, thread_name="ckpt") for call in calls if call.frames[0].line == 20)
        assert entry.reading is not None
        collectives = replace(entry.collectives, recent=(), open_calls=(), source="board")
        return replace(entry, reading=replace(entry.reading, calls=ring), collectives=collectives)

    snapshot = world(*programs)
    return replace(snapshot, ranks=tuple(map(change, snapshot.ranks)))


@pytest.mark.parametrize("late", [0, 2])
def test_a_background_thread_that_comes_late_on_one_rank_crosses_with_the_training(late: int) -> None:
    usual: Program = [Draw(), GRADIENTS, SAVE, Draw(), GRADIENTS] * 4
    other: Program = [*usual[:15], Draw(), GRADIENTS, Draw(), GRADIENTS, SAVE]
    judgement = diagnose(saving_in_background(*(other if rank == late else usual for rank in range(3))))
    assert judgement.verdict.cause == "concurrent-collectives"
    assert sorted(blamed(judgement), key=str) == [0, 1, 2]
    assert "in thread 'ckpt'" in judgement.verdict.evidence[0]
    assert f"and not on rank {late}" in judgement.verdict.evidence[0]


def test_a_program_that_trains_in_a_thread_has_no_background() -> None:
    """What its thread skips is skipped by the training."""
    usual: Program = [Draw(), GRADIENTS, SAVE, Draw(), GRADIENTS] * 4
    snapshot = saving_in_background(usual, [*usual[:12], *usual[13:]], usual)
    assert diagnose(snapshot).verdict.cause == "concurrent-collectives"
    for rank in range(3):
        snapshot = changed(
            snapshot, rank, lambda entry: replace(entry, stacks=tuple(replace(s, name="ckpt") for s in entry.stacks))
        )
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("skipped-collective", [1])


def test_a_background_thread_of_one_mind_is_not_blamed_for_what_the_training_skipped() -> None:
    usual: Program = [Draw(), GRADIENTS, SAVE, Draw(), GRADIENTS] * 4
    short: Program = [*usual[:8], Draw(), *usual[10:]]
    judgement = diagnose(saving_in_background(usual, short, usual))
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed(judgement) == [1]


@pytest.mark.parametrize(("name", "told"), [("prefetch", True), ("Thread-7 (run)", False), ("hangwatch-ticker", False)])
def test_a_thread_that_has_ended_on_the_stuck_rank_alone_is_told(name: str, told: bool) -> None:
    def with_thread(entry: RankEvidence) -> RankEvidence:
        return replace(entry, stacks=(*entry.stacks, ThreadStack(9, name, (Frame("/home/ann/feed.py", 8, "run"),))))

    snapshot = stuck("lock")
    for rank in (0, 2):
        snapshot = changed(snapshot, rank, with_thread)
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("user-code-blocked", [1])
    sentence = f"thread {name!r} runs on ranks 0 and 2, and not on rank 1"
    assert (sentence in verdict.evidence) is told


# ------------------------------------------------------------------------------------------ errors and ends


def error(message: str, *, fatal: bool = False, at: float = 5.0) -> ExceptionFacts:
    return ExceptionFacts("IndexError", message, (Frame(SCRIPT, 33, "crop"),), fatal=fatal, at=at)


def with_error(found: ExceptionFacts) -> Callable[[RankEvidence], RankEvidence]:
    def change(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        return replace(entry, reading=replace(entry.reading, exception=found))

    return change


def test_a_pending_exception_on_one_rank_is_the_cause_not_the_barrier_it_waits_in() -> None:
    snapshot = changed(world(STEP * 5, [*STEP * 3, Call("barrier", line=60)]), 1, with_error(error("list index")))
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "exception-on-one-rank"
    assert blamed(judgement) == [1]
    assert "IndexError: list index (train.py:33)" in judgement.verdict.summary
    assert judgement.status is Status.HUNG


def test_an_exception_that_another_ranks_end_explains_is_not_the_cause() -> None:
    snapshot = world(STEP * 5, [*STEP * 3, Die(-9)], STEP * 5)
    follow = replace(error("Connection closed by peer", fatal=True), type="RuntimeError")
    judgement = diagnose(changed(snapshot, 0, with_error(follow)))
    assert judgement.verdict.cause == "rank-died"
    assert blamed(judgement) == [1]


def test_of_two_errors_the_first_is_to_blame() -> None:
    snapshot = world([*STEP * 3, Die(1)], [*STEP * 3, Die(1)], STEP * 5)
    snapshot = changed(snapshot, 0, with_error(error("second", fatal=True, at=9.0)))
    snapshot = changed(snapshot, 1, with_error(error("first", fatal=True, at=8.0)))
    assert blamed(diagnose(snapshot)) == [1]


def test_a_handled_exception_that_all_ranks_have_is_a_way_of_the_program() -> None:
    snapshot = world(STEP * 5, [*STEP * 3, Stop()])
    for rank in range(2):
        snapshot = changed(snapshot, rank, with_error(error("no module named apex")))
    assert diagnose(snapshot).verdict.cause == "rank-frozen"


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "SIGKILL"), (-11, "SIGSEGV"), (3, "exit code 3"), (None, "not known")]
)
def test_a_dead_rank_is_named_with_how_it_ended(code: int | None, words: str) -> None:
    judgement = diagnose(world(STEP * 5, [*STEP * 3, Die(code)], STEP * 5))
    assert judgement.verdict.cause == "rank-died"
    assert judgement.verdict.certainty is Certainty.PROVEN
    assert blamed(judgement) == [1]
    assert words in judgement.verdict.summary


def test_a_stopped_rank_is_frozen_and_the_fix_is_a_command() -> None:
    judgement = diagnose(world(STEP * 5, STEP * 5, [*STEP * 3, Stop()]))
    assert judgement.verdict.cause == "rank-frozen"
    assert judgement.verdict.fix == "kill -CONT 4002"
    assert judgement.status is Status.HUNG


def data_parallel(batches: int) -> Program:
    return [action for batch in range(batches) for action in (Draw(0, batch), Call(line=12, via="gradients"))]


def test_ranks_that_fail_because_one_has_ended_are_not_to_blame_for_it() -> None:
    # GIVEN a rank that ran out of data and ended well, and others that fail with "connection closed" because of it
    short = [*data_parallel(4), LoopEnd(), Leave(), Die(0)]
    snapshot = World([data_parallel(5), short, data_parallel(5)]).run().snapshot()
    gone = ProcessFacts(4001, "X", exit_code=0)
    snapshot = changed(snapshot, 1, lambda e: replace(e, process=gone, stacks=()))
    closed = replace(error("Connection closed by peer", fatal=True), type="RuntimeError")
    for rank in (0, 2):
        snapshot = changed(snapshot, rank, with_error(closed))
        failed = ProcessFacts(4000 + rank, "X", exit_code=1)
        snapshot = changed(snapshot, rank, lambda e, failed=failed: replace(e, process=failed, stacks=()))  # type: ignore[misc]

    # THEN the one that ran out of data is
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "uneven-steps"
    assert blamed(judgement) == [1]
    assert judgement.status is Status.FAILED


def test_an_abort_after_a_skipped_step_is_the_skips_fault() -> None:
    usual, odd = data_parallel(9), [*data_parallel(4), Draw(0, 4), *(Draw(0, batch) for batch in range(5, 9))]
    snapshot = World([usual, odd, usual]).run().snapshot()
    aborted = ProcessFacts(4000, "X", exit_code=-6)
    judgement = diagnose(changed(snapshot, 0, lambda e: replace(e, process=aborted, stacks=())))
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed(judgement) == [1]
    assert judgement.verdict.step.batch == 4


def test_a_failure_after_an_end_that_nobody_can_explain_blames_nobody() -> None:
    snapshot = world([Call(line=12)], [Leave(), Die(0)])
    closed = replace(error("Connection reset by peer", fatal=True), type="RuntimeError")
    snapshot = changed(snapshot, 0, with_error(closed))
    snapshot = changed(snapshot, 0, lambda e: replace(e, process=ProcessFacts(4000, "X", exit_code=1), stacks=()))
    ended = ProcessFacts(4001, "X", exit_code=0)
    judgement = diagnose(changed(snapshot, 1, lambda e: replace(e, process=ended, stacks=())))
    assert blamed(judgement) == []
    assert judgement.status is Status.FAILED


# ------------------------------------------------------------------------------------------ in code


@pytest.mark.parametrize("kind", ["socket", "lock", "sleep"])
def test_a_rank_that_blocks_in_its_own_code_is_named_with_its_line(kind: str) -> None:
    judgement = diagnose(stuck(kind))
    assert judgement.verdict.cause == "user-code-blocked"
    assert judgement.status is Status.HUNG
    assert "push (train.py:40)" in judgement.verdict.summary


def test_what_it_waits_on_is_said_where_the_system_knows() -> None:
    judgement = diagnose(stuck("socket", blocked_on=OpenFile(5, "socket 10.0.0.1:4000 -> 10.0.0.9:80")))
    assert "10.0.0.9:80" in judgement.verdict.summary


@pytest.mark.parametrize("sign", ["io", "written", "child", "moved"])
def test_a_rank_that_shows_work_is_waited_for_however_long(sign: str) -> None:
    flow = {"io": {"io_delta_bytes": 9 << 20}, "written": {"written_delta_bytes": 100 << 10}}
    snapshot = stuck("socket", **flow.get(sign, {}))
    child = ProcessEvidence("child", ProcessFacts(9, "R", cpu_delta_s=1.0))
    children = (child,) if sign == "child" else ()
    snapshot = changed(snapshot, 1, lambda e: replace(e, children=children, moved=sign == "moved"))
    assert diagnose(snapshot).status is Status.WAITING


def test_a_rank_that_waits_for_its_children_is_told_with_the_line_where_they_stand() -> None:
    # GIVEN a rank in pool.map, whose forked children stand in a lock that did not survive the fork
    inside = Frame(SCRIPT, 77, "encode")
    stack = ThreadStack(
        9, "MainThread", (inside, Frame("/usr/lib/python3.11/multiprocessing/pool.py", 48, "mapstar")), main=True
    )
    children = tuple(ProcessEvidence("child", ProcessFacts(pid, "S", cpu_delta_s=0.0), (stack,)) for pid in (91, 92))
    quoted = Excerpt(SCRIPT, 77, 76, ("def encode(i):", "    return torch.mm(a, b)"))
    snapshot = changed(stuck("lock"), 1, lambda e: replace(e, children=children))
    verdict = diagnose(replace(snapshot, excerpts=(quoted,))).verdict
    # THEN both places are named, and the code that the children stand at
    assert verdict.cause == "user-code-blocked"
    assert "it waits for its 2 child processes" in verdict.summary
    assert "encode (train.py:77)" in verdict.summary
    assert "its child process 91 stands at train.py:77 (`return torch.mm(a, b)`)" in verdict.evidence


def retrying(snapshot: Snapshot, *locks: LockFile) -> Snapshot:
    """Rank 1 has just met an error in the function in which it sleeps."""
    error = ExceptionFacts("BlockingIOError", "[Errno 11]", (Frame(SCRIPT, 39, "push"),), at=10_000.0, fatal=False)

    def met(evidence: RankEvidence) -> RankEvidence:
        reading = replace(evidence.reading, exception=error) if evidence.reading is not None else None
        return replace(evidence, reading=reading, lock_files=locks)

    return changed(snapshot, 1, met)


def test_an_error_that_is_tried_again_is_no_cause_and_the_lock_is_named_with_its_holder() -> None:
    lock = LockFile("/cache/data.lock", 4711, owner_alive=True, age_s=60.0, inferred=True)
    verdict = diagnose(retrying(stuck("sleep"), lock)).verdict
    assert verdict.cause == "user-code-blocked"
    assert "it waits for the lock file /cache/data.lock, which pid 4711 holds" in verdict.summary


def test_an_error_without_a_lock_is_the_cause() -> None:
    assert diagnose(retrying(stuck("lock"))).verdict.cause == "exception-on-one-rank"


def test_bytes_that_flow_are_said() -> None:
    judgement = diagnose(stuck("sleep", io_delta_bytes=900 << 10, written_delta_bytes=850 << 10))
    assert "it moves data (900 KiB in the last second)" in judgement.verdict.summary


def test_a_few_bytes_are_no_work() -> None:
    assert diagnose(stuck("sleep", io_delta_bytes=200 << 10, written_delta_bytes=9 << 10)).status is Status.HUNG


def test_a_checkpoint_that_moves_data_is_waited_for_and_one_that_the_kernel_blocks_hangs() -> None:
    moving = diagnose(stuck("checkpoint", io_delta_bytes=90 << 20))
    blocked = diagnose(stuck("checkpoint", blocked_on=OpenFile(4, "/nfs/model.pt", "nfs4")))
    assert moving.verdict.cause == blocked.verdict.cause == "slow-checkpoint"
    assert (moving.status, blocked.status) == (Status.WAITING, Status.HUNG)
    assert "/nfs/model.pt (nfs4)" in blocked.verdict.summary


def test_a_rank_that_compiles_is_waited_for() -> None:
    judgement = diagnose(stuck("compile", cpu_delta_s=0.9))
    assert judgement.verdict.cause == "compile-skew"
    assert judgement.status is Status.WAITING


def test_a_rank_that_runs_compiled_code_does_not_compile() -> None:
    """torch's wrappers stay on the stack while compiled code runs, and computes or waits."""
    wrapper = Frame("/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", 655, "_fn")

    def wrapped(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(
            replace(
                stack,
                frames=tuple(
                    wrapper if "_inductor" in each.file or "_dynamo" in each.file else each for each in stack.frames
                ),
            )
            for stack in entry.stacks
        )
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = stuck("compile", cpu_delta_s=0.9)
    assert diagnose(snapshot).verdict.cause == "compile-skew"
    assert diagnose(changed(snapshot, 1, wrapped)).verdict.cause != "compile-skew"


def test_a_rank_whose_c_call_keeps_the_interpreter_lock_is_told_by_its_silent_ticker() -> None:
    def silent(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        stacks = tuple(replace(stack, owns_gil=True) for stack in entry.stacks)
        reading = replace(entry.reading, ticker_at=entry.reading.taken_at - 60)
        return replace(entry, stacks=stacks, earlier_stacks=stacks, reading=reading)

    judgement = diagnose(changed(stuck("sleep"), 1, silent))
    assert judgement.verdict.cause == "gil-held"
    assert blamed(judgement) == [1]


def test_a_signal_handler_above_what_it_interrupted_is_named() -> None:
    def handling(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, handler="on_usr1") for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    judgement = diagnose(changed(stuck("lock"), 1, handling))
    assert judgement.verdict.cause == "signal-handler-deadlock"
    assert "on_usr1" in judgement.verdict.summary


def test_unacknowledged_bytes_with_everybody_present_are_the_networks_fault_and_no_ranks() -> None:
    world_ = World([STEP, STEP])
    for _ in range(2):
        for rank in range(2):
            world_.act(rank)
    socket = Socket("10.0.0.1:4000", "10.0.0.2:4001", "established", unacknowledged=65536, retransmits=7)
    snapshot = changed(world_.snapshot(), 0, lambda e: replace(e, process=replace(_process(e), sockets=(socket,))))
    verdict = diagnose(snapshot).verdict
    assert verdict.cause == "network-partition"
    assert verdict.culprits == ()
    assert "65,536 bytes" in verdict.summary


def test_nothing_is_blamed_without_evidence() -> None:
    snapshot = world(STEP * 3, [*STEP * 3, Leave()])
    bare = replace(snapshot, ranks=tuple(RankEvidence(entry.rank) for entry in snapshot.ranks))
    judgement = diagnose(bare)
    assert judgement.verdict.cause == "undetermined"
    assert judgement.verdict.culprits == ()
    assert diagnose(replace(snapshot, ranks=())).verdict.cause in ("undetermined", "rendezvous-missing-ranks")


def test_a_job_whose_ranks_have_all_ended_well_is_not_hung() -> None:
    snapshot = world([Leave()], [Leave()])
    ended = tuple(
        replace(entry, still_s=900, process=ProcessFacts(4000 + entry.rank, "X", exit_code=0), stacks=())
        for entry in snapshot.ranks
    )
    assert diagnose(replace(snapshot, ranks=ended)).status is Status.WAITING


def test_a_process_that_waits_for_a_processor_is_not_idle() -> None:
    snapshot = stuck("compile", state="R", cpu_delta_s=0.04)
    assert diagnose(snapshot).status is Status.WAITING
