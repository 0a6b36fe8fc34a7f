"""Another size from the same line: the wrong size, or the next call behind one that was left out."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import Verdict
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every

TURN: list[Step] = [Call("all_reduce", 20, 512), Sync()]


def _gather(size: int) -> list[Step]:
    return [Call("_all_gather_base", 64, size, out=4 * size), Sync()]


def _either_way(found: Verdict) -> bool:
    return any(each.cause == "skipped-collective" for each in found.alternatives)


def test_a_shorter_last_batch_may_have_come_too_early(tmp_path: Path) -> None:
    """All ranks end with it; rank 2 left out a batch before."""
    rounds = [*TURN * 3, *_gather(32) * 5]
    job = JobDumps(every(4, [*rounds, *_gather(27)], {2: [*TURN * 3, *_gather(32) * 4, *_gather(27)]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("collective-mismatch", "likely", [2])
    assert _either_way(found)


def test_where_sizes_change_from_call_to_call_nothing_tells(tmp_path: Path) -> None:
    sizes = [117, 236, 90, 301, 155, 260, 77]
    usual = [step for size in sizes for step in _gather(size)]
    left_out = [step for size in [*sizes[:4], *sizes[5:]] for step in _gather(size)]
    found = verdict(JobDumps(every(4, usual, {2: left_out}), timed=False), tmp_path)
    assert (found.certainty, blamed(found)) == ("undetermined", [2])
    assert _either_way(found)


def test_what_the_others_called_next_from_that_line_excludes_it(tmp_path: Path) -> None:
    """Their hosts ran ahead: the next call is of the usual size."""
    usual = [*TURN * 3, *_gather(32) * 3, *(_gather(32)[:1] * 3)]
    own = [*TURN * 3, *_gather(32) * 3, *_gather(27)]
    found = verdict(JobDumps(every(4, usual, {2: own}), timed=False), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("collective-mismatch", "proven", [2])
    assert not _either_way(found)
