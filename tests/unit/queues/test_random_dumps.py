"""Random jobs with one fault, or none, that leave dumps: innocent ranks are not named, healthy jobs not called hung."""

from __future__ import annotations

import random

import pytest

from hangwatch.model import Certainty
from hangwatch.queues import Assessment, assess
from hangwatch.recorder import QueueReader
from tests.dump_programs import BUCKETS, LOSS, around, hybrid, hybrid_groups, mesh_turn, pipeline, soon
from tests.dump_world import Call, JobDumps, Join, Step, Stop, StuckKernel, Sync, every, mesh


def random_turn(choice: random.Random, world: int) -> tuple[dict[int, list[Step]], dict[str, tuple[int, ...]]]:
    """A turn of each rank in a job of one of the usual kinds, and the groups."""
    end: list[Step] = [Sync()] if choice.random() < 0.6 else []
    kind = choice.choice(("data", "mesh", "hybrid", "pipeline", "ring"))
    if kind == "mesh" and world >= 4:
        return {rank: mesh_turn(rank, world // 2, 2)[:-1] + end for rank in range(world)}, mesh(world // 2, 2)
    if kind == "hybrid" and world >= 8:
        return {rank: hybrid(rank, 1) for rank in range(world)}, hybrid_groups(world)
    if kind == "pipeline":
        turns = {rank: pipeline(rank, 3, world - 1)[:-1] + end for rank in range(world)}
        return turns, {"pipe": tuple(range(world))}
    if kind == "ring":
        turns = {rank: [around(rank, world), Call("all_reduce", 431, 5), *end] for rank in range(world)}
        return turns, {"ring": tuple(range(world))}
    return every(world, [*BUCKETS, Join(), *(LOSS if choice.random() < 0.5 else end)]), {}


def spoilt(choice: random.Random, program: list[Step], turn: int) -> list[Step]:
    """A program with one fault in it, not in its first two turns."""
    place = choice.randrange(2 * turn, len(program))
    calls = [at for at in range(place, len(program)) if isinstance(program[at], Call)]
    fault = choice.choice(("stop", "kernel", "skip", "size") if calls else ("stop", "kernel"))
    if fault == "stop":
        return [*program[:place], Stop()]
    if fault == "kernel":
        return [*program[:place], StuckKernel(), *program[place:]]
    at = calls[0]
    call = program[at]
    assert isinstance(call, Call)
    if fault == "skip" or call.name != "all_reduce":
        return [*program[:at], *program[at + 1 :]]
    return [*program[:at], Call("all_reduce", call.line, call.size + 3, call.group), *program[at + 1 :]]


def assessed(job: JobDumps) -> Assessment:
    reader = QueueReader()
    for rank, document in job.documents().items():
        reader.add(rank, document, job.written_ns())
    return assess(reader.queues())


def options(choice: random.Random) -> dict[str, bool]:
    return {"timed": choice.random() < 0.7, "frames": choice.random() < 0.85, "status": choice.random() < 0.8}


@pytest.mark.parametrize("seed", range(60))
def test_no_innocent_rank_is_named(seed: int) -> None:
    choice = random.Random(seed)
    world = choice.choice((2, 4, 8, 16))
    turns, groups = random_turn(choice, world)
    rank, count = choice.randrange(world), choice.randint(3, 6)
    programs = {each: turn * count for each, turn in turns.items()}
    programs[rank] = spoilt(choice, programs[rank], len(turns[rank]))
    silent = (rank,) if choice.random() < 0.15 else ()
    found = assessed(JobDumps(programs, groups, silent=silent, **options(choice))).judgement  # type: ignore[arg-type]
    named = {each.rank for each in found.verdict.culprits} if found is not None else set()
    assert not named or rank in named, (rank, named)
    if found is not None and found.verdict.certainty is not Certainty.UNDETERMINED:
        assert named <= {rank}, (rank, named, found.verdict.summary)


@pytest.mark.parametrize("seed", range(60))
def test_a_healthy_job_is_never_called_hung_in_the_middle_of_its_work(seed: int) -> None:
    choice = random.Random(seed)
    world = choice.choice((2, 4, 8, 16))
    turns, groups = random_turn(choice, world)
    count = choice.randint(3, 6)
    programs = {each: turn * count for each, turn in turns.items()}
    some = choice.randint(1, world * count)
    job = soon(JobDumps(programs, groups, meetings=some, **options(choice)))  # type: ignore[arg-type]
    found = assessed(job).judgement
    assert found is None, found.verdict.summary
