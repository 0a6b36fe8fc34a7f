"""Loops that end: what came behind them before tells who left one earlier than the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Frame
from hangwatch.queues import model
from hangwatch.queues.loops import as_ever, left_as_before, visits
from hangwatch.queues.names import may_leave_a_loop
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every

ROUND: list[Step] = [Call("all_reduce", 20, 64), Call("all_reduce", 21, 8)]
EPOCH: list[Step] = [Call("all_reduce", 30, 2), Sync()]
A_B_ENDS = [1, 2, 1, 2, 1, 2, 9, 1, 2]


@pytest.mark.parametrize(
    ("before", "own", "usual", "times"),
    [
        (A_B_ENDS, 9, 1, 1),
        (A_B_ENDS, 1, 9, 0),  # the others have left it: this one goes on
        (A_B_ENDS, 7, 1, 0),  # a call that never came there
        (A_B_ENDS, 9, 7, 0),  # the others do what is new
        ([], 9, 1, 0),
        ([1, 9, 1, 9, 1], 9, 2, 0),
    ],
)
def test_how_often_a_loop_had_ended_so(before: list[int], own: int, usual: int, times: int) -> None:
    assert left_as_before(before, own, usual) == times


def test_a_rank_that_goes_to_the_end_of_an_epoch_earlier_than_the_others_has_left_the_loop(tmp_path: Path) -> None:
    """Hosts that read each loss have not enqueued the end, so that only the epoch before tells what comes there."""
    turn: list[Step] = [*ROUND, Sync()]
    job = JobDumps(every(8, [*turn * 9, *EPOCH] * 2, {5: [*turn * 9, *EPOCH, *turn * 8, *EPOCH]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [5], "likely")
    # AND that it may have been an earlier round is said
    assert [each.cause for each in found.alternatives] == ["skipped-collective"]


def test_a_rank_that_goes_on_where_the_others_end_their_epoch_as_before_has_more_rounds(tmp_path: Path) -> None:
    turn: list[Step] = [*ROUND, Sync()]
    epoch: list[Step] = [*turn * 9, *EPOCH]
    job = JobDumps(every(8, epoch * 3, {3: [*epoch, *turn, *epoch, *epoch]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [3], "likely")
    assert "a round more" in found.summary
    assert [each.cause for each in found.alternatives] == ["skipped-collective"]


def test_a_call_that_often_comes_behind_a_round_is_no_end_of_a_loop(tmp_path: Path) -> None:
    turn: list[Step] = [*ROUND, Sync()]
    logged: list[Step] = [*turn * 4, *EPOCH]
    job = JobDumps(every(4, logged * 6, {1: [*logged * 4, *turn * 3, *EPOCH, *logged]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [1])


def _layers(rank: int, count: int) -> list[Step]:
    """More layers than context is looked at, each of which is waited for."""
    layers: list[Step] = [Call("all_reduce", 40, 16, f"half{rank // 4}"), Sync()]
    return [*layers * count, Call("all_reduce", 50, 64), Call("broadcast", 60, 4, f"half{rank // 4}"), Sync()]


def test_a_layer_that_is_left_out_is_not_called_the_end_of_the_training_loop(tmp_path: Path) -> None:
    programs = {rank: [*_layers(rank, 20), *_layers(rank, 19 if rank == 1 else 20)] for rank in range(8)}
    groups: dict[str, tuple[int, ...]] = {"half0": (0, 1, 2, 3), "half1": (4, 5, 6, 7)}
    found = verdict(JobDumps(programs, groups, timed=False), tmp_path)
    assert found.cause != "uneven-steps"
    assert blamed(found) == [1]


def test_one_helper_s_line_is_told_by_the_lines_that_called_it(tmp_path: Path) -> None:
    """All calls come from one line; those of rank 2 from a place of the program that no other rank came to."""
    forward: list[Step] = [Call("_all_gather_base", 10, size, out=4 * size, via=101) for size in (64, 32)]
    backward: list[Step] = [Call("_all_gather_base", 10, size, out=4 * size, via=105) for size in (32, 64)]
    turn: list[Step] = [*forward, *backward, Call("_reduce_scatter_base", 12, 256, out=64), Sync()]
    sample: list[Step] = [Call("_all_gather_base", 10, size, out=4 * size, via=140) for size in (64, 32) * 3]
    job = JobDumps(every(4, turn * 6, {2: [*turn * 4, *sample, Sync(), *turn * 2]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-local-decision", [2], "undetermined")
    assert "train.py:140" in found.summary
    assert [each.where.line for each in found.culprits if each.where] == [140]
    assert [each.cause for each in found.alternatives] == ["uneven-steps"]


def test_a_coalesced_call_that_is_left_out_shifts_no_later_one(tmp_path: Path) -> None:
    def together(count: int) -> list[Step]:
        parts = tuple(Call("all_reduce", 70, 100 + place) for place in range(count))
        return [Call("batch", 70, parts=parts), Sync()]

    job = JobDumps(every(4, together(3) * 6, {2: [*together(3) * 4, *together(2), *together(3)]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("collective-mismatch", [2])
    assert "every later call" not in found.summary


def test_an_evaluation_counts_once_however_many_calls_it_makes(tmp_path: Path) -> None:
    """A rank that comes to it two rounds early has left the loop: nothing proves that it left single calls out."""
    turn: list[Step] = [*ROUND, Sync()]
    log: list[Step] = [Call("all_reduce", 25, 2), Sync()]
    evaluation: list[Step] = [*[Call("_all_gather_base", 40, 8, out=64)] * 6, Sync()]
    epoch: list[Step] = [*turn * 9, *log, *evaluation]
    early: list[Step] = [*epoch * 2, *turn * 7, *evaluation]
    found = verdict(JobDumps(every(8, epoch * 3, {6: early}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [6], "likely")


@pytest.mark.parametrize(("before", "times"), [([1, 2, 1, 2], 0), ([1, 9, 9, 9, 1], 1), ([1, 9, 9, 2, 9, 1, 9], 2)])
def test_visits_from_a_round(before: list[int], times: int) -> None:
    assert visits(before, 9, 1) == times


def test_a_round_that_one_rank_makes_once_more_is_no_call_of_its_own(tmp_path: Path) -> None:
    part: list[Step] = [Call("_all_gather_base", 30, 64, out=256), Call("_reduce_scatter_base", 31, 256, out=64)]
    turn: list[Step] = [*part * 3, Call("all_reduce", 33, 1)]
    again: list[Step] = [*part * 4, Call("all_reduce", 33, 1)]
    found = verdict(JobDumps(every(4, turn * 12, {1: [*turn * 6, *again, *turn * 5]}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [1], "likely")
    assert [each.cause for each in found.alternatives] == ["rank-local-decision", "skipped-collective"]


def test_a_forward_that_is_given_up_and_begun_again_is_no_round_more(tmp_path: Path) -> None:
    """WHEN no loop has ever gone back from there THEN what comes behind was left out, as by an error that is caught."""
    head: list[Step] = [Call("all_gather", 20, 8, out=32)]
    layer: list[Step] = [Call("all_reduce", 30, 64), Call("all_reduce", 31, 64)]
    rest: list[Step] = [Call("all_reduce", 40, 2), *[Call("all_reduce", 41, 64)] * 16, Call("all_reduce", 42, 1)]
    turn: list[Step] = [*head, *layer * 8, *rest, Sync()]
    given_up: list[Step] = [*head, *layer * 5]
    found = verdict(JobDumps(every(4, turn * 12, {1: [*turn * 6, *given_up, *turn * 6]}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [1], "likely")
    assert "Rank 1 began again after 11 calls of the default group, from all_gather" in found.summary
    assert [each.cause for each in found.alternatives] == ["rank-local-decision"]


def test_what_is_new_in_a_short_record_may_have_come_before(tmp_path: Path) -> None:
    layers: list[Step] = [Call("all_reduce", 40, 16)] * 7
    turn: list[Step] = [*layers, Call("all_reduce", 50, 1), Sync()]
    job = JobDumps(every(4, turn * 9, {3: [*turn * 8, *turn[1:]]}), timed=False, window=7, frames=False)
    assert verdict(job, tmp_path).cause != "uneven-steps"


def test_a_round_is_whole_without_the_calls_that_only_some_rounds_have(tmp_path: Path) -> None:
    """Every other round logs; the last one, which two ranks do not have, does not."""
    turn: list[Step] = [Call("_all_gather_base", 10, size, out=4 * size) for size in (64, 32, 16)]
    turn += [Call("_reduce_scatter_base", 12, 256, out=64)]
    log: list[Step] = [Call("all_reduce", 25, 2), Sync()]
    end: list[Step] = [Call("all_reduce", 40, 4, dtype="Double"), Sync()]
    rounds: list[Step] = [*turn, *turn, *log] * 6
    job = JobDumps(every(4, [*rounds, *turn, *end], {3: [*rounds, *end]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [3], "likely")


def _coalesced(line: int, *sizes: int) -> Call:
    return Call("batch", line, 0, parts=tuple(Call("_all_gather_base", line, size, out=4 * size) for size in sizes))


def test_coalesced_calls_that_one_rank_makes_twice_are_no_round_more(tmp_path: Path) -> None:
    first, second = _coalesced(20, 64, 32), _coalesced(21, 48)
    behind: list[Step] = [Call("_reduce_scatter_base", 12, 4 * size, out=size) for size in (10, 20, 30, 40, 50, 60)]
    turn: list[Step] = [first, second, *behind]
    again: list[Step] = [first, first, second, *behind]
    found = verdict(JobDumps(every(4, turn * 8, {2: [*turn * 5, *again, *turn * 2]}), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("rank-local-decision", [2])


def test_coalesced_calls_that_are_left_out_as_a_whole_shift_all_later_ones(tmp_path: Path) -> None:
    parts = [_coalesced(20 + place, 64 + place, 32 + place) for place in range(4)]
    turn: list[Step] = [*parts, Call("_reduce_scatter_base", 12, 256, out=64)]
    short: list[Step] = [*parts[:2], parts[3], Call("_reduce_scatter_base", 12, 256, out=64)]
    found = verdict(JobDumps(every(4, turn * 8, {1: [*turn * 5, *short, *turn * 2]}), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [1])
    assert [each.where.line for each in found.culprits if each.where] == [22]


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_came_to_the_end_as_the_last_time_has_not_left_early(
    culprit: int, tmp_path: Path
) -> None:
    """The other one left out a round, or has one more: it has not come to the end after as many rounds as before."""
    turn: list[Step] = [*ROUND, Sync()]
    epoch: list[Step] = [*turn * 4, *EPOCH]
    job = JobDumps(every(2, epoch * 3, {culprit: [*epoch, *turn * 5, *EPOCH, *epoch]}), timed=False)
    assert blamed(verdict(job, tmp_path)) == [culprit]


def test_a_call_of_backward_is_no_end_of_a_loop_over_layers(tmp_path: Path) -> None:
    """Layers of one size gather from one line; behind them comes a call that no line of the user's makes."""
    turn: list[Step] = [
        *[Call("_all_gather_base", 10, 64, out=256)] * 6,
        *[Call("_all_gather_base", 0, 64, out=256)] * 6,
    ]
    turn += [Call("all_reduce", 33, 1), Sync()]
    job = JobDumps(every(4, turn * 4, {1: [*turn * 2, *turn[1:], *turn]}), timed=False)
    documents = job.documents()
    for document in documents.values():
        for entry in document["entries"]:
            if any(frame["line"] == 0 for frame in entry["frames"]):
                entry["frames"] = entry["frames"][:1]
    job.documents = lambda: documents  # type: ignore[method-assign]
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [1])


