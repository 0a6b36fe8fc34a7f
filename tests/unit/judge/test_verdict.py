"""Is the job dead, and what is the cause? Two answers, and neither lends its word to the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.witness import Kind, Witness, weigh
from hangwatch.judge import diagnose
from hangwatch.model import (
    Certainty,
    Collective,
    Frame,
    GroupHead,
    Job,
    Judgement,
    Phase,
    RankEvidence,
    Snapshot,
    Status,
    ThreadStack,
)
from hangwatch.stacks.frames import origin
from tests.unit.rules.step.worlds import world
from tests.unit.simulator import SCRIPT, STDLIB, TORCH, Action, Call, Draw, Leave, LoopEnd, Peer, Stall, Work, World

Program = list[Action]
END: Program = [Call("barrier", line=88)]
GRADIENTS = (Call(via="gradients", line=12), Call(via="gradients", line=12))


def epoch(number: int, batches: int, *, skip: int | None = None) -> Program:
    actions: Program = []
    for batch in range(batches):
        actions += [Draw(number, batch), *(() if batch == skip else GRADIENTS)]
    return [*actions, LoopEnd()]


def judged(*programs: Program) -> Judgement:
    return diagnose(World(list(programs)).run().snapshot())


def changed(snapshot: Snapshot, *ranks: RankEvidence) -> Snapshot:
    by_rank = {rank.rank: rank for rank in ranks}
    return replace(snapshot, ranks=tuple(by_rank.get(rank.rank, rank) for rank in snapshot.ranks))


def answers(judgement: Judgement) -> tuple[str, str, str, list[int | None]]:
    verdict = judgement.verdict
    return verdict.hang or "", verdict.cause, verdict.certainty, [who.rank for who in verdict.culprits]


# ------------------------------------------------------------------------------------------ witnesses


@pytest.mark.parametrize(
    ("heard", "certainty"),
    [
        ([], "undetermined"),
        ([(Kind.FACT, True)], "proven"),
        ([(Kind.MAJORITY, True)], "likely"),
        ([(Kind.MAJORITY, True), (Kind.MAJORITY, True)], "likely"),
        ([(Kind.MAJORITY, True), (Kind.HABIT, True)], "proven"),
        ([(Kind.MAJORITY, True), (Kind.HABIT, True), (Kind.PLACE, False)], "likely"),
        ([(Kind.MAJORITY, True), (Kind.PLACE, False)], "undetermined"),
        ([(Kind.PLACE, False)], "undetermined"),
        ([(Kind.FACT, True), (Kind.PLACE, False)], "undetermined"),
    ],
)
def test_a_cause_is_as_certain_as_its_witnesses(heard: list[tuple[Kind, bool]], certainty: str) -> None:
    assert weigh(Witness(kind, "so it was", agrees) for kind, agrees in heard) == certainty


# ------------------------------------------------------------------------------------------ the cause


@pytest.mark.parametrize("ranks", [3, 4, 6])
def test_most_ranks_skipped_a_call_and_the_one_that_made_it_is_innocent(ranks: int) -> None:
    # GIVEN a job in which all ranks but one leave out a call that all of them made in earlier steps
    usual, short = [*epoch(0, 8), *END], [*epoch(0, 8, skip=6), *END]

    # WHEN it hangs
    judgement = judged(usual, *[short] * (ranks - 1))

    # THEN the job is dead for certain; what the majority did speaks against the cause, so that it is only likely
    assert answers(judgement) == ("proven", "skipped-collective", "likely", list(range(1, ranks)))
    assert [line for line in judgement.verdict.evidence if line.startswith("against it: most ranks agree")]


@pytest.mark.parametrize(("ranks", "culprit"), [(2, 0), (2, 1), (4, 3)])
def test_habit_and_call_sites_prove_a_skipped_call_of_two_ranks_too(ranks: int, culprit: int) -> None:
    usual, short = [*epoch(0, 8), *END], [*epoch(0, 8, skip=6), *END]
    judgement = judged(*(short if rank == culprit else usual for rank in range(ranks)))
    assert answers(judgement) == ("proven", "skipped-collective", "proven", [culprit])


def test_a_first_call_of_one_of_two_ranks_is_not_proven_to_be_its_own() -> None:
    # GIVEN a call that only one of two ranks makes, for the first time: the other may have left it out
    usual, odd = [*epoch(0, 8), *END], [*epoch(0, 8)[:-1], Call("all_gather", line=30), LoopEnd(), *END]
    judgement = judged(usual, odd)
    assert judgement.verdict.hang == "proven"
    assert judgement.verdict.certainty is not Certainty.PROVEN


def test_a_rank_guarded_save_between_two_loops_is_no_end_of_the_training() -> None:
    # GIVEN rank 0 that saves alone after its first epoch, outside of every loop, and rank 1 in the second one
    save = Call("all_gather", line=23, function="save")
    world = World([[*epoch(0, 8), save, *epoch(1, 8), *END], [*epoch(0, 8), *epoch(1, 8), *END]])
    snapshot = world.run().snapshot()
    guard = {0: "rank", 1: "none"}
    ranks = [
        replace(
            rank,
            stacks=tuple(replace(stack, guard=guard[rank.rank], in_loop=rank.rank == 1) for stack in rank.stacks),
        )
        for rank in snapshot.ranks
    ]

    judgement = diagnose(changed(snapshot, *ranks))

    assert answers(judgement) == ("proven", "rank-zero-only-collective", "proven", [0])


# ------------------------------------------------------------------------------------------ the hang


def test_a_dead_job_is_argued_and_says_nothing_of_the_cause() -> None:
    judgement = judged([*epoch(0, 8), *END], [*epoch(0, 5), *END])
    assert judgement.verdict.hang is Certainty.PROVEN
    assert "rank 0 waits in all_reduce 11 of group 0 (train.py:12)" in judgement.verdict.argument[0]
    assert "cannot complete without rank 1" in judgement.verdict.argument[0]


def test_a_job_that_is_not_called_hung_has_no_answer_to_that_question() -> None:
    judgement = judged([Work(100_000), *END], END)
    assert (judgement.status, judgement.verdict.hang, judgement.verdict.argument) == (Status.WAITING, None, ())


def in_thread(snapshot: Snapshot, rank: int, *frames: Frame, name: str = "uploader") -> Snapshot:
    """The same evidence with one more thread on `rank`."""
    entry, thread = snapshot.ranks[rank], ThreadStack(77, name, frames)
    return changed(
        snapshot, replace(entry, stacks=(*entry.stacks, thread), earlier_stacks=(*entry.earlier_stacks, thread))
    )


def test_a_background_thread_of_the_user_may_still_issue_the_missing_call() -> None:
    # GIVEN two ranks in calls that do not fit, and a thread on rank 1 that has issued nothing so far
    snapshot = World([epoch(0, 4), [*epoch(0, 3)[:-1], Call("barrier", line=40)]]).run().snapshot()
    assert diagnose(snapshot).verdict.hang == "proven"

    uploading = in_thread(snapshot, 1, Frame(SCRIPT, 60, "upload"))
    judgement = diagnose(uploading)

    # THEN the job is not called dead: that thread may make the call
    assert judgement.verdict.hang is not Certainty.PROVEN
    assert judgement.verdict.certainty is not Certainty.PROVEN


def test_a_thread_of_a_library_that_sleeps_does_not_speak_against_a_proof() -> None:
    snapshot = World([epoch(0, 4), [*epoch(0, 3)[:-1], Call("barrier", line=40)]]).run().snapshot()
    monitor = in_thread(
        snapshot,
        1,
        Frame(f"{STDLIB}/threading.py", 324, "wait"),
        Frame("/venv/lib/python3.12/site-packages/tqdm/_monitor.py", 60, "run"),
        name="tqdm_monitor",
    )
    assert diagnose(monitor).verdict.hang == "proven"


def test_a_thread_that_outlives_the_main_program_may_come_to_the_barrier() -> None:
    # GIVEN rank 1 whose main thread has ended, and whose own thread uploads before it calls the barrier
    snapshot = World([[*epoch(0, 2), *END], [*epoch(0, 2), Leave(Phase.MAIN_DONE)]]).run().snapshot()
    judgement = diagnose(in_thread(snapshot, 1, Frame(SCRIPT, 60, "upload")))
    assert judgement.verdict.hang is None
    assert judgement.verdict.certainty is not Certainty.PROVEN


def test_a_group_of_two_backends_does_not_make_ranks_absent_from_their_own_call() -> None:
    # GIVEN all ranks inside one all_reduce on the processor, while their counts are those of the other backend
    world = World([[Call("all_reduce", line=20)], [Work(3), Call("all_reduce", line=20)]])
    snapshot = world.run(rounds=2).snapshot()
    call = Collective("0", 5, "all_reduce", thread_name="MainThread", frames=(Frame(SCRIPT, 20, "main"),))
    head = GroupHead("0", (0, 1), backend="cpu:gloo,cuda:nccl", issued=2, completed=2)
    stack = (Frame(f"{TORCH}/distributed/distributed_c10d.py", 2900, "all_reduce"), Frame(SCRIPT, 20, "main"))
    stacks = (ThreadStack(1, "MainThread", stack, main=True),)
    ranks = [
        replace(
            rank,
            stacks=stacks,
            earlier_stacks=stacks,
            collectives=replace(rank.collectives, heads=(head,), open_calls=(call,), recent=()),
            reading=replace(rank.reading, heads=(head,), open_calls=(call,)) if rank.reading else None,
        )
        for rank in snapshot.ranks
    ]
    assert diagnose(changed(snapshot, *ranks)).verdict.hang is None


@pytest.mark.parametrize("known", [False, True], ids=["computes or reads", "sleeps for its own threads"])
def test_little_processor_time_in_backward_is_no_proof_of_a_wait(known: bool) -> None:
    # GIVEN ranks that stand in backward with buckets on their way in two groups, in another order on each
    groups = {"a": [(0, 1)], "b": [(0, 1)]}
    programs = [[Call(via="gradients", group=name)] for name in ("a", "b")]
    snapshot = World(programs, groups).run().snapshot()
    ranks = [
        replace(rank, process=replace(rank.process, private_wait=known) if rank.process else None)
        for rank in snapshot.ranks
    ]
    assert (diagnose(changed(snapshot, *ranks)).verdict.hang == "proven") is known


def test_a_call_that_raises_by_itself_is_not_dead() -> None:
    # GIVEN rank 0 in monitored_barrier, which raises after its timeout, and rank 1 in another call
    snapshot = World([[Call("barrier", line=20)], [Call("all_gather", line=30)]]).run().snapshot()
    frames = (Frame(f"{TORCH}/distributed/distributed_c10d.py", 5500, "monitored_barrier"), Frame(SCRIPT, 20, "main"))
    stacks = (ThreadStack(1, "MainThread", frames, main=True),)
    judgement = diagnose(changed(snapshot, replace(snapshot.ranks[0], stacks=stacks, earlier_stacks=stacks)))
    assert judgement.verdict.hang is not Certainty.PROVEN


def sent(snapshot: Snapshot, rank: int, *calls: Collective) -> Snapshot:
    """The same evidence with sends and receives in the ring of `rank`."""
    entry = snapshot.ranks[rank]
    assert entry.reading is not None
    return changed(snapshot, replace(entry, reading=replace(entry.reading, calls=calls)))


def test_sends_on_their_way_release_the_receiver() -> None:
    # GIVEN two ranks that have each begun to send to the other, and wait for what is on its way
    snapshot = World([[Peer("recv", 1)], [Peer("recv", 0)]]).run().snapshot()
    assert diagnose(snapshot).verdict.cause == "point-to-point-deadlock"

    for rank in (0, 1):
        snapshot = sent(snapshot, rank, Collective("0", 1, "send", peer=1 - rank, thread_name="MainThread"))
    judgement = diagnose(snapshot)

    assert judgement.verdict.hang is None
    assert judgement.verdict.cause != "point-to-point-deadlock"


def test_a_send_that_an_earlier_receive_has_taken_releases_no_rank() -> None:
    # GIVEN one send that was received before, and a second receive for which nothing was ever sent
    snapshot = World([[Peer("recv", 1)], [Peer("recv", 0)]]).run().snapshot()
    one = Collective("0", 1, "send", peer=0, thread_name="MainThread")
    first = Collective("0", 0, "recv", peer=1, thread_name="MainThread")
    snapshot = sent(sent(snapshot, 1, one), 0, first)
    assert diagnose(snapshot).verdict.hang == "proven"


# ------------------------------------------------------------------------------------------ places


@pytest.mark.parametrize(
    "file",
    [
        "/tmp/torchinductor_ann/ab/cabcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrstuvw.py",
        "/scratch/cache/ab/cabcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrstuvw.py",
    ],
)
def test_what_inductor_has_written_is_not_the_users_code(file: str) -> None:
    assert origin(file) == "torch"
    assert origin("/home/ann/ab/custom.py") == "user"


def test_a_rank_that_stalls_in_its_own_code_is_awaited_and_not_called_dead_at_once() -> None:
    judgement = judged([*epoch(0, 4), *END], [*epoch(0, 2)[:-1], Stall(kind="lock")])
    assert (judgement.status, judgement.verdict.hang) == (Status.WAITING, None)


def test_ranks_without_a_stack_are_said_to_have_none() -> None:
    snapshot = Snapshot(Job("j", "j", 2), 1000.0, tuple(RankEvidence(rank, "node-a") for rank in range(2)))
    assert diagnose(snapshot).verdict.summary == (
        "Nothing moves, and the cause is not known: no stack was captured for any rank."
    )


def test_for_whom_most_ranks_wait_is_said_where_the_cause_is_not_known() -> None:
    """Three ranks wait in backward for one that is in its backward as well, and has not come to that call."""
    snapshot = World([*[epoch(0, 4)] * 3, [*epoch(0, 4)[:-3], Stall()]]).run().snapshot()
    behind = replace(snapshot.ranks[3], stacks=snapshot.ranks[0].stacks, earlier_stacks=())
    judgement = diagnose(replace(snapshot, ranks=(*snapshot.ranks[:3], behind)))
    assert judgement.verdict.cause == "undetermined"
    assert "Ranks 0-2 wait for rank 3 in all_reduce 7 of group 0 (train.py:12)" in judgement.verdict.summary


# ------------------------------------------------------------------------------------------ who waits where


def test_each_victim_is_said_to_wait_in_its_own_call() -> None:
    """GIVEN a rank in its own code WHEN two wait for it in a call of all ranks, and one in another group's."""
    tp, dp = Call(group="tp", line=13), Call(line=14)
    turns = [tp, dp] * 4
    programs: list[Program] = [[*turns, tp, dp], [*turns, tp, dp], [*turns, tp], [*turns, Stall(kind="code")]]
    waits = diagnose(world(*programs, groups={"tp": [(0, 1), (2, 3)]})).verdict.waits
    assert [(edge.waiting, edge.awaited, edge.what) for edge in waits] == [
        ((0, 1), (3,), "all_reduce 5 of group 0"),
        ((2,), (3,), "all_reduce 5 of group tp"),
    ]
