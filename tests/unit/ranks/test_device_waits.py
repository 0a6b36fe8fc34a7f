"""Hosts that wait on their device: with NCCL a call only queues its work, and `.item()` has no Python frame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.judge import diagnose, worth_confirming
from hangwatch.model import Frame, RankEvidence, Snapshot, Status, ThreadStack
from tests.unit.simulator import SCRIPT, Action, Call, Draw, Leave, LoopEnd, Stall, World

ITEM = (Frame(SCRIPT, 16, "main"), Frame(SCRIPT, 99, "<module>"))
ELSEWHERE = (Frame(SCRIPT, 21, "main"), Frame(SCRIPT, 99, "<module>"))
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
SPINS = Frame("libcudart.so.12", 0, "cudaStreamSynchronize", native=True)
GRADIENTS = Call(via="gradients", line=12)


def training(batches: int, *, skip: int | None = None) -> list[Action]:
    steps = ([Draw(0, batch), *(() if batch == skip else [GRADIENTS])] for batch in range(batches))
    return [*(action for step in steps for action in step), LoopEnd()]


def on_device(entry: RankEvidence, *frames: Frame) -> RankEvidence:
    """The same rank of an NCCL job, whose host spins in `loss.item()`; `frames` are its main thread's."""
    assert entry.process is not None
    assert entry.reading is not None
    stacks = (ThreadStack(1, "MainThread", frames, main=True),)
    heads = tuple(replace(head, backend="nccl") for head in entry.collectives.heads)
    return replace(
        entry,
        stacks=stacks,
        earlier_stacks=stacks,
        process=replace(entry.process, cpu_delta_s=1.0, state="R", private_wait=False),
        reading=replace(entry.reading, heads=heads, open_calls=()),
        collectives=replace(entry.collectives, heads=heads, open_calls=()),
    )


def nccl(*programs: list[Action], native: int = 99) -> Snapshot:
    """All ranks in `.item()`; of the first `native` of them a native frame was taken."""
    snapshot = World(list(programs)).run().snapshot(still_s=20.0)
    ranks = (on_device(rank, *([SPINS] if rank.rank < native else []), *ITEM) for rank in snapshot.ranks)
    return replace(snapshot, ranks=tuple(ranks))


@pytest.mark.parametrize("native", [99, 1], ids=["every rank", "one rank of that stack"])
def test_hosts_that_spin_on_their_device_wait_for_the_first_incomplete_collective(native: int) -> None:
    # GIVEN two hosts in `.item()`, and a third rank whose program has ended with a batch less
    snapshot = nccl(training(6), training(6), training(5), native=native)
    third = World([[*training(5), Leave()]]).run().snapshot().ranks[0]

    judgement = diagnose(replace(snapshot, ranks=(*snapshot.ranks[:2], ended(snapshot.ranks[2], third))))
    # THEN the two wait for its all_reduce, and nobody can move
    assert (judgement.status, judgement.verdict.hang) == (Status.HUNG, "proven")
    assert judgement.verdict.cause == "uneven-steps"
    assert [who.rank for who in judgement.verdict.culprits] == [2]
    assert judgement.verdict.victims == (0, 1)


def ended(entry: RankEvidence, like: RankEvidence) -> RankEvidence:
    """`entry` at the end of its program, as `like` stands there."""
    assert entry.process is not None
    assert entry.reading is not None
    assert like.reading is not None
    return replace(
        entry,
        stacks=like.stacks,
        earlier_stacks=like.stacks,
        process=replace(entry.process, cpu_delta_s=0.0, state="S", private_wait=True),
        reading=replace(entry.reading, phase=like.reading.phase),
    )


def awaiting_one_in_its_code(*, samples: int) -> Snapshot:
    """One rank in its own code, blocked on a socket, and two that spin in `.item()` for its all_reduce."""
    snapshot = World([training(6), training(6), [*training(3)[:-1], Stall()]]).run().snapshot(still_s=200.0)
    ranks = [*(on_device(rank, SPINS, *ITEM) for rank in snapshot.ranks[:2]), snapshot.ranks[2]]
    if samples == 1:
        ranks = [replace(rank, earlier_stacks=()) for rank in ranks]
    return replace(snapshot, ranks=tuple(ranks), sampled_twice=samples > 1)


