"""How an order of calls parts from another: what was left out, added or moved, and what nothing tells apart."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from hangwatch.model import Certainty
from hangwatch.queues.readings import Kind, read
from tests.dump_programs import BARRIER
from tests.dump_verdicts import verdict, verdict_on
from tests.dump_world import WORLD, Call, JobDumps, Step, Sync, every

HEAD = Call("broadcast", 20, 64)
FIRST, SECOND, THIRD = (Call("all_reduce", 30 + place, 100 + place) for place in range(3))
METRIC = Call("_all_gather_base", 40, 16, out=64)
LOSS = Call("all_reduce", 50, 1)
ROUND: list[Step] = [HEAD, FIRST, SECOND, THIRD, METRIC, LOSS, Sync()]


@pytest.mark.parametrize(
    ("row", "usual", "kind", "count"),
    [
        pytest.param("abcd abcd acdab", "abcd abcd ab", Kind.SKIPPED, 1, id="left-out"),
        pytest.param("abcd abcd abd", "abcd abcd abc", Kind.SKIPPED, 1, id="left-out-and-the-others-stand"),
        pytest.param("abcd abcd abca bcd", "abcd abcd abcd", Kind.SKIPPED, 1, id="left-out-before-the-next-round"),
        pytest.param("abcd abcd axbcd", "abcd abcd abcd", Kind.EXTRA, 1, id="added"),
        pytest.param("abcd abcd axyb", "abcd abcd ab", Kind.EXTRA, 2, id="added-and-the-others-stand"),
        pytest.param("abcd abcd acbd", "abcd abcd abcd", Kind.MOVED, 2, id="moved"),
        pytest.param("ab ab ba", "ab ab ab", Kind.MOVED, 2, id="moved-and-none-behind"),
        pytest.param("ab ab ba ba", "ab ab ab ab", Kind.OTHER, 1, id="shifted-and-not-moved"),
        pytest.param(
            f"{3 * (4 * 'abcdefghi' + 'm')}{4 * 'abcdefghi'}abcdefghim",
            f"{3 * (4 * 'abcdefghi' + 'm')}{4 * 'abcdefghi'}m",
            Kind.EXTRA,
            9,
            id="a-turn-more-before-the-metric",
        ),
        pytest.param("abcd abcd axcd", "abcd abcd abcd", Kind.OTHER, 1, id="another"),
        pytest.param("abcc abcc abccc", "abcc abcc abcc a", Kind.OTHER, 1, id="a-longer-run-or-a-round-left-out"),
        pytest.param("abcc abcc abcc cca", "abcc abcc abcc a", Kind.SKIPPED, 2, id="left-out-and-its-round-goes-on"),
        pytest.param("ab ab ab ba", "ab ab ab a", Kind.OTHER, 1, id="made-twice-or-left-out"),
        pytest.param(
            f"{10 * 'ab'}m {3 * 'ab'}b{6 * 'ab'}m",
            f"{10 * 'ab'}m {10 * 'ab'}",
            Kind.SKIPPED,
            1,
            id="left-out-by-the-metric",
        ),
        pytest.param(
            f"{10 * 'ab'}m {3 * 'ab'}b{7 * 'ab'}m", f"{10 * 'ab'}m {10 * 'ab'}", Kind.EXTRA, 1, id="added-by-the-metric"
        ),
    ],
)
def test_what_explains_all_that_comes_behind(row: str, usual: str, kind: Kind, count: int) -> None:
    mine, theirs = ([ord(each) for each in text.replace(" ", "")] for text in (row, usual))
    place = next(at for at, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other)
    found = read(mine, theirs, place)
    assert (found.kind, found.count) == (kind, count)


def _rounds(count: int, *, without: Step | None = None, at: int = -1) -> list[Step]:
    rounds = ([step for step in ROUND if not (turn == at and step is without)] for turn in range(count))
    return [step for steps in rounds for step in steps]


def test_a_call_left_out_at_the_end_of_a_round_is_not_the_next_round_that_was_added(tmp_path: Path) -> None:
    """Without frames the rest of the rank's next round looked like calls that it alone made, and was called proven."""
    job = JobDumps(every(4, _rounds(8), {3: _rounds(8, without=LOSS, at=5)}), timed=False)
    found = verdict(job, tmp_path, as_json=True)
    assert (found.cause, [each.rank for each in found.culprits]) == ("skipped-collective", [3])