def test_a_fetch_for_the_next_round_that_the_last_one_lacks_is_no_proof_of_a_skip(tmp_path: Path) -> None:
    """A rank without a next batch does not ask for it, and makes the rest of its last round as the others do."""
    fetch: list[Step] = [Call("all_to_all", 60, 2048, asynchronous=True)]
    turn: list[Step] = [Call("all_to_all", 92, 512), Call("all_to_all", 99, 512), Call("all_reduce", 40, 900), Sync()]
    evaluation: list[Step] = [Call("gather", 120, 16), Sync()]
    job = JobDumps(every(4, [*fetch, *[*fetch, *turn] * 9], {2: [*fetch, *[*fetch, *turn] * 6, *turn, *evaluation]}))
    found = verdict(job, tmp_path)
    assert blamed(found) == [2]
    assert found.certainty != "proven"


@pytest.mark.parametrize(
    ("before", "told"),
    [([1, 1, 9, 1, 1], True), ([1, 1, 9, 1], False), ([1, 1, 9, 1, 1, 1], False), ([1, 1], False)],
)
def test_an_end_after_as_many_rounds_as_ever(before: list[int], told: bool) -> None:
    assert as_ever(before, 9, 1) is told


# Sharded weights are gathered for each micro-batch, forward and backward; the gradients are reduced behind the last.
GATHER: list[Step] = [
    *[Call("_all_gather_base", 40, size, out=4 * size) for size in (64, 65, 66)],
    *[Call("_all_gather_base", 0, size, out=4 * size) for size in (66, 65, 64)],
]
REDUCE: list[Step] = [Call("_reduce_scatter_base", 0, 4 * size, out=size) for size in (66, 65, 64)]


