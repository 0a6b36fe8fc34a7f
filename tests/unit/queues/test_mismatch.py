"""Different calls under one number: whether one call was changed, or the ranks are at different places."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from hangwatch.queues.matching import Shape
from tests.dump_verdicts import blamed, verdict, verdict_on
from tests.dump_world import Call, JobDumps, Step, Sync, every, mesh

LAYERS: list[Step] = [Call("all_reduce", 30, 64), Call("all_reduce", 30, 128), Sync()]
LOG: list[Step] = [Call("all_reduce", 40, 3), Sync()]


@pytest.mark.parametrize("frames", [True, False])
def test_a_new_call_of_rank_0_is_first_of_all_one_that_it_makes_alone(frames: bool, tmp_path: Path) -> None:
    programs = every(4, LAYERS * 9, {0: [*LAYERS * 6, *LOG, *LAYERS * 3]})
    found = verdict(JobDumps(programs, frames=frames, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-zero-only-collective", [0], "undetermined")
    assert [each.cause for each in found.alternatives] == ["uneven-steps", "collective-mismatch"]
    assert "make every rank call the same operation" not in found.fix


@pytest.mark.parametrize("frames", [True, False])
def test_a_new_call_of_another_rank_is_first_of_all_the_end_of_its_loop(frames: bool, tmp_path: Path) -> None:
    """Also where one function makes all calls of the program: its lines do not tell where its loop ends."""
    programs = every(4, [*LAYERS * 9, *LOG], {2: [*LAYERS * 8, *LOG]})
    found = verdict(JobDumps(programs, frames=frames, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [2], "undetermined")
    assert "collective-mismatch" in [each.cause for each in found.alternatives]


def test_a_call_that_was_made_by_another_way_before_is_not_called_new(tmp_path: Path) -> None:
    """All ranks evaluate after each epoch; one does so amid its batches, from a line by which none ever came there."""

    def evaluation(via: int) -> list[Step]:
        return [Call("all_reduce", 40, 2, via=via), Sync()] * 2

    epoch = [*LAYERS * 4, *evaluation(90)]
    programs = every(4, epoch * 4, {2: [*epoch * 2, *LAYERS * 2, *evaluation(71), *LAYERS * 2, *epoch]})
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-local-decision", [2], "undetermined")
    assert "Rank 2 never made that call by way of train.py:71 before" in found.summary
    assert "uneven-steps" in [each.cause for each in found.alternatives]


def test_ranks_of_one_replica_with_rank_0_among_them_may_be_alone_in_their_call(tmp_path: Path) -> None:
    few = {rank: [*LAYERS * 6, *LOG, *LAYERS * 3] for rank in (0, 4)}
    found = verdict(JobDumps(every(8, LAYERS * 9, few), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("rank-zero-only-collective", [0, 4])


def test_another_operation_on_the_same_tensor_is_the_other_way_of_a_branch(tmp_path: Path) -> None:
    branch: list[Step] = [*LAYERS * 6, Call("_all_gather_base", 35, 64, out=256), Sync()]
    found = verdict(JobDumps(every(4, LAYERS * 9, {2: branch}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("collective-mismatch", [2], "likely")


def test_without_lines_another_type_alone_is_first_of_all_a_changed_call(tmp_path: Path) -> None:
    changed: list[Step] = [*LAYERS * 6, Call("all_reduce", 30, 64, dtype="Float"), Sync()]
    found = verdict(JobDumps(every(4, LAYERS * 9, {0: changed}), timed=False, frames=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("collective-mismatch", [0], "undetermined")


def test_calls_of_two_functions_that_one_line_calls_are_first_of_all_one_call(tmp_path: Path) -> None:
    """The line chooses what it calls; since a trainer's line does so for all of its hooks, nothing is likely."""
    job = JobDumps(every(4, LAYERS * 9, {2: [*LAYERS * 6, Call("all_reduce", 90, 5), Sync()]}), timed=False)
    documents = job.documents()
    for entry in (entry for document in documents.values() for entry in document["entries"]):
        caller = next(frame for frame in entry["frames"] if frame["line"] in (30, 90))
        caller["name"] = f"hook_{caller['line']}"
    job.documents = lambda: documents  # type: ignore[method-assign]
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("collective-mismatch", [2], "undetermined")


@pytest.mark.parametrize("short", [0, 1])
def test_of_two_ranks_the_one_that_ends_its_loop_sooner_than_ever_has_left_it(short: int, tmp_path: Path) -> None:
    epoch: list[Step] = [*LAYERS * 9, *LOG]
    programs = every(2, epoch * 3, {short: [*epoch, *LAYERS * 8, *LOG, *epoch]})
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [short], "likely")


