"""Dumps beside a log in which the awaited rank itself says how far it was when the others gave up."""

from __future__ import annotations

from pathlib import Path

from hangwatch.recorder import QueueReader
from tests.dumps import Job, Op, alike, loop
from tests.unit.logs.lines import asked_to_dump, far, gave_up, judged

WHOLE = loop(11, Op("all_reduce", 20), Op("all_reduce", 21), Op("all_reduce", 22))


def evidence(tmp_path: Path, *lines: str) -> tuple[str, ...]:
    """Of dumps of three ranks, of which rank 2 has made 30 calls, beside these lines of the watchdogs."""
    reader = QueueReader()
    for rank, document in Job(3, alike(3, WHOLE, rank2=WHOLE[:30])).documents().items():
        reader.add(rank, document)
    found = judged(tmp_path, "\n".join((gave_up(0, 31), far(0, 31, 33, 30), *lines)), reader=reader).judgement
    assert found is not None
    return found.verdict.evidence


def test_what_the_awaited_rank_says_itself_is_told(tmp_path: Path) -> None:
    said = "rank 2 itself told when the others gave up number 31 of group 0 (default_pg) that its last call there was"
    assert f"{said} number 30" in evidence(tmp_path, asked_to_dump(2, 30, 30))
    # AND a rank that had come to it says nothing of the kind, nor do those that gave up
    assert not any("itself told" in each for each in evidence(tmp_path, asked_to_dump(2, 31, 30), far(1, 31, 33, 30)))
