"""Hosts that wait on their device: with NCCL a call only queues its work, and `.item()` has no Python frame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.judge import diagnose, worth_confirming
from hangwatch.model import Frame, RankEvidence, Snapshot, Status, ThreadStack
from tests.unit.simulator import SCRIPT, Action, Call, Draw, Leave, LoopEnd, Stall, World

ITEM = (Frame(SCRIPT, 16, "main"), Frame(SCRIPT, 99, "<module>"))
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


def test_a_host_that_waits_for_its_device_is_not_blocked_in_code_of_its_own() -> None:
    """A send, a receive or a replayed graph may keep it, of which nothing tells: it may be a victim."""
    judgement = diagnose(awaited_with_nothing_outstanding(SPINS))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("device-stall", "undetermined")
    assert judgement.verdict.culprits == ()
    assert "rank 2 waits for its device, which does not finish" in judgement.verdict.summary.lower()


def test_a_native_frame_is_asked_for_where_nothing_is_outstanding() -> None:
    snapshot = awaited_with_nothing_outstanding()
    assert 2 in [rank for rank, _ in worth_confirming(snapshot)]


def in_barrier(entry: RankEvidence, issued: int, completed: int) -> RankEvidence:
    """The same rank with its main thread in barrier, and so many collectives of its group enqueued and complete."""
    entry = on_device(entry, Frame(C10D, 4800, "barrier"), *ITEM)
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
