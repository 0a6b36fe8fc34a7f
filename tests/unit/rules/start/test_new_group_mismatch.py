"""`new-group-mismatch`: new_group was not called alike everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Collectives, ExceptionFacts, Frame, GroupHead, Phase, Progress, RankEvidence
from tests.unit.job import (
    C10D,
    IN_BARRIER,
    IN_CODE,
    IN_NEW_GROUP,
    SCRIPT,
    blamed,
    frames,
    judge,
    made,
    main_thread,
    member,
    told,
)
from tests.unit.simulator import Call, Draw, World

IN_BROADCAST = frames((C10D, 3145, "broadcast"))


def test_different_lists() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_BARRIER, (made(1, 0, 2, line=22),)),
        member(2, IN_BARRIER, (made(1, 0, 1),)),
    )
    assert told(judgement) == ("new-group-mismatch", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 22, "main")
    assert "call 1 was made with ranks 0 and 2 [0, 1] and rank 1 [0, 2]" in judgement.verdict.summary


def test_a_mesh_of_another_shape_is_mended_where_the_mesh_is_made() -> None:
    mesh = Frame("/site-packages/torch/distributed/device_mesh.py", 290, "DeviceMesh._init_process_groups")
    in_mesh = (*IN_NEW_GROUP[:3], mesh, *IN_NEW_GROUP[3:])
    others = (member(1, IN_BARRIER, (made(1, 0, 2, line=22),)), member(2, IN_BARRIER, (made(1, 0, 1),)))
    plain, of_mesh = (
        judge(member(0, stack, (made(1, 0, 1, done=False),), phase=Phase.GROUP), *others).verdict.fix
        for stack in (IN_NEW_GROUP, in_mesh)
    )
    assert "outside of any if" in plain
    assert of_mesh.startswith("make the mesh of the same shape and names on every rank")


def test_without_a_majority_both_sides_are_named() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_NEW_GROUP, (made(1, 1, 2, done=False),), phase=Phase.GROUP),
    )
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}


def test_a_member_that_never_called_it() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP),
        member(1, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP),
        member(2, IN_BARRIER),
    )
    assert told(judgement) == ("new-group-mismatch", "proven", "hung")
    assert blamed(judgement) == [(2, 102, "rank")]


def test_a_member_that_is_only_late() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_CODE, patience_s=120.0),
        member(2, IN_BARRIER),
    )
    assert told(judgement) == ("user-code-blocked", "likely", "waiting")
    assert blamed(judgement) == [(1, 101, "rank")]


def test_equal_calls_are_no_mismatch() -> None:
    ranks = [member(number, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP) for number in range(3)]
    assert judge(*ranks).verdict.cause != "new-group-mismatch"


@pytest.mark.parametrize(("ranks", "who"), [(2, []), (3, [(0, "rank")])])
def test_a_call_in_the_middle_of_a_training_that_goes_on_elsewhere(ranks: int, who: list[tuple[int, str]]) -> None:
    """GIVEN a training, WHEN one rank makes a group where the others go on as in all steps before, THEN these are not
    to blame for it: the one is, and of two halves none."""
    steps = [each for batch in range(6) for each in (Draw(0, batch), Call("all_reduce", line=20))]
    alone = [*steps, Call("barrier", line=30)]
    programs = [alone, *([*steps, Draw(0, 6), Call("all_reduce", line=20)] for _ in range(1, ranks))]
    snapshot = World(programs).run().snapshot()
    first, *others = snapshot.ranks
    assert first.reading is not None
    inside = made(1, *range(ranks), done=False, line=30)
    reading = replace(first.reading, groups_made=(*first.reading.groups_made, inside), phase=Phase.GROUP)
    stuck = (main_thread(IN_NEW_GROUP),)
    first = replace(first, reading=reading, stacks=stuck, earlier_stacks=stuck)
    judgement = diagnose(replace(snapshot, ranks=(first, *others)))
    assert told(judgement) == ("new-group-mismatch", "likely", "hung")
    assert [(rank, kind) for rank, _, kind in blamed(judgement)] == who
    assert judgement.verdict.summary.endswith("is not known.") == (not who)


def test_a_group_that_its_members_alone_have_made_was_left_out_by_the_others() -> None:
    ranks = [
        member(number, IN_NEW_GROUP, (made(1, 0, 1), made(2, 0, 1, 2, 3, done=False)), phase=Phase.GROUP)
        for number in (0, 1)
    ]
    others = [member(number, IN_NEW_GROUP, (made(1, 0, 1, 2, 3, done=False),), phase=Phase.GROUP) for number in (2, 3)]
    judgement = judge(*ranks, *others, world_size=4)
    assert told(judgement)[0] == "new-group-mismatch"
    assert [rank for rank, _, _ in blamed(judgement)] == [2, 3]
    assert "Ranks 2-3 did not call new_group([0, 1]), of which they are no members" in judgement.verdict.summary


def test_a_group_that_the_others_made_in_another_order_was_not_left_out() -> None:
    in_order = (made(1, 0, 2), made(2, 0, 1, done=False))
    reverse = (made(1, 0, 1), made(2, 1, 2), made(3, 0, 2))
    ranks = (
        member(0, IN_NEW_GROUP, in_order, phase=Phase.GROUP),
        member(1, IN_BARRIER, reverse),
        member(2, IN_BARRIER, (made(1, 0, 2), made(2, 1, 2), made(3, 0, 1))),
    )
    verdict = judge(*ranks).verdict
    assert (verdict.cause, [each.rank for each in verdict.culprits]) == ("new-group-mismatch", [1])
    assert "call 1 was made with ranks 0 and 2 [0, 2] and rank 1 [0, 1]" in verdict.summary
    assert "did not call" not in verdict.summary


def test_where_each_made_only_the_group_that_it_is_a_member_of_all_are_named() -> None:
    ranks = [
        member(number, IN_NEW_GROUP, (made(1, *((0, 1) if number < 2 else (2, 3)), done=False),), phase=Phase.GROUP)
        for number in range(4)
    ]
    assert [rank for rank, _, _ in blamed(judge(*ranks, world_size=4))] == [0, 1, 2, 3]


def test_groups_of_different_ranks_that_got_one_name_may_be_connected_with_each_other() -> None:
    """GIVEN ranks that made only the group of their own, and came out of new_group."""

    def inside(number: int) -> RankEvidence:
        own = (0, 1) if number < 2 else (2, 3)
        found = member(number, IN_BARRIER if number in (1, 2) else IN_BROADCAST, (made(1, *own),))
        heads = (GroupHead("0", (0, 1, 2, 3), "", "gloo", 3, 3), GroupHead("1", own, "", "gloo", 1, 0))
        assert found.reading is not None
        return replace(found, reading=replace(found.reading, heads=heads), collectives=Collectives(heads))

    judgement = judge(*map(inside, range(4)), world_size=4)
    assert told(judgement)[:2] == ("new-group-mismatch", "likely")
    assert "Both groups are called 1" in judgement.verdict.summary


@pytest.mark.parametrize("trained", [False, True])
def test_ranks_that_failed_in_groups_of_one_name_before_their_first_step(trained: bool) -> None:
    def failed(number: int) -> RankEvidence:
        own, frame = (0, 1) if number < 2 else (2, 3), Frame(SCRIPT, 30, "main")
        error = ExceptionFacts("RuntimeError", "Connection closed by peer", (frame,), "MainThread", fatal=True)
        progress = Progress(step=3 if trained else -1)
        return member(number, IN_CODE, (made(1, *own),), phase=Phase.FAILED, exception=error, progress=progress)

    judgement = judge(*map(failed, range(4)), world_size=4)
    assert (told(judgement)[0] == "new-group-mismatch") is not trained
    if not trained:
        assert (told(judgement), len(blamed(judgement))) == (("new-group-mismatch", "likely", "failed"), 4)
        assert "; all ranks failed" in judgement.verdict.summary