def test_a_log_call_that_is_left_out_is_told_where_rings_begin_within_a_period(tmp_path: Path) -> None:
    """The first period on record is cut off; with a round more than the others, the rank would have logged soon."""
    layers = LAYERS[:-1]
    period: list[Step] = [*layers * 5, LOG[0]]
    programs = every(4, [*period * 8, Sync()], {3: [*period * 5, *layers * 5, *period * 2, Sync()]})
    found = verdict(JobDumps(programs, timed=False, window=50), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [3], "likely")


def test_a_call_left_out_in_the_first_round_of_a_mesh_is_told_by_the_ranks_of_all_rows(tmp_path: Path) -> None:
    """There is no earlier round which most ranks could have left."""

    def turn(rank: int, *, whole: bool = True) -> list[Step]:
        row, column = f"tp{rank // 2}", f"dp{rank % 2}"
        layers: list[Step] = [Call("all_reduce", 40, 16, row), Call("all_reduce", 50, 256, column)] * 2
        norm = [Call("all_reduce", 60, 1, row)] if whole else []
        return [*layers, *norm, Call("all_reduce", 61, 1, column), Sync()]

    programs = {rank: [*turn(rank, whole=rank != 2), *turn(rank) * 3] for rank in range(4)}
    found = verdict(JobDumps(programs, mesh(2, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [2], "likely")


def test_two_like_sizes_alone_are_a_changed_call_and_two_unlike_ones_tell_nothing(tmp_path: Path) -> None:
    """Nothing is recorded before, and no line: an end of a loop shows the same as a call alone."""
    for name, size, cause, certainty in (
        ("like", 60, "collective-mismatch", "likely"),
        ("unlike", 1, "collective-mismatch", "undetermined"),
    ):
        job = JobDumps(every(4, [LAYERS[0], Sync()], {2: [Call("all_reduce", 50, size), Sync()]}), frames=False)
        found = verdict(job, tmp_path / name)
        assert (found.cause, blamed(found), found.certainty) == (cause, [2], certainty)


def test_a_rank_without_a_dump_may_have_died(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, LAYERS * 4, {2: LAYERS * 2}), silent=(2,)), tmp_path)
    assert (found.cause, blamed(found)) == ("undetermined", [2])
    assert [each.cause for each in found.alternatives] == ["rank-died"]
    assert any("a process that has ended or is frozen writes none" in said for said in found.evidence)


BUCKETS = [Call("all_reduce", 71, size) for size in (64, 4096)]


