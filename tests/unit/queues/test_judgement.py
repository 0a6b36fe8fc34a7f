"""Sets of dumps over all that must be told apart: cause, ranks, call site, and how certain; with healthy twins."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hangwatch.model import Certainty, Status, Verdict
from hangwatch.queues import Assessment, assess, snapshot
from hangwatch.recorder import QueueReader, documents
from tests.dumps import FILE, Job, Op, alike, as_json_text, loop

GRADIENTS = Op("all_reduce", 20, 1024)
HEAD = Op("all_reduce", 20, 10)
METRIC = Op("all_reduce", 24, 1)
WEIGHTS = Op("broadcast", 27, 256)
STEP = (GRADIENTS, HEAD, METRIC)
LIKELY, PROVEN, UNKNOWN = Certainty.LIKELY, Certainty.PROVEN, Certainty.UNDETERMINED


def judged(job: Job, *, as_json: bool = False) -> Assessment:
    reader = QueueReader()
    for rank, document in job.documents().items():
        content = as_json_text(document) if as_json else pickle.dumps(document, protocol=2)
        for _, read in documents(content):
            reader.add(rank, read)
    queues = reader.queues()
    assert [each.rank for each in snapshot(queues).ranks] == list(range(job.world))
    return assess(queues)


def verdict(job: Job, *, as_json: bool = False) -> Verdict:
    found = judged(job, as_json=as_json).judgement
    assert found is not None
    return found.verdict


@dataclass(frozen=True)
class Expected:
    """A set of dumps and what is said of it. `line` is the culprits' line in train.py."""

    name: str
    job: Callable[[], Job]
    cause: str
    ranks: tuple[int, ...] = ()
    line: int | None = None
    certainty: Certainty = LIKELY
    said: str = ""
    status: Status = Status.HUNG


def _absent(world: int, *ranks: int, turns: int = 12, more: int = 1, **options: object) -> Callable[[], Job]:
    """The ranks stop in the middle of a turn, before the metric."""
    whole = loop(turns + more, *STEP)
    short = whole[: turns * 3 + 2]
    programs = {f"rank{rank}": short for rank in ranks}
    return lambda: Job(world, alike(world, whole, **programs), **options)  # type: ignore[arg-type]


def _other(world: int, rank: int, place: int, *ops: Op, left_out: int = 0, **options: object) -> Callable[[], Job]:
    """`rank` makes other calls at one place of its program, or leaves some out."""
    whole = loop(14, *STEP)
    own = [*whole[:place], *ops, *whole[place + left_out :]]
    return lambda: Job(world, alike(world, whole, **{f"rank{rank}": own}), **options)  # type: ignore[arg-type]


TP: dict[str, tuple[int, ...]] = {"tp0": (0, 1), "tp1": (2, 3)}


def _two_groups(turns: int = 10) -> list[list[Op]]:
    return [loop(turns, Op("all_gather", 30, 8, f"tp{rank // 2}"), GRADIENTS) for rank in range(4)]


def _follow() -> Job:
    """Rank 1 is stuck in its own code: rank 0 waits for it in their group, and ranks 2-3 for both in the world's."""
    programs = _two_groups()
    programs[1] = programs[1][:-2]
    programs[0] = programs[0][:-1]  # its host waits for the group's result
    return Job(4, dict(enumerate(programs)), TP)


def _held_by_other_group() -> Job:
    programs = _two_groups()
    programs[1] = programs[1][:-2]
    return Job(4, dict(enumerate(programs)), TP, timed=True)


def _grid() -> Job:
    """Eight ranks in tensor and data parallel groups; rank 5 does not come back from its code."""
    groups: dict[str, tuple[int, ...]] = {f"tp{row}": (2 * row, 2 * row + 1) for row in range(4)}
    groups |= {f"dp{column}": tuple(range(column, 8, 2)) for column in (0, 1)}
    turn = {
        rank: [Op("all_reduce", 30, 8, f"tp{rank // 2}"), Op("_reduce_scatter_base", 31, 16, f"dp{rank % 2}")]
        for rank in range(8)
    }
    programs = {rank: loop(12, *ops) for rank, ops in turn.items()}
    programs[5] = programs[5][:-2]
    return Job(8, programs, groups)