@pytest.mark.parametrize("samples", [1, 2])
def test_spinning_in_a_wait_for_the_device_is_no_work(samples: int) -> None:
    """One sample shows the wait as well, where no counter moves; it bears no proof."""
    snapshot = awaiting_one_in_its_code(samples=samples)
    judgement = diagnose(snapshot)
    assert (judgement.status, judgement.verdict.cause) == (Status.HUNG, "user-code-blocked")
    assert [who.rank for who in judgement.verdict.culprits] == [2]
    assert {entry.certain for entry in Case(snapshot).blocked.values()} == {samples > 1}


def test_without_a_native_frame_nothing_is_proven() -> None:
    snapshot = nccl(training(6), training(5), native=0)
    assert diagnose(snapshot).verdict.hang != "proven"
    assert worth_confirming(snapshot) == [(0, snapshot.ranks[0].pid)]


def test_a_host_with_nothing_outstanding_computes() -> None:
    # GIVEN a job in which every queued call is complete
    snapshot = nccl(training(3), training(3))
    assert worth_confirming(snapshot) == []
    assert diagnose(snapshot).verdict.hang is None


def test_jobs_without_a_device_are_not_looked_into_natively() -> None:
    snapshot = World([training(6), training(5)]).run().snapshot()
    assert worth_confirming(snapshot) == []


def awaited_with_nothing_outstanding(*native: Frame) -> Snapshot:
    """Rank 2 stands in `.item()`, all its collectives are complete; the others wait for it in the next one."""
    snapshot = World([training(6), training(6), [*training(3)[:-1], Stall()]]).run().snapshot(still_s=900.0)
    ranks = [on_device(rank, SPINS, *ITEM) for rank in snapshot.ranks[:2]]
    return replace(snapshot, ranks=(*ranks, on_device(snapshot.ranks[2], *native, *ITEM)))


@pytest.mark.parametrize("messages", [0, 3])
def test_a_host_that_waits_for_its_device_is_not_blocked_in_code_of_its_own(messages: int) -> None:
    """A send or a receive may keep it, of which nothing tells how far it is: then it may be a victim."""
    snapshot = awaited_with_nothing_outstanding(SPINS)
    *others, last = snapshot.ranks
    heads = tuple(replace(head, sent=messages) for head in last.collectives.heads)
    last = replace(last, collectives=replace(last.collectives, heads=heads))
    verdict = diagnose(replace(snapshot, ranks=(*others, last))).verdict
    assert (verdict.cause, verdict.certainty) == ("device-stall", "undetermined" if messages else "likely")
    assert [each.rank for each in verdict.culprits] == ([] if messages else [2])
    assert "rank 2 waits for its device, which does not finish" in verdict.summary.lower()
    assert ("a send or receive" in " ".join(verdict.details)) is bool(messages)


def native(function: str, library: str = "libtorch_cuda.so") -> Frame:
    return Frame(library, 0, function, native=True)


JOINS = (native("accept", "libc.so.6"), native("ncclCommInitRankConfig"), native("c10d::NCCLComm::create"))
ALL_REDUCE = Frame(C10D, 2900, "all_reduce")


@pytest.mark.parametrize("frames", [(), JOINS], ids=["python frames alone", "native frames"])
def test_a_communicator_that_is_being_made_takes_a_processor_and_no_work_is_done(frames: tuple[Frame, ...]) -> None:
    """GIVEN two ranks that poll for the third member of their group; native frames are taken of one of them"""
    snapshot = World([training(1), training(1), training(0)]).run().snapshot(still_s=20.0)
    first, second, other = snapshot.ranks
    ranks = [
        with_heads(on_device(first, *frames, ALL_REDUCE, *ITEM), issued=1, completed=-1),
        with_heads(on_device(second, ALL_REDUCE, *ITEM), issued=1, completed=-1),
        with_heads(on_device(other, *ELSEWHERE), issued=0, completed=-1),
    ]
    case = Case(replace(snapshot, ranks=tuple(ranks)))
    assert [case.works(case.ranks[rank]) for rank in (0, 1)] == [not frames] * 2
    assert [case.blocked[rank].certain for rank in (0, 1)] == [bool(frames)] * 2
    assert {case.blocked[rank].need is not None for rank in (0, 1)} == {True}


