"""A pipeline that sends all microbatches forward before their gradients: a stage with another number is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

LAST = 3
PIPE: dict[str, tuple[int, ...]] = {"pipe": (0, 1, 2, 3)}


def _message(name: str, line: int, peer: int) -> list[Step]:
    return [Call(name, line, 32, "pipe", peer=peer, asynchronous=True)] if 0 <= peer <= LAST else []


def _round(rank: int, microbatches: int) -> list[Step]:
    forward = [*_message("recv", 33, rank - 1), *_message("send", 27, rank + 1)]
    backward = [*_message("recv", 46, rank + 1), *_message("send", 40, rank - 1)]
    return [*forward * microbatches, *backward * microbatches, Sync()]


def _job(odd: int | None, microbatches: int = 8, own: int = 7, window: int = 40) -> JobDumps:
    counts = {rank: own if rank == odd else microbatches for rank in range(LAST + 1)}
    programs = {rank: [*_round(rank, microbatches) * 3, *_round(rank, counts[rank])] for rank in range(LAST + 1)}
    return JobDumps(programs, PIPE, timed=False, window=window)


@pytest.mark.parametrize("own", [7, 9])
@pytest.mark.parametrize("odd", [1, 2])
def test_the_stage_between_two_others_that_made_another_number_of_microbatches(
    odd: int, own: int, tmp_path: Path
) -> None:
    """Calls before its last round are no longer recorded, so that no habit tells."""
    found = verdict(_job(odd, own=own), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("point-to-point-deadlock", "likely", [odd])
    assert f"Rank {odd} made {own} microbatches in its last phase" in found.summary


def test_of_two_ends_alone_neither_is_named_by_its_count(tmp_path: Path) -> None:
    """The first stage has one peer: either of them may be right."""
    found = verdict(_job(0), tmp_path)
    assert "microbatches in its last phase" not in found.summary