def _crossed(timed: bool, blocking: bool) -> Callable[[], Job]:
    """Ranks use two groups of the same members, in another order in the last turn."""
    one, two = Op("all_reduce", 40, 8, "a"), Op("all_reduce", 41, 8, "b")
    start = loop(3, GRADIENTS)
    first, second = [one, two], [two, one]
    if blocking:
        first, second = first[:1], second[:1]
    groups = {"a": (0, 1), "b": (0, 1)}
    return lambda: Job(2, {0: start + first, 1: start + second}, groups, timed=timed)


def _ring() -> Job:
    """Three groups of two ranks each, entered in a circle."""
    groups = {"a": (0, 1), "b": (1, 2), "c": (0, 2)}
    ops = {name: Op("all_reduce", 50 + index, 8, name) for index, name in enumerate(groups)}
    order = {0: "ac", 1: "ba", 2: "cb"}
    return Job(3, {rank: [GRADIENTS, *(ops[name] for name in names)] for rank, names in order.items()}, groups)


def _pipeline(*, missing: bool) -> Job:
    """Stages pass activations on; rank 1 does not receive the last one."""
    stages = {
        0: loop(5, Op("send", 60, 32, peer=1)),
        1: loop(5, Op("recv", 61, 32, peer=0), Op("send", 62, 32, peer=2)),
        2: loop(5, Op("recv", 63, 32, peer=1)),
    }
    if missing:
        stages[1] = stages[1][:-2]
    return Job(3, stages)


def _head_to_head() -> Job:
    programs = {rank: [Op("send", 60, 32, peer=1 - rank), Op("recv", 61, 32, peer=1 - rank)] for rank in (0, 1)}
    return Job(2, programs)


def _sizes_of_pair() -> Job:
    send, receive = Op("send", 60, 32, peer=1), Op("recv", 61, 32, peer=0)
    return Job(2, {0: [send, Op("send", 60, 48, peer=1)], 1: [receive, receive]}, stuck_devices={0: 1, 1: 1})


def _one_ahead(world: int) -> Job:
    whole = loop(10, *STEP)
    return Job(world, alike(world, whole, rank0=[*whole, *STEP]))


def _wire(world: int) -> Callable[[], Job]:
    return lambda: Job(world, alike(world, loop(9, *STEP)), cut={"0": 20}, timed=True)


def _device(world: int, rank: int) -> Callable[[], Job]:
    return lambda: Job(world, alike(world, loop(9, *STEP)), stuck_devices={rank: 13}, timed=True)


def _rank_zero_only(world: int) -> Callable[[], Job]:
    whole = loop(10, *STEP)
    return lambda: Job(world, alike(world, whole, rank0=[*whole, Op("barrier", 77)]))