def test_a_rank_whose_ticker_is_silent_may_have_completed_what_its_board_has_outstanding() -> None:
    """A C call holds its interpreter lock: its counts are those of the last tick."""
    snapshot = World([training(6), training(6), [*training(3)[:-1], Stall()]]).run().snapshot(still_s=200.0)
    *others, held = (on_device(rank, SPINS, *ITEM) for rank in snapshot.ranks)
    held = with_heads(on_device(held, native("sleep", "libc.so.6"), *ELSEWHERE), issued=2, completed=1)
    assert held.reading is not None
    fresh = replace(snapshot, ranks=(*others, replace(held, collectives=replace(held.collectives, source="board"))))
    silent = replace(held.reading, ticker_at=held.reading.taken_at - 10.0)
    stale = replace(fresh, ranks=(*others, replace(fresh.ranks[2], reading=silent)))
    assert [2 in Case(each).blocked for each in (fresh, stale)] == [True, False]
    assert Case(stale).awaited() == {2}


ENGINE = (native("c10d::Reducer::finalize_backward"), native("torch::autograd::Engine::thread_main"))
BACKWARD = Frame("/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 869, "_engine_run_backward")


@pytest.mark.parametrize("driver", ["", "cudaMemcpyAsync"])
def test_a_backward_whose_launches_find_no_room_waits_for_its_device(driver: str) -> None:
    """autograd's own thread stands in the driver, for the one that called backward, and is no second one that trains"""
    snapshot = nccl(training(6), training(5))
    entry = on_device(snapshot.ranks[0], native("pthread_cond_wait", "libc.so.6"), BACKWARD, *ITEM)
    inner = (native(driver, "libcudart.so.13"),) if driver else ()
    threads = (*entry.stacks, ThreadStack(2, "", (*inner, *ENGINE)))
    entry = replace(entry, stacks=threads, earlier_stacks=threads)
    case = Case(replace(snapshot, ranks=(entry, snapshot.ranks[1])))
    assert not case.ranks[0].threads[1].in_collective
    assert case.works(case.ranks[0]) is (not driver)
    assert not case.blocked[0].certain  # a moment in the driver is no proof


def test_calls_that_take_a_processor_are_looked_into() -> None:
    destroys = Frame(C10D, 2319, "destroy_process_group")
    snapshot = nccl(training(6), training(5), native=0)
    ranks = [on_device(rank, frame, *ITEM) for rank, frame in zip(snapshot.ranks, (destroys, BACKWARD), strict=True)]
    assert len(worth_confirming(replace(snapshot, ranks=tuple(ranks)))) == 2


def test_a_native_frame_is_asked_for_where_nothing_is_outstanding() -> None:
    snapshot = awaited_with_nothing_outstanding()
    assert 2 in [rank for rank, _ in worth_confirming(snapshot)]


def in_barrier(entry: RankEvidence, issued: int, completed: int) -> RankEvidence:
    """The same rank with its main thread in barrier, and so many collectives of its group enqueued and complete."""
    return with_heads(on_device(entry, Frame(C10D, 4800, "barrier"), *ITEM), issued, completed)


def with_heads(entry: RankEvidence, issued: int, completed: int) -> RankEvidence:
    """The same rank with so many collectives of its groups enqueued and complete."""
    heads = tuple(replace(head, issued=issued, completed=completed) for head in entry.collectives.heads)
    assert entry.reading is not None
    return replace(
        entry,
        reading=replace(entry.reading, heads=heads),
        collectives=replace(entry.collectives, heads=heads),
    )


@pytest.mark.parametrize(
    ("issued", "completed", "waits"),
    [(7, 7, False), (7, 6, True), (7, -1, True), (0, 0, True)],
    ids=["complete", "one open", "not known", "nothing yet, as in the set-up"],
)
def test_a_rank_whose_queues_are_complete_is_about_to_leave_its_call(issued: int, completed: int, waits: bool) -> None:
    snapshot = nccl(training(7), training(7))
    ranks = {rank.rank: in_barrier(rank, issued, completed) for rank in snapshot.ranks}
    case = Case(replace(snapshot, ranks=tuple(ranks.values())))
    assert (0 in case.blocked) == waits