def test_a_call_of_all_rounds_is_none_that_was_changed(tmp_path: Path) -> None:
    """The order of the calls, all of one line, may lack one call or have one more: both explain what comes behind."""
    programs = every(4, [*BUCKETS * 8, Sync()], {2: [*BUCKETS * 4, *BUCKETS[1:], *BUCKETS * 3, Sync()]})
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [2], "undetermined")
    assert "made such calls in earlier rounds too" in found.summary


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_those_of_other_rows_tell_which_has_another_size(odd: int, tmp_path: Path) -> None:
    def turn(rank: int) -> list[Step]:
        return [Call("broadcast", 20, 64), Call("all_reduce", 50, 60 if rank == odd else 64, f"tp{rank // 2}"), Sync()]

    found = verdict(JobDumps({rank: turn(rank) for rank in range(4)}, mesh(2, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("collective-mismatch", [odd], "likely")


def test_a_new_call_is_no_sign_where_the_other_rank_left_its_own_order(tmp_path: Path) -> None:
    """Rank 1 evaluates twice, and rank 0 goes on to the end."""
    epoch: list[Step] = [*LAYERS * 3, *LOG]
    end: list[Step] = [Call("barrier", 99, 1), Sync()]
    found = verdict(JobDumps(every(2, [*epoch * 3, *end], {1: [*epoch * 3, *LOG, *end]}), timed=False), tmp_path)
    assert (blamed(found), found.certainty) == ([0, 1], "undetermined")


@pytest.mark.parametrize("layers", [4, 20])
def test_calls_without_lines_may_be_layers_of_a_step_as_well_as_a_short_loop(layers: int, tmp_path: Path) -> None:
    layer = Call("all_to_all", 40, 64)
    step: list[Step] = [*[layer] * layers, Call("all_reduce", 50, 256)]
    programs = every(4, [*step * 4, Sync()], {2: [*step, *step[1:], *step * 2, Sync()]})
    found = verdict(JobDumps(programs, timed=False, frames=False), tmp_path)
    assert (found.cause, blamed(found)) == ("uneven-steps", [2])
    assert found.certainty == ("undetermined" if layers == 4 else "likely")


def test_a_call_made_once_more_may_be_just_that(tmp_path: Path) -> None:
    """To leave out the six calls up to the next such one would look the same."""
    layers: list[Step] = [Call("_all_gather_base", 20 + place, 64, out=256) for place in range(6)]
    norm: list[Step] = [Call("all_reduce", 40, 1), Sync()]
    programs = every(4, [*layers, *norm] * 6, {2: [*[*layers, *norm] * 3, *norm]})
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert (blamed(found), found.certainty) == ([2], "undetermined")
    assert {"skipped-collective", "rank-local-decision"} <= {found.cause, *(x.cause for x in found.alternatives)}


def test_a_collective_made_once_more_in_a_pipeline_leaves_no_message_out(tmp_path: Path) -> None:
    act = Call("send", 24, 64, peer=1)
    loss: list[Step] = [Call("all_reduce", 40, 1), Sync()]
    stages = {
        0: [*[act] * 3, *loss],
        1: [*[Call("recv", 20, 64, peer=0)] * 3, *loss],
    }
    found = verdict(JobDumps({0: stages[0] * 5, 1: [*stages[1] * 3, *loss, *stages[1] * 2]}, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-local-decision", [1], "undetermined")
    assert "right behind the one before, as never until then" in found.summary


def test_the_rank_that_makes_the_last_call_once_more_is_named_and_not_those_that_ended(tmp_path: Path) -> None:
    turn: list[Step] = [*LAYERS, *LOG]
    found = verdict(JobDumps(every(4, turn * 4, {2: [*turn * 4, *LOG]}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-local-decision", [2], "undetermined")


@pytest.mark.parametrize("frames", [True, False])
def test_two_calls_left_out_are_not_proven_where_one_made_twice_explains_as_much(frames: bool, tmp_path: Path) -> None:
    turn: list[Step] = [Call("all_to_all", 40, 64), Call("all_to_all", 47, 64), Call("all_reduce", 50, 256)]
    programs = every(4, [*turn * 9, Sync()], {2: [*turn * 4, turn[0], *turn * 4, Sync()]})
    found = verdict(JobDumps(programs, timed=False, frames=frames), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [2])
    assert found.certainty == ("likely" if frames else "undetermined")
    assert [each.cause for each in found.alternatives] == ["rank-local-decision"]


def test_a_call_of_one_of_two_ranks_that_no_other_row_knows_is_made_alone(tmp_path: Path) -> None:
    """The other rank of its row has ended, and completed all; so have the other rows, of which no rank made it."""
    steps: dict[int, list[Step]] = {
        rank: [Call("all_reduce", 40, 16, f"tp{rank // 2}"), Call("all_reduce", 50, 256, f"dp{rank % 2}"), Sync()] * 4
        for rank in range(4)
    }
    steps[0] += [Call("all_reduce", 90, 3, "tp0"), Sync()]
    found = verdict(JobDumps(steps, mesh(2, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-zero-only-collective", [0], "likely")


def test_one_rank_of_many_that_made_a_call_again_or_left_one_out_is_named_alone(tmp_path: Path) -> None:
    log: list[Step] = [Call("all_reduce", 40, 1), Sync()]
    turn: list[Step] = [Call("all_reduce", 71, 64)] * 3
    again: list[Step] = [*[*turn, *log] * 3, *turn, *turn[:1], *log]
    found = verdict(JobDumps(every(5, [*turn, *log] * 6, {3: again}), timed=False), tmp_path)
    assert (blamed(found), found.certainty) == ([3], "undetermined")


def test_the_one_of_two_ranks_without_a_dump_is_named(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(2, LAYERS * 4, {1: LAYERS * 2}), silent=(1,), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("undetermined", [1])


@pytest.mark.parametrize("odd", [0, 1])
def test_other_rows_tell_also_of_the_very_first_call(odd: int, tmp_path: Path) -> None:
    def turn(rank: int) -> list[Step]:
        return [Call("all_reduce", 50, 60 if rank == odd else 64, f"tp{rank // 2}"), Sync()]

    found = verdict(JobDumps({rank: turn(rank) for rank in range(6)}, mesh(3, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("collective-mismatch", [odd])


def _only_active(job: JobDumps, folder: Path, backward: set[int]) -> None:
    """Dumps of what is not complete alone, with the calls of these lines made by torch's own thread."""
    for rank, document in job.documents().items():
        for entry in document["entries"]:
            if any(frame["line"] in backward for frame in entry["frames"]):
                entry["frames"] = []
        document["entries"] = [each for each in document["entries"] if each["state"] != "completed"]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, protocol=2))


def test_a_call_of_backward_where_others_log_is_first_of_all_that_log_left_out(tmp_path: Path) -> None:
    """The record of one rank has calls of backward alone: that they came from no line is told, and not unknown."""
    programs = every(4, [*LAYERS * 6, *LOG, *LAYERS * 3], {2: LAYERS * 9})
    _only_active(JobDumps(programs, timed=False), tmp_path, {30})
    found = verdict_on(tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [2], "undetermined")
    assert [each.cause for each in found.alternatives] == ["uneven-steps"]
    assert "from no line of the program, as in backward" in found.summary


class ShortOfData(JobDumps):
    """In exchange 5 rank 3 expects more than it is sent: the others are through, and wait for it in exchange 6."""

    def document(self, rank: int) -> dict[str, Any]:
        found = super().document(rank)
        last = 4 if rank == 3 else 5
        entries = [
            entry | {"state": "started", "retired": False, "time_discovered_completed_ns": None}
            if entry["collective_seq_id"] > last
            else entry
            for entry in found["entries"]
        ]
        if rank == 3:
            entries[4] |= {"output_sizes": [[80]]}
        status = {"0": {**found["pg_status"]["0"], "last_completed_collective": str(last)}}
        return found | {"entries": entries, "pg_status": status}


def test_who_is_left_alone_in_an_exchange_that_does_not_fit_expects_more_than_it_gets(tmp_path: Path) -> None:
    exchange: list[Step] = [Call("all_to_all", 40, 64), Sync()]
    found = verdict(ShortOfData(every(4, exchange * 6), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("collective-mismatch", [3], "likely")  # as never before
    assert "all_to_all 5 of the default group" in found.summary
    assert "of all only rank 3 still waits in it" in found.summary
    assert found.evidence[0].startswith("number 5 of the default group: rank 3: all_to_all of 64 elements for 80")
    assert "input_split_sizes" in found.fix


def test_the_shape_of_a_call_counts_one_element_as_one() -> None:
    assert str(Shape("broadcast", 1, 1, "int64")) == "broadcast (1 element, int64)"
    assert str(Shape("all_gather", 1, 8)) == "all_gather (1 to 8 elements)"
    assert str(Shape("all_reduce", 4096, 4096)) == "all_reduce (4,096 elements)"
    assert str(Shape("barrier")) == "barrier"


@pytest.mark.parametrize(("behind", "cause"), [([], "uneven-steps"), (LOG, "collective-mismatch")])
def test_rounds_more_that_are_recorded_are_mended_by_as_many_rounds_and_not_by_sizes(
    behind: list[Step], cause: str, tmp_path: Path
) -> None:
    """All others have come to a call behind their loop, which is new to all."""
    ahead = [step for step in [*LAYERS * 2, *behind] if not isinstance(step, Sync)]
    job = JobDumps(every(8, [*LAYERS * 6, *LOG], {3: [*LAYERS * 6, *ahead]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty) == (cause, "undetermined")
    assert 3 in blamed(found)
    assert found.fix.startswith("call it as often on every rank")


def test_rounds_more_are_counted(tmp_path: Path) -> None:
    ahead = [step for step in LAYERS * 2 if not isinstance(step, Sync)]
    found = verdict(JobDumps(every(8, [*LAYERS * 6, *LOG], {3: [*LAYERS * 6, *ahead]}), timed=False), tmp_path)
    assert "Rank 3 made 4 calls like those of the rounds before from there on" in found.summary
    assert "collective-mismatch" in [each.cause for each in found.alternatives]


def test_calls_in_another_order_are_mended_by_one_order_and_not_by_their_sizes(tmp_path: Path) -> None:
    turn: list[Step] = [Call("all_reduce", 30, 64), Call("all_reduce", 31, 128), Call("broadcast", 32, 8), Sync()]
    crossed: list[Step] = [turn[1], turn[0], turn[2]]
    found = verdict(JobDumps(every(4, turn * 8, {2: [*turn * 5, *crossed, *turn * 2]}), timed=False), tmp_path)
    assert blamed(found) == [2]
    assert "in another order" in found.summary
    assert found.fix.startswith("make these calls in one order on every rank")


def test_one_operation_of_another_size_without_lines_is_no_other_collective(tmp_path: Path) -> None:
    layers: list[Step] = [Call("_reduce_scatter_base", 30, 600, out=100), Sync()]
    padded: list[Step] = [Call("_reduce_scatter_base", 30, 660, out=110), Sync()]
    programs = every(6, layers * 6, {2: [*layers * 5, *padded]})
    found = verdict(JobDumps(programs, frames=False, timed=False), tmp_path)
    assert blamed(found) == [2]
    assert found.summary.startswith("The ranks give _reduce_scatter_base different sizes or types as number 6")
    assert "in the place of" not in found.summary


class Nested(JobDumps):
    """A call of line 14 is made by a helper, which the function that makes all other calls called at line 12."""

    def document(self, rank: int) -> dict[str, Any]:
        found = super().document(rank)
        for entry in found["entries"]:
            if entry["frames"][1]["line"] == 14:
                outer = {"name": "train_step", "filename": entry["frames"][1]["filename"], "line": 12}
                entry["frames"][1:2] = [entry["frames"][1] | {"name": "on_error"}, outer]
        return found


def test_a_call_of_a_helper_in_the_function_of_the_loop_need_not_be_behind_the_loop(tmp_path: Path) -> None:
    program: list[Step] = [Call("broadcast", 9, 640), Sync()] * 6
    failed: list[Step] = [*program[:8], Call("barrier", 14, 0), Sync()]
    found = verdict(Nested(every(6, program, {3: failed}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-local-decision", [3], "undetermined")
    assert "uneven-steps" in [each.cause for each in found.alternatives]


@pytest.mark.parametrize("alike", [True, False])
def test_ranks_that_wait_for_the_odd_one_in_another_group_are_told_of(alike: bool, tmp_path: Path) -> None:
    """Rank 1 may have made their call, and in the wrong group, where it is the same one."""
    groups: dict[str, tuple[int, ...]] = {"node0": (0, 1, 2, 3), "node1": (4, 5, 6, 7)}

    def rounds(rank: int, count: int) -> list[Step]:
        own: list[Step] = [Call("all_reduce", 10, 64), Call("barrier", 30, 1, f"node{rank // 4}"), Sync()]
        return own * count

    programs = {rank: rounds(rank, 4) for rank in range(8)}
    programs[1] = [*rounds(1, 2), Call("all_reduce", 10, 64), Call("barrier" if alike else "all_gather", 34, 1), Sync()]
    found = verdict(JobDumps(programs, groups), tmp_path)
    assert blamed(found) == [1]
    assert (found.waits[0].rank, found.waits[0].also, found.waits[0].awaited) == (0, (2, 3), (1,))
    told = [each.why_not for each in found.alternatives]
    assert any("rank 1 may have made that call in the default group instead" in each for each in told) is alike


@pytest.mark.parametrize(
    ("size", "dtype", "told"),
    [(512, "Float", "a dtype"), (500, "BFloat16", "a size"), (500, "Float", "a size and dtype")],
)
def test_what_is_new_of_a_call_is_named_and_not_its_size_in_any_case(
    size: int, dtype: str, told: str, tmp_path: Path
) -> None:
    turn: list[Step] = [Call("all_reduce", 0, 512), Call("all_reduce", 0, 64)]
    odd = [*turn * 3, Call("all_reduce", 0, size, dtype=dtype), Sync()]
    found = verdict(JobDumps(every(4, [*turn * 6, Sync()], {2: odd})), tmp_path, as_json=True)
    assert f"Rank 2 never gave that call such {told} before." in found.summary


@pytest.mark.parametrize(("size", "dtype", "pads"), [(64, "Float", False), (60, "BFloat16", True)])
def test_only_sizes_are_to_be_padded_and_not_types(size: int, dtype: str, pads: bool, tmp_path: Path) -> None:
    """GIVEN one call in which a rank differs, WHEN it does in the type alone, THEN the fix is about the type."""
    odd: list[Step] = [*LAYERS * 3, Call("all_reduce", 30, size, dtype=dtype), *LAYERS[1:]]
    found = verdict(JobDumps(every(4, LAYERS * 4, {2: odd})), tmp_path)
    assert (found.cause, blamed(found)) == ("collective-mismatch", [2])
    assert ("pad to" in found.fix, "one dtype on every rank" in found.fix) == (pads, not pads)
