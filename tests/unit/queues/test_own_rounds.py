"""Messages of a pipeline, counted by each stage between collectives that it does not share with its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step

STAGES, COLUMNS = 4, 2
PIPES = {f"pp{column}": tuple(range(column, STAGES * COLUMNS, COLUMNS)) for column in range(COLUMNS)}
REPLICAS = {f"dp{stage}": (2 * stage, 2 * stage + 1) for stage in range(STAGES)}


def _stage(rank: int, rounds: int, without: int | None) -> list[Step]:
    """Forward passes of four microbatches, and then the gradients; in its last round `without` makes one less."""
    stage, pipe, steps = rank // COLUMNS, f"pp{rank % COLUMNS}", list[Step]()
    for turn in range(rounds):
        short = (rank, turn) == (without, rounds - 1)
        for _ in range(3 if short else 4):
            receive, send = (Call(what, 1, 64, pipe, peer=rank + by) for what, by in (("recv", -2), ("send", 2)))
            steps += [Call("batch", 81, 0, pipe, parts=(receive,))] if stage else []
            steps += [Call("batch", 88, 0, pipe, parts=(send,))] if stage < STAGES - 1 else []
        steps += [Call("all_reduce", 66, 5000, f"dp{stage}")]
    return steps


@pytest.mark.parametrize("culprit", [6, 7])  # of the last stage, which only receives
def test_a_stage_that_went_on_to_its_gradients_with_a_message_less_left_it_out(culprit: int, tmp_path: Path) -> None:
    programs = {rank: _stage(rank, 3, culprit) for rank in range(STAGES * COLUMNS)}
    found = verdict(JobDumps(programs, PIPES | REPLICAS), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("point-to-point-deadlock", "likely", [culprit])
    assert f"Rank {culprit} left out 1 receive from rank {culprit - 2}, and went on to all_reduce 3" in found.summary
    assert "4 in each of its 2 earlier rounds" in found.summary
    assert found.fix.startswith(f"give each send of rank {culprit - 2} its receive on rank {culprit}")


def _tied(rank: int, counts: list[int]) -> list[Step]:
    """One pipeline whose first and last stage share an embedding; `counts` are the microbatches of each round."""
    steps: list[Step] = []
    for count in counts:
        for _ in range(count):
            steps += [Call("recv", 51, 64, "pp", peer=rank - 1)] if rank else []
            steps += [Call("send", 59, 64, "pp", peer=rank + 1)] if rank < STAGES - 1 else []
        steps += [Call("all_reduce", 77, 900, "embd")] if rank in (0, STAGES - 1) else []
    return steps


def test_one_earlier_round_tells_it_where_all_other_ends_count_alike(tmp_path: Path) -> None:
    programs = {rank: _tied(rank, [8, 7] if rank == 0 else [8, 8]) for rank in range(STAGES)}
    groups = {"pp": tuple(range(STAGES)), "embd": (0, STAGES - 1)}
    found = verdict(JobDumps(programs, groups), tmp_path)
    assert (found.certainty, blamed(found)) == ("likely", [0])
    assert found.summary.startswith("Rank 0 left out 1 send to rank 1, and went on to all_reduce 2 of")


def test_rounds_of_different_numbers_tell_of_no_message_left_out(tmp_path: Path) -> None:
    programs = {rank: _tied(rank, [8, 6, 7] if rank == 0 else [8, 6, 8]) for rank in range(STAGES)}
    groups = {"pp": tuple(range(STAGES)), "embd": (0, STAGES - 1)}
    assert verdict(JobDumps(programs, groups), tmp_path).certainty == "undetermined"


def test_a_stage_that_asks_for_more_than_was_passed_on_may_have_asked_once_too_often(tmp_path: Path) -> None:
    """No collective divides the rounds, and the stage before it has ended: what it received it has passed on."""
    tied = Call("all_reduce", 77, 900, "embd")
    programs = {rank: [step for step in _tied(rank, [12]) if step != tied] for rank in range(STAGES)}
    programs[3] = [*programs[3], Call("recv", 51, 64, "pp", peer=2)]
    found = verdict(JobDumps(programs, {"pp": tuple(range(STAGES))}), tmp_path)
    assert found.certainty == "undetermined"
    assert any(
        "may have made a receive too many: rank 2 passed on all 12" in each.why_not for each in found.alternatives
    )