def accumulated(*turns: int) -> list[Step]:
    steps: list[Step] = []
    for each in turns:
        steps += [*GATHER * each, *REDUCE, Call("all_reduce", 41, 1), Sync()]
    return steps


@pytest.mark.parametrize(
    ("usual", "own", "said"), [((2, 2, 4), (2, 2, 3), "6 calls earlier"), ((4, 4, 4), (4, 4, 5), "6 calls more")]
)
def test_gradients_that_are_reduced_after_another_number_of_turns_have_another_cadence(
    usual: tuple[int, ...], own: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    """One rank accumulates over fewer or more micro-batches than the others do."""
    job = JobDumps(every(4, accumulated(*usual), {1: accumulated(*own)}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("gradient-sync-mismatch", [1], "likely")
    assert said in found.summary


def _call(op: str, hook: int, line: int) -> model.Call:
    """Made by a hook of a framework, under a line of the program; 0: by no line of it."""
    program = (Frame("/home/u/proj/train.py", line, "step"),) if line else ()
    return model.Call(op, frames=(Frame("/venv/lib/python3.11/site-packages/torch/hooks.py", hook, "hook"), *program))


@pytest.mark.parametrize(
    ("own", "usual", "may"),
    [
        (_call("barrier", 1, 80), _call("all_gather", 2, 44), True),
        (_call("barrier", 1, 80), _call("all_reduce", 2, 0), True),  # the gradients' of backward
        (_call("reduce_scatter", 1, 44), _call("all_gather", 2, 44), False),  # both in one step of a framework's
        (_call("reduce_scatter", 1, 0), _call("all_gather", 2, 44), False),
    ],
)
def test_what_one_line_makes_leaves_no_loop_of_the_program(own: model.Call, usual: model.Call, may: bool) -> None:
    assert may_leave_a_loop(own, usual) is may
