"""Random programs over random groups with one fault, played by devices that run in order: the faulty rank is named.

A failing seed is in the test's name. What is proven must be true whatever of the evidence is lost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from hangwatch.model import Certainty, Status
from hangwatch.queues import Assessment, assess
from hangwatch.recorder import QueueReader
from tests.dumps import Job, Op, alike, as_json_text, loop

KINDS = ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast")
FAULTS = ("none", "absent", "skip", "extra", "size", "device", "wire")


@dataclass
class Played:
    """A job with its fault. `guilty` is None where no rank is at fault."""

    job: Job
    fault: str
    guilty: int | None
    hung: bool


def _body(rng: random.Random, grouped: bool) -> list[tuple[str, int, int, str]]:
    """The calls of one turn: operation, line, size, and whether the group is the world, a row or a column."""
    kinds = ("0", "tp", "dp") if grouped else ("0",)
    return [
        (rng.choice(KINDS), 20 + index, rng.choice([8, 16, 32, 64]), rng.choice(kinds))
        for index in range(rng.randint(2, 7))
    ]


def _programs(world: int, turns: int, body: list[tuple[str, int, int, str]]) -> dict[int, list[Op]]:
    names = {rank: {"0": "0", "tp": f"tp{rank // 2}", "dp": f"dp{rank % 2}"} for rank in range(world)}
    return {
        rank: [Op(kind, line, size, names[rank][role]) for _ in range(turns) for kind, line, size, role in body]
        for rank in range(world)
    }


def played(seed: int, **options: object) -> Played:
    rng = random.Random(seed)
    world = rng.choice([2, 4, 8, 16])
    groups: dict[str, tuple[int, ...]] = {f"tp{row}": (2 * row, 2 * row + 1) for row in range(world // 2)}
    groups |= {f"dp{column}": tuple(range(column, world, 2)) for column in (0, 1)}
    body = _body(rng, grouped=world > 2)
    programs = _programs(world, rng.randint(4, 20), body)
    fault, rank = rng.choice(FAULTS), rng.randrange(world)
    place = rng.randrange(2 * len(body), len(programs[rank]) - 1)
    timed = fault == "device" or rng.random() < 0.5
    stuck, cut = {}, {}
    own = programs[rank]
    if fault == "absent":
        del own[place:]
    elif fault == "skip":
        del own[place]
    elif fault == "extra":
        own.insert(place, Op(rng.choice(KINDS), 90, 7, own[place].group))
    elif fault == "size":
        own[place] = Op(own[place].name, own[place].line, own[place].size * 3, own[place].group)
    elif fault == "device":
        stuck = {rank: place}
    elif fault == "wire":
        cut = {own[place].group: 1 + sum(op.group == own[place].group for op in own[:place])}
    job = Job(world, programs, groups, timed=timed, stuck_devices=stuck, cut=cut, **options)  # type: ignore[arg-type]
    ahead = rng.randint(0, 2 * len(body))
    for each, program in job.programs.items():
        del program[job.done[each] + 1 + ahead :]  # a host runs ahead of its device, and not for ever
    hung = any(job.done[each] < len(program) for each, program in job.programs.items())
    return Played(job, fault, rank if fault not in ("none", "wire") else None, hung)


def judged(job: Job) -> Assessment:
    reader = QueueReader()
    for rank, document in job.documents().items():
        reader.add(rank, document)
    return assess(reader.queues())


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("expired", [True, False])
def test_the_guilty_rank_is_named_and_no_other(seed: int, expired: bool) -> None:
    case = played(seed, expired=expired)
    found = judged(case.job).judgement
    if not case.hung:
        assert found is None
        return
    assert found is not None
    named = [culprit.rank for culprit in found.verdict.culprits]
    if case.fault == "absent" and case.job.world == 2 and not expired and not named:
        # One of two ranks is ahead and torch has given nothing up: a healthy job looks like that too.
        assert found.status is Status.WAITING
        assert f"waits for rank {case.guilty}" in found.verdict.summary
        return
    assert named == ([] if case.guilty is None else [case.guilty]), found.verdict.summary
    assert case.guilty not in found.verdict.victims
    if case.fault == "wire":
        assert found.verdict.cause == "interconnect-stall"


@pytest.mark.parametrize("seed", range(1000, 1080))
def test_what_is_proven_is_true_whatever_is_lost(seed: int) -> None:
    # GIVEN rings that have lost most calls, and some ranks without a dump
    rng = random.Random(seed)
    case = played(seed, window=rng.randint(3, 40))
    case.job.silent = tuple(rank for rank in case.job.programs if rng.random() < 0.2)
    found = judged(case.job).judgement
    if found is None:
        return
    named = [culprit.rank for culprit in found.verdict.culprits]
    if found.verdict.certainty is Certainty.PROVEN:
        assert named == [case.guilty], found.verdict.summary
    assert found.verdict.hang is not Certainty.PROVEN
    assert not set(named) & set(found.verdict.victims)


def test_json_and_pickle_of_one_job_say_the_same() -> None:
    job = Job(
        4,
        alike(
            4,
            loop(9, Op("all_reduce", 20), Op("broadcast", 21)),
            rank3=loop(8, Op("all_reduce", 20), Op("broadcast", 21)),
        ),
    )
    texts = [as_json_text(document) for document in job.documents().values()]
    assert all(b"frames" not in text for text in texts)
    found = judged(job).judgement
    assert found is not None
    assert [culprit.rank for culprit in found.verdict.culprits] == [3]
