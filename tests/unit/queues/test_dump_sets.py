"""Sets of dumps as jobs would leave them: what is wrong by cause, rank, number and line, or that all is well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Status, Verdict
from hangwatch.queues import Assessment
from tests.dump_programs import (
    BARRIER,
    BUCKETS,
    LOSS,
    STEP,
    TURN,
    around,
    around_one_by_one,
    crossed,
    differs,
    gathers,
    hybrid,
    hybrid_groups,
    mesh_turn,
    on_mesh,
    pipe,
    pipeline,
    soon,
)
from tests.dump_world import Call, JobDumps, Join, Stop, StuckKernel, Sync, every

AWAITED = {"undetermined"}  # a rank's record does not tell what its host does
WIRE = {"interconnect-stall"}
MISMATCH = {"collective-mismatch", "skipped-collective"}


@dataclass(frozen=True)
class Case:
    """`ranks` are the ranks to name, or several answers that are right; `number` and `lines` must be told."""

    job: Callable[[], JobDumps]
    causes: set[str]
    ranks: tuple[tuple[int, ...], ...] = ((),)
    number: int | None = None
    lines: tuple[int, ...] = ()
    as_json: bool = False


HUNG: dict[str, Case] = {
    "uneven steps": Case(lambda: JobDumps(every(4, STEP * 10, {3: STEP * 9})), AWAITED, ((3,),), 28, (71,)),
    "uneven steps, untimed": Case(
        lambda: JobDumps(every(4, STEP * 10, {3: STEP * 9}), timed=False), AWAITED, ((3,),), 28, (71,)
    ),
    "uneven steps, JSON": Case(
        lambda: JobDumps(every(8, STEP * 10, {5: STEP * 9})), AWAITED, ((5,),), 28, as_json=True
    ),
    "uneven steps, the oldest format": Case(
        lambda: JobDumps(every(4, STEP * 10, {0: STEP * 9}), version="2.2", status=False, timed=False),
        AWAITED,
        ((0,),),
        28,
    ),
    "uneven steps of 64 ranks": Case(lambda: JobDumps(every(64, STEP * 6, {41: STEP * 5})), AWAITED, ((41,),), 16),
    "uneven steps, given up": Case(
        lambda: JobDumps(every(4, STEP * 10, {3: STEP * 9}), given_up=True), AWAITED, ((3,),), 28
    ),
    "uneven steps of two ranks": Case(
        lambda: JobDumps(every(2, STEP * 10, {1: STEP * 9})), AWAITED, ((), (1,)), 28, (71,)
    ),
    "uneven steps on gloo": Case(
        lambda: JobDumps(every(4, STEP * 10, {3: STEP * 9}), backend="gloo"), AWAITED, ((3,),), 28
    ),
    "uneven steps without groups": Case(
        lambda: JobDumps(every(4, STEP * 10, {3: STEP * 9}), config=False, status=False), AWAITED, ((3,),), 28
    ),
    "uneven steps without frames": Case(
        lambda: JobDumps(every(4, STEP * 10, {3: STEP * 9}), frames=False), AWAITED, ((3,),), 28
    ),
    "skipped backward": Case(
        lambda: JobDumps(every(8, TURN * 8, {6: [*TURN * 3, *LOSS, *TURN * 5]})), MISMATCH, ((6,),), 13, (80,)
    ),
    "an all_reduce on rank 0 only": Case(
        lambda: JobDumps(every(4, TURN * 6, {0: [*TURN * 3, Call("all_reduce", 131, 1, dtype="Float"), *TURN * 3]})),
        {"collective-mismatch", "rank-zero-only-collective"},
        ((0,),),
        13,
        (131,),
    ),
    "a gather on rank 0 only": Case(
        lambda: JobDumps(every(8, TURN * 6, {0: [*TURN * 3, Call("_all_gather_base", 150, 64, out=512), *TURN * 3]})),
        {"collective-mismatch", "rank-zero-only-collective"},
        ((0,),),
        13,
        (150,),
    ),
    "early exit to a barrier": Case(
        lambda: JobDumps(every(4, [*STEP * 6, *BARRIER], {1: [*STEP * 4, *BARRIER]})),
        {"uneven-steps"},
        ((1,),),
        13,
        (99,),
    ),
    "another size": Case(
        lambda: differs(Call("all_reduce", 200, 512), Call("all_reduce", 200, 500)), MISMATCH, ((3,),), 13, (200,)
    ),
    "another size, half against half": Case(
        lambda: JobDumps(
            {rank: [*TURN * 3, Call("all_reduce", 200, 512 if rank < 2 else 500), Sync()] for rank in range(4)}
        ),
        MISMATCH,
        ((0, 1, 2, 3), ()),
        13,
        (200,),
    ),
    "another type": Case(
        lambda: differs(Call("all_reduce", 201, 512), Call("all_reduce", 201, 512, dtype="Float")),
        MISMATCH,
        ((3,),),
        13,
    ),
    "another operation": Case(
        lambda: differs(Call("_all_gather_base", 202, 64, out=512), Call("_reduce_scatter_base", 203, 512, out=64)),
        MISMATCH,
        ((3,),),
        13,
        (203,),
    ),
    "another split of an all_to_all": Case(
        lambda: differs(Call("all_to_all", 206, 100), Call("all_to_all", 206, 90, out=100)), MISMATCH, ((), (3,)), 13
    ),
    "two calls in the other order": Case(
        lambda: JobDumps(
            every(
                4,
                [*TURN * 3, Call("all_reduce", 700, 5), Call("all_reduce", 701, 6), Sync()],
                {1: [*TURN * 3, Call("all_reduce", 701, 6), Call("all_reduce", 700, 5), Sync()]},
            )
        ),
        {"collective-mismatch"},
        ((1,),),
        13,
        (700,),
    ),
    "another root, which no record tells": Case(
        lambda: JobDumps(every(4, [*TURN * 3, Call("broadcast", 205), Sync()]), broken={"world": 13}), WIRE, ((),), 13
    ),
    "crossed groups": Case(
        lambda: on_mesh(4, 4, lambda rank: crossed(rank, 4, 4, (6, 9))), {"group-order-cycle"}, ((6, 9),), None, (300,)
    ),
    "crossed groups, untimed": Case(
        lambda: on_mesh(4, 4, lambda rank: crossed(rank, 4, 4, (6, 9)), timed=False),
        {"group-order-cycle"},
        ((6, 9),),
    ),
    "absent from a mesh": Case(
        lambda: on_mesh(4, 4, lambda rank: mesh_turn(rank, 4, 4) * 3 if rank == 9 else None), AWAITED, ((9,),)
    ),
    "a replica without data": Case(
        lambda: on_mesh(4, 4, lambda rank: mesh_turn(rank, 4, 4) * 3 if rank // 4 == 2 else None),
        AWAITED,
        ((8, 9, 10, 11),),
        4,
        (310,),
    ),
    "two absent from two groups": Case(
        lambda: on_mesh(4, 4, lambda rank: mesh_turn(rank, 4, 4) * 3 if rank in (2, 7) else None), AWAITED, ((2, 7),)
    ),
    "a stuck kernel on a mesh": Case(
        lambda: on_mesh(
            4, 4, lambda rank: [*mesh_turn(5, 4, 4) * 2, StuckKernel(), *mesh_turn(5, 4, 4)] if rank == 5 else None
        ),
        {"device-stall"},
        ((5,),),
        3,
    ),
    "a stuck kernel": Case(
        lambda: JobDumps(every(8, STEP * 5, {5: [*STEP * 3, StuckKernel(), *STEP * 2]})),
        {"device-stall"},
        ((5,),),
        10,
        (71,),
    ),
    "a stuck kernel, untimed": Case(
        lambda: JobDumps(every(8, STEP * 5, {5: [*STEP * 3, StuckKernel(), *STEP * 2]}), timed=False), WIRE, ((),), 10
    ),
    "hosts far ahead of a stuck kernel": Case(
        lambda: JobDumps(every(8, [*BUCKETS, Join()] * 5, {5: [*[*BUCKETS, Join()] * 3, StuckKernel(), *STEP]})),
        {"device-stall"},
        ((5,),),
        10,
    ),
    "a frozen host": Case(
        lambda: JobDumps(every(8, TURN * 6, {2: [*TURN * 4, BUCKETS[0], Stop()]})), AWAITED, ((2,),), 18
    ),
    "all wait for a slow rank 0": Case(
        lambda: JobDumps(every(8, [*TURN * 3, *BARRIER], {0: [*TURN * 3, Stop()]})), AWAITED, ((0,),), 13, (99,)
    ),
    "no dump of ranks that died": Case(
        lambda: JobDumps(every(8, TURN * 6, {rank: [*TURN * 4, Stop()] for rank in (6, 7)}), silent=(6, 7)),
        AWAITED,
        ((6, 7),),
        17,
    ),
    "no dump of an innocent rank": Case(
        lambda: JobDumps(every(8, TURN * 6, {5: [*TURN * 4, Stop()]}), silent=(3,)), AWAITED, ((5,),), 17
    ),
    "one dump only": Case(
        lambda: JobDumps(every(8, TURN * 6, {5: [*TURN * 4, Stop()]}), silent=(0, 1, 2, 3, 5, 6, 7)), AWAITED, ((),), 17
    ),
    "a rank that issued nothing": Case(lambda: JobDumps(every(4, TURN * 2, {3: [Stop()]})), AWAITED, ((3,),), 1),
    "a rank that issued nothing, JSON": Case(
        lambda: JobDumps(every(4, TURN * 2, {3: [Stop()]})), AWAITED, ((3,),), 1, as_json=True
    ),
    "a ring that has lost most": Case(
        lambda: JobDumps(every(4, TURN * 60, {2: [*TURN * 50, Stop()]}), window=40), AWAITED, ((2,),), 201
    ),
    "rings that share no number": Case(
        lambda: JobDumps(every(4, [*BUCKETS, Join()] * 100, {2: [*[*BUCKETS, Join()] * 50, Stop()]}), window=40),
        AWAITED,
        ((2,),),
        151,
    ),
    "rings that share no number, without status": Case(
        lambda: JobDumps(
            every(4, [*BUCKETS, Join()] * 100, {2: [*[*BUCKETS, Join()] * 50, Stop()]}), window=40, status=False
        ),
        AWAITED,
        ((2,),),
        151,
    ),
    "a receive without its send": Case(
        lambda: pipe({1: pipeline(1, 4, without=("send", 3))}), AWAITED, ((1,),), None, (400,)
    ),
    "a send without its receive": Case(
        lambda: pipe({2: pipeline(2, 4, without=("recv", 3))}), AWAITED, ((2,),), None, (410,)
    ),
    "a stuck kernel in a pipeline": Case(
        lambda: pipe({2: [*pipeline(2, 2)[:-1], StuckKernel(), *pipeline(2, 2)]}), {"device-stall"}, ((2,),)
    ),
    "two ranks that both send first": Case(
        lambda: JobDumps(
            {rank: [Call("send", 420, 8, peer=1 - rank), Call("recv", 421, 8, peer=1 - rank)] for rank in range(2)}
        ),
        {"point-to-point-deadlock"},
        ((0, 1),),
        None,
        (420,),
    ),
    "four ranks that all send first": Case(
        lambda: JobDumps({rank: around_one_by_one(rank) for rank in range(4)}),
        {"point-to-point-deadlock"},
        ((0, 1, 2, 3),),
        None,
        (420,),
    ),
    "four ranks that all send first, untimed": Case(
        lambda: JobDumps({rank: around_one_by_one(rank) for rank in range(4)}, timed=False),
        {"point-to-point-deadlock"},
        ((0, 1, 2, 3),),
    ),
    "a batch that one rank left out": Case(
        lambda: JobDumps(
            {rank: [around(rank, 4), Sync()] * (3 if rank == 2 else 4) for rank in range(4)}, {"ring": (0, 1, 2, 3)}
        ),
        AWAITED,
        ((2,),),
        4,
        (430,),
    ),
    "coalesced gathers that one rank left out": Case(
        lambda: JobDumps(every(4, gathers() * 4, {1: gathers() * 3})), AWAITED, ((1,),), 4, (440,)
    ),
    "coalesced gathers of another size": Case(
        lambda: JobDumps(every(4, gathers() * 4, {1: [*gathers() * 3, *gathers(60)]})), MISMATCH, ((1,),), 4, (440,)
    ),
    "a group of ranks that are not neighbours": Case(
        lambda: JobDumps(
            {
                rank: [*TURN * 3, Stop()]
                if rank == 5
                else [*TURN * 3, *([Call("all_reduce", 500, 9, "odd")] if rank in (0, 3) else []), Sync(), *TURN]
                for rank in range(6)
            },
            {"odd": (0, 3, 5)},
        ),
        AWAITED,
        ((5,),),
    ),
    "absent from hybrid sharding": Case(
        lambda: JobDumps({rank: hybrid(rank, 4 if rank == 9 else 5) for rank in range(16)}, hybrid_groups(16)),
        AWAITED,
        ((9,),),
        13,
        (600,),
    ),
    "absent from hybrid sharding of 64": Case(
        lambda: JobDumps({rank: hybrid(rank, 4 if rank == 37 else 5) for rank in range(64)}, hybrid_groups(64)),
        AWAITED,
        ((37,),),
        13,
    ),
    "a broken link of one shard group": Case(
        lambda: JobDumps({rank: hybrid(rank, 5) for rank in range(16)}, hybrid_groups(16), broken={"shard2": 8}),
        WIRE,
        ((),),
        8,
    ),
    "a broken network": Case(lambda: JobDumps(every(8, STEP * 5), broken={"world": 10}), WIRE, ((),), 10, (71,)),
}


WELL: dict[str, Callable[[], JobDumps]] = {
    "done": lambda: JobDumps(every(8, TURN * 5)),
    "done, the oldest format": lambda: JobDumps(every(4, TURN * 5), version="2.2", status=False),
    "done on gloo": lambda: JobDumps(every(4, TURN * 5), backend="gloo"),
    "a ring that has lost most": lambda: JobDumps(every(4, TURN * 50), window=30),
    "a pipeline": lambda: pipe(),
    "batches around a ring": lambda: JobDumps(
        {rank: [around(rank, 4), Sync()] * 4 for rank in range(4)}, {"ring": (0, 1, 2, 3)}
    ),
    "coalesced gathers": lambda: JobDumps(every(4, gathers() * 4)),
    "splits of an all_to_all that fit": lambda: JobDumps(
        {
            rank: [*TURN, Call("all_to_all", 206, 100 + 10 * rank, out=130 - 10 * rank), Sync(), *TURN]
            for rank in range(4)
        }
    ),
    "in the middle of a step": lambda: soon(JobDumps(every(8, [*BUCKETS, Join()] * 9), meetings=11)),
    "in the middle of a step, untimed": lambda: soon(
        JobDumps(every(8, [*BUCKETS, Join()] * 9), meetings=11, timed=False)
    ),
    "one rank is three calls ahead": lambda: soon(
        JobDumps(every(4, [*BUCKETS, Join()] * 3, {2: [*BUCKETS, Join()] * 4}), meetings=9)
    ),
    "one rank is late": lambda: soon(JobDumps(every(8, TURN * 6, {2: [*TURN * 4, Stop()]}))),
    "in the middle of a pipeline": lambda: soon(pipe(meetings=7)),
    "in the middle of hybrid sharding": lambda: soon(
        JobDumps({rank: hybrid(rank, 5) for rank in range(16)}, hybrid_groups(16), meetings=37)
    ),
}


def judged(job: JobDumps, folder: Path, as_json: bool = False) -> Assessment:
    """What `hangwatch analyze` says of the files."""
    job.write(folder, as_json=as_json)
    pile = evidence_files.sort_out([folder])
    assert len(pile.dumps) == len(job.documents())
    return pile.assessment


def told(verdict: Verdict) -> str:
    return " ".join((verdict.summary, *verdict.evidence, *(wait.what for wait in verdict.waits)))


def test_there_are_sets_enough() -> None:
    assert len(HUNG) + len(WELL) >= 60


@pytest.mark.parametrize("name", HUNG)
def test_what_is_wrong_is_told(name: str, tmp_path: Path) -> None:
    case = HUNG[name]
    found = judged(case.job(), tmp_path, case.as_json).judgement
    assert found is not None
    assert found.status is Status.HUNG
    assert found.verdict.cause in case.causes
    named = [each.rank for each in found.verdict.culprits if each.rank is not None]
    assert tuple(sorted(named)) in case.ranks
    words = told(found.verdict)
    assert case.number is None or f" {case.number} " in f"{words} ".replace(",", " ").replace(".", " ")
    for line in case.lines:
        assert f"train.py:{line}" in words


@pytest.mark.parametrize("name", WELL)
def test_nothing_is_wrong_with_a_job_that_is_well(name: str, tmp_path: Path) -> None:
    found = judged(WELL[name](), tmp_path)
    assert found.judgement is None
    assert "nothing is wrong in these dumps" in found.sentences[0]


def test_what_is_on_its_way_is_named(tmp_path: Path) -> None:
    """A rank that is late a moment after the others came is told, and is not blamed."""
    found = judged(WELL["one rank is late"](), tmp_path)
    assert any("rank 2 had not come to it yet" in sentence for sentence in found.sentences)


def test_a_mismatch_is_told_however_fresh_the_files_are(tmp_path: Path) -> None:
    found = judged(soon(HUNG["another size"].job()), tmp_path).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [3]


def test_the_time_of_the_files_is_an_argument(tmp_path: Path) -> None:
    found = judged(HUNG["a broken network"].job(), tmp_path).judgement
    assert found is not None
    assert any("had been waited for 10 min" in sentence for sentence in found.verdict.argument)