CASES = [
    # some have not come
    *(
        Expected(f"absent-{world}-{rank}", _absent(world, rank), "undetermined", (rank,), 20, UNKNOWN, "never enqueued")
        for world, rank in ((3, 0), (4, 3), (8, 5), (16, 0), (64, 63))
    ),
    Expected(
        "absent-of-two-given-up", _absent(2, 1, expired=True), "undetermined", (1,), 20, UNKNOWN, "never enqueued"
    ),
    Expected("absent-two-of-eight", _absent(8, 2, 6), "undetermined", (2, 6), 20, UNKNOWN, "ranks 0-1, 3-5 and 7 wait"),
    Expected("absent-timed", _absent(4, 1, timed=True), "undetermined", (1,), 20, UNKNOWN, "(train.py:24)"),
    Expected("absent-far-ahead", _absent(4, 1, more=9), "undetermined", (1,), 20, UNKNOWN, "all_reduce 39"),
    Expected("absent-given-up", _absent(4, 1, expired=True), "undetermined", (1,), 20, UNKNOWN, "never enqueued"),
    Expected("absent-gloo", _absent(4, 1, backend="gloo"), "undetermined", (1,), 20, UNKNOWN, "never enqueued"),
    Expected("absent-old", _absent(4, 1, version="2.4"), "undetermined", (1,), 20, UNKNOWN, "never enqueued"),
    Expected("absent-small-ring", _absent(4, 1, window=10), "undetermined", (1,), 20, UNKNOWN, "never enqueued"),
    Expected("absent-other-group", _follow, "undetermined", (1,), 20, UNKNOWN, "(train.py:30)"),
    Expected("absent-holds-two-groups", _held_by_other_group, "undetermined", (1,), 20, UNKNOWN, "(train.py:30)"),
    Expected("absent-in-a-grid", _grid, "undetermined", (5,), 31, UNKNOWN, "all_reduce 12 of group tp2 (tp2_group)"),
    Expected("alone-in-a-barrier", _rank_zero_only(4), "rank-zero-only-collective", (0,), 77, LIKELY, "alone called"),
    Expected("alone-of-many", _rank_zero_only(32), "rank-zero-only-collective", (0,), 77, LIKELY, "alone called"),
    # what they call differs
    *(
        Expected(
            f"skipped-{world}-{rank}-{place}",
            _other(world, rank, place, left_out=1),
            "skipped-collective",
            (rank,),
            24,
            LIKELY,  # or the gradients' calls were made once more, as with a micro-batch more
            "left out all_reduce",
        )
        for world, rank, place in ((4, 3, 20), (8, 0, 11), (64, 17, 32))
    ),
    Expected("skipped-head", _other(4, 2, 19, left_out=1), "skipped-collective", (2,), 20, PROVEN, "left out"),
    Expected(
        "skipped-two", _other(4, 1, 19, left_out=2), "skipped-collective", (1,), 20, LIKELY, "and 1 call after it"
    ),
    Expected("skipped-of-two", _other(2, 1, 20, left_out=1), "skipped-collective", (1,), 24, LIKELY, "left out"),
    Expected("skipped-of-two-first", _other(2, 0, 20, left_out=1), "skipped-collective", (0,), 24, LIKELY, "left out"),
    Expected(
        "skipped-small-ring",
        _other(4, 3, 20, left_out=1, window=30),
        "skipped-collective",
        (3,),
        24,
        LIKELY,
        "left out",
    ),
    Expected(
        "added-by-rank-0",
        _other(4, 0, 21, Op("all_reduce", 80, 7)),
        "rank-zero-only-collective",
        (0,),
        80,
        PROVEN,
        "alone",
    ),
    Expected(
        "added-broadcast",
        _other(8, 3, 21, Op("broadcast", 81, 7)),
        "rank-local-decision",
        (3,),
        81,
        PROVEN,
        "alone",
    ),
    Expected(
        "added-alike-in-shape",
        _other(4, 0, 21, Op("all_reduce", 84, 1024)),
        "rank-zero-only-collective",
        (0,),
        84,
        PROVEN,
        "alone called all_reduce 22",
    ),
    Expected(  # from another line, with nothing behind it: it may have left its loop, or be alone in a call
        "left-to-a-barrier", _other(4, 3, 21, Op("barrier", 85), left_out=21), "uneven-steps", (3,), 85, UNKNOWN
    ),
    Expected(
        "another-operation",
        _other(4, 2, 21, Op("broadcast", 82, 1024), left_out=1),
        "collective-mismatch",
        (2,),
        82,
        PROVEN,
        "broadcast (1,024 elements, float32) (train.py:82)",
    ),
    Expected(
        "another-size",
        _other(4, 2, 21, Op("all_reduce", 20, 1000), left_out=1),
        "collective-mismatch",
        (2,),
        20,
        PROVEN,
        "1,000 elements",
    ),
    Expected(
        "another-type",
        _other(4, 1, 21, Op("all_reduce", 20, 1024, dtype="f16"), left_out=1),
        "collective-mismatch",
        (1,),
        20,
        PROVEN,
        "float16",
    ),
    Expected(
        "another-of-two",
        _other(2, 1, 21, Op("all_gather", 83, 1024), left_out=1),
        "collective-mismatch",
        (1,),
        83,
        LIKELY,
        "all_gather",
    ),
    # devices and wires
    *(
        Expected(
            f"wire-{world}",
            _wire(world),
            "interconnect-stall",
            said="Every device has started all_reduce 20",
        )
        for world in (2, 8, 64)
    ),
    Expected(
        "wire-untimed",
        lambda: Job(4, alike(4, loop(9, *STEP)), cut={"0": 20}),
        "interconnect-stall",
        certainty=UNKNOWN,
        said="enqueued by all of its ranks, alike",
        status=Status.WAITING,
    ),
    *(
        Expected(
            f"device-{world}-{rank}",
            _device(world, rank),
            "device-stall",
            (rank,),
            20,
            LIKELY,
            "has not started it",
        )
        for world, rank in ((2, 0), (4, 2), (16, 9))
    ),
    # circles
    Expected(
        "crossed-blocking", _crossed(False, True), "group-order-cycle", (0, 1), None, LIKELY, "wait for each other"
    ),
    Expected(
        "crossed-queued", _crossed(False, False), "group-order-cycle", (0, 1), None, LIKELY, "wait for each other"
    ),
    Expected("crossed-timed", _crossed(True, False), "group-order-cycle", (0, 1), None, LIKELY, "wait for each other"),
    Expected("crossed-ring", _ring, "group-order-cycle", (0, 1, 2), None, LIKELY, "wait for each other"),
    # point to point
    Expected(
        "pipeline", lambda: _pipeline(missing=True), "undetermined", (1,), None, UNKNOWN, "never enqueued the receive"
    ),
    Expected("head-to-head", _head_to_head, "point-to-point-deadlock", (0, 1), 60, LIKELY, "wait for each other"),
    Expected("pair-of-sizes", _sizes_of_pair, "collective-mismatch", (0, 1), None, UNKNOWN, "differ in size"),
    # ranks without a dump
    Expected(
        "silent-rank",
        lambda: Job(4, alike(4, loop(9, *STEP), rank2=loop(5, *STEP)), silent=(2,)),
        "undetermined",
        (2,),
        None,
        UNKNOWN,
        "no dump of rank 2",
    ),
    # not known to be a fault
    *(
        Expected(
            f"one-of-two-is-ahead-{more}",
            _absent(2, 1, more=more),
            "undetermined",
            (),
            None,
            UNKNOWN,
            "Rank 0 is ahead and waits for rank 1",
            status=Status.WAITING,
        )
        for more in (1, 3)
    ),
    Expected(
        "one-of-two-is-a-turn-ahead",
        lambda: _one_ahead(2),
        "undetermined",
        (),
        None,
        UNKNOWN,
        "is ahead",
        status=Status.WAITING,
    ),
    Expected(
        "one-is-ahead", lambda: _one_ahead(4), "undetermined", (), None, UNKNOWN, "is ahead", status=Status.WAITING
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_told_apart(case: Expected) -> None:
    found = judged(case.job()).judgement
    assert found is not None
    told = found.verdict
    assert (found.status, told.cause, told.certainty) == (case.status, case.cause, case.certainty)
    assert tuple(culprit.rank for culprit in told.culprits) == case.ranks
    assert case.said in told.summary
    assert told.hang is (LIKELY if case.status is Status.HUNG else None)
    assert not {culprit.rank for culprit in told.culprits} & set(told.victims)
    if case.line is not None:
        assert {(each.where.file, each.where.line) for each in told.culprits if each.where} == {(FILE, case.line)}


HEALTHY = {
    "complete": lambda: Job(4, alike(4, loop(9, *STEP))),
    "complete-timed": lambda: Job(8, alike(8, loop(9, *STEP)), timed=True),
    "complete-gloo": lambda: Job(3, alike(3, loop(9, *STEP)), backend="gloo"),
    "complete-old": lambda: Job(4, alike(4, loop(9, *STEP)), version="2.4"),
    "complete-small-ring": lambda: Job(4, alike(4, loop(30, *STEP)), window=20),
    "complete-64": lambda: Job(64, alike(64, loop(9, *STEP))),
    "complete-two-groups": lambda: Job(4, dict(enumerate(_two_groups())), TP),
    "complete-pipeline": lambda: _pipeline(missing=False),
    "nothing-issued": lambda: Job(4, alike(4, [])),
    "one-silent": lambda: Job(4, alike(4, loop(9, *STEP)), silent=(2,)),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_is_wrong_where_nothing_is(name: str, as_json: bool) -> None:
    found = judged(HEALTHY[name](), as_json=as_json)
    assert found.judgement is None
    assert found.sentences[0].startswith("nothing is wrong in these dumps")


def test_one_of_two_that_is_ahead_is_no_hang_in_json_either() -> None:
    """JSON has no frames, by which a call that is new to a rank would be told."""
    found = judged(_one_ahead(2), as_json=True).judgement
    assert found is not None
    assert (found.status, found.verdict.hang, found.verdict.culprits) == (Status.WAITING, None, ())


def test_a_dump_that_is_older_than_the_others_is_no_fault() -> None:
    # GIVEN a job that runs, dumped rank by rank: rank 3 an iteration before the others, rank 0 in the middle of a call
    whole = loop(9, *STEP)
    job = Job(4, alike(4, whole))
    dumps = job.documents()
    dumps[3]["entries"] = dumps[3]["entries"][:-3]
    dumps[0]["entries"][-1] |= {"state": "scheduled", "retired": False}
    reader = QueueReader()
    for rank, document in dumps.items():
        reader.add(rank, document)
    # THEN nothing is called wrong, and both are told
    found = assess(reader.queues())
    assert found.judgement is None
    assert [sentence for sentence in found.sentences if "rank 3" in sentence and "older" in sentence]
    assert [sentence for sentence in found.sentences if "rank 0" in sentence and "on its way" in sentence]


def test_json_without_frames_names_the_ranks_all_the_same() -> None:
    told = verdict(_other(4, 3, 20, left_out=1)(), as_json=True)
    assert (told.cause, [each.rank for each in told.culprits]) == ("skipped-collective", [3])


def test_ranks_with_call_paths_of_their_own_are_not_to_blame() -> None:
    # GIVEN a rank 0 whose log line wraps the call, so that its path is always another one, and a rank 3 that skips
    whole, wrapped = loop(14, *STEP), loop(14, GRADIENTS, HEAD, Op("all_reduce", 99, 1))
    skipping = [*whole[:20], *whole[21:]]
    told = verdict(Job(4, alike(4, whole, rank0=wrapped, rank3=skipping)))
    assert (told.cause, [each.rank for each in told.culprits]) == ("skipped-collective", [3])


def test_the_report_knows_how_far_each_rank_is() -> None:
    job = _absent(4, 3)()
    reader = QueueReader()
    for rank, document in job.documents().items():
        reader.add(rank, document)
    found = snapshot(reader.queues())
    heads = {each.rank: each.collectives.heads[0] for each in found.ranks}
    assert [(heads[rank].issued, heads[rank].completed) for rank in (0, 3)] == [(39, 38), (38, 38)]
    assert all(len(each.collectives.recent) <= 8 for each in found.ranks)
    assert found.job.world_size == 4