def test_the_many_who_leave_their_own_order_do_not_make_the_one_who_keeps_it_guilty(tmp_path: Path) -> None:
    others: dict[int, list[Step]] = {rank: _rounds(8, without=METRIC, at=5) for rank in (0, 1, 2)}
    found = verdict(JobDumps(every(4, _rounds(8), others)), tmp_path)
    assert found.certainty is Certainty.UNDETERMINED
    assert {each.rank for each in found.culprits} == {0, 1, 2}
    assert [each.cause for each in found.alternatives] == ["rank-local-decision"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rank_that_goes_from_its_loop_to_the_end_has_left_the_loop(as_json: bool, tmp_path: Path) -> None:
    whole: list[Step] = [step for step in _rounds(9) if not isinstance(step, Sync)]
    short: list[Step] = [step for step in _rounds(7) if not isinstance(step, Sync)]
    job = JobDumps(every(4, [*whole, *BARRIER], {1: [*short, *BARRIER]}))
    found = verdict(job, tmp_path, as_json=as_json)
    assert (found.cause, found.certainty) == ("uneven-steps", Certainty.LIKELY)
    assert [each.rank for each in found.culprits] == [1]


def _in_two_groups(rank: int) -> list[Step]:
    one, two, three = (
        Call("all_reduce", 60 + place, 8 + place, group) for place, group in enumerate((WORLD, "b", "b"))
    )
    turn: list[Step] = [one, two, three, Sync()]
    return [*turn * 4, *(turn[1:] if rank == 2 else turn), *turn]


def _later(rank: int) -> list[Step]:
    one, two, three = (
        Call("all_reduce", 60 + place, 8 + place, group) for place, group in enumerate((WORLD, "b", "b"))
    )
    turn: list[Step] = [one, two, three, Sync()]
    return [*turn * 4, *([two, one, three, Sync()] if rank == 2 else turn), *turn]


@pytest.mark.parametrize(("program", "cause"), [(_in_two_groups, "skipped-collective"), (_later, "group-order-cycle")])
def test_a_call_of_another_group_that_never_comes_was_left_out(
    program: Callable[[int], list[Step]], cause: str, tmp_path: Path
) -> None:
    job = JobDumps({rank: program(rank) for rank in range(4)}, {"b": (0, 1, 2, 3)}, timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == (cause, [2])


def _accumulated(batches: int, *, reduced: tuple[int, ...] = (1,)) -> list[Step]:
    """Micro-batches, of which some are reduced, and the norm of the gradients behind each two."""
    steps: list[Step] = []
    for batch in range(batches):
        steps += [Call("all_reduce", 30, size) for size in (64, 32)] if batch % 2 == 1 or batch in reduced else []
        steps += [Call("all_reduce", 50, 1), Sync()] if batch % 2 == 1 else []
    return steps


def test_what_comes_between_two_turns_left_out_is_not_proven_where_a_turn_more_explains_it_as_well(
    tmp_path: Path,
) -> None:
    """One rank reduced a micro-batch more; as well it may have left out the norm, and have made the next step."""
    job = JobDumps(every(4, _accumulated(16), {3: _accumulated(16, reduced=(8,))}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.certainty, [each.rank for each in found.culprits]) == (Certainty.LIKELY, [3])
    assert {found.cause, *(each.cause for each in found.alternatives)} == {"skipped-collective", "uneven-steps"}


def _gathered(batches: int) -> list[Step]:
    calls: list[Step] = [Call("_all_gather_base", 40, size, out=4 * size) for size in (64, 32, 16)]
    return calls * batches


def test_nor_where_no_line_is_known_of_what_would_have_been_left_out(tmp_path: Path) -> None:
    """A forward pass more, or the calls of a backward pass and the norm left out; what comes seldom may come late."""
    rest: list[Step] = [Call("all_reduce", 30, 128), Call("all_reduce", 50, 1), Sync()]
    turn: list[Step] = [*_gathered(1), *rest]
    job = JobDumps(every(4, turn * 12, {1: [*turn * 7, *_gathered(2), *rest, *turn * 4]}), timed=False)
    job.write(tmp_path)
    for path in tmp_path.iterdir():
        document = pickle.loads(path.read_bytes())  # noqa: S301 - written above
        for entry in document["entries"]:
            entry["frames"] = [] if entry["input_sizes"] == [[128]] else entry["frames"]
        path.write_bytes(pickle.dumps(document, protocol=2))
    found = verdict_on(tmp_path)
    assert (found.certainty, [each.rank for each in found.culprits]) == (Certainty.LIKELY, [1])
    assert {found.cause, *(each.cause for each in found.alternatives)} >= {"skipped-collective", "uneven-steps"}


def _sharded(turns: int, more: int = -1, fewer: int = -1) -> list[Step]:
    """Layers that are scattered in each of two micro-batches, and reduced across the replicas in the second one."""
    steps: list[Step] = []
    for turn in range(turns):
        for second in (False, True):
            steps += [Call("_all_gather_base", 60, size, out=4 * size) for size in (64, 32, 16)]
            for size in (16, 32, 64):
                steps += [Call("_reduce_scatter_base", 61, 4 * size, out=size)]
                reduced = turn != fewer if second else turn == more
                steps += [Call("all_reduce", 62, 8)] if reduced else []
        steps += [Sync()]
    return steps


@pytest.mark.parametrize(
    ("own", "cause", "said"),
    [
        ({"more": 5}, "rank-local-decision", "alone called all_reduce"),
        ({"fewer": 5}, "skipped-collective", "and 1 call more of it between others"),
    ],
)
def test_one_call_of_each_layer_made_or_left_out_between_others(
    own: dict[str, int], cause: str, said: str, tmp_path: Path
) -> None:
    """It was told as a run of other calls that the rank had left out."""
    job = JobDumps(every(4, _sharded(9), {2: _sharded(9, **own)}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == (cause, [2])
    assert said in found.summary
    assert [each.where.line for each in found.culprits if each.where] == [62]


def test_calls_of_one_operation_left_out_between_others_are_no_run_of_calls() -> None:
    """Gradients of three sizes are scattered and weights gathered in turn; the next step would fit as well."""
    step = "abcdefabcdgehfi"
    known, kinds = list(map(ord, 4 * step + step[:10])), dict.fromkeys(map(ord, "ghi"), "reduce_scatter")

    def kind(token: int) -> str:
        return kinds.get(token, "all_gather")

    row, usual = [*known, *map(ord, "ef")], [*known, *map(ord, "gehfi")]
    found = read(row, usual, len(known), kind)
    assert (found.kind, found.count, found.agreeing, found.scattered) == (Kind.SKIPPED, 2, 2, True)
    assert read(row, usual, len(known)).count == 9


def test_several_turns_more_are_no_call_that_was_left_out_several_times(tmp_path: Path) -> None:
    """GIVEN gradients that one rank reduces in each of four micro-batches, and the others in the last one."""
    reduce: list[Step] = [FIRST, SECOND]
    usual: list[Step] = [*reduce, LOSS, Sync()]
    job = JobDumps(every(4, 12 * usual, {3: [*11 * usual, *4 * reduce, LOSS, Sync()]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.certainty, [who.rank for who in found.culprits]) == (Certainty.LIKELY, [3])
    assert found.cause == "uneven-steps"
    assert "Rank 3 made 6 calls of the default group once more" in found.summary
    assert "left out" not in found.summary


def _swapped(rank: int) -> list[Step]:
    """Two calls in a row with a wait behind each; rank 4 makes them in the other order in the last round."""
    pair = [Call("_all_gather_base", 3, 4, out=20), Call("broadcast", 4, 12)]
    turns = [pair, pair, pair[::-1] if rank == 4 else pair]
    return [step for turn in turns for call in turn for step in (call, Sync())]


def test_one_call_in_the_place_of_another_may_be_made_earlier_and_not_instead(tmp_path: Path) -> None:
    found = verdict(JobDumps({rank: _swapped(rank) for rank in range(5)}), tmp_path)
    assert [each.rank for each in found.culprits] == [4]
    assert any("may make that call later than the others" in each.why_not for each in found.alternatives)


def test_a_turn_less_of_a_loop_that_all_have_left_is_no_other_call_in_the_place_of_its_last(tmp_path: Path) -> None:
    """GIVEN what comes behind a loop, WHEN one rank is a call ahead there, THEN it lacks one."""
    loss, culprit = Call("all_reduce", 57, 1), 2
    turns: list[Step] = [loss, Sync()] * 98
    behind: list[Step] = [*BARRIER, Call("broadcast", 20, 1000)]
    programs = every(8, [*turns, loss, loss, *behind], {culprit: [*turns, loss, *BARRIER[:1], *behind[-1:]]})
    found = verdict(JobDumps(programs, window=64), tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("skipped-collective", [culprit])
    assert found.summary.startswith(f"Rank {culprit} made 1 call of all_reduce (1 element, bfloat16) (train.py:57) too")
    assert [each.cause for each in found.alternatives][:1] == ["uneven-steps"]
    assert "pad to" not in found.fix


@pytest.mark.parametrize("turns", [20, 60])
def test_a_call_left_out_long_before_the_end_of_the_loop_was_not_made_once_more(turns: int, tmp_path: Path) -> None:
    """GIVEN two calls in turn, WHEN a rank is past the loop and the others have one to make, THEN it lacks one."""
    norm, loss = Call("all_reduce", 33, 1), Call("all_reduce", 57, 1)
    end: list[Step] = [Call("_all_gather_base", 92, 4096, out=4096 * 8), Sync()]
    turn: list[Step] = [norm, loss, Sync()]
    short: list[Step] = [*turn * 5, loss, Sync(), *turn * (turns - 6), *end]
    found = verdict(JobDumps(every(8, [*turn * turns, *end], {5: short})), tmp_path)
    assert (found.cause, [each.rank for each in found.culprits]) == ("skipped-collective", [5])
    assert found.summary.startswith("Rank 5 left out all_reduce 11 of the default group (train.py:33)")
    assert "once more" not in found.summary


def test_two_neighbours_in_another_order_are_told_where_the_others_stand_at_the_first(tmp_path: Path) -> None:
    """GIVEN hosts that wait at the loss, WHEN one rank called it behind the next gradients, THEN these are swapped."""
    turn: list[Step] = [FIRST, SECOND, THIRD, LOSS, Sync()]
    swapped: list[Step] = [FIRST, SECOND, THIRD, FIRST, LOSS, SECOND, THIRD, LOSS, Sync()]
    found = verdict(JobDumps(every(8, turn * 6, {4: [*turn * 3, *swapped, *turn]})), tmp_path)
    assert [each.rank for each in found.culprits] == [4]
    assert found.summary.startswith("Rank 4 made 2 calls of the default group in another order, from number 16 on")
