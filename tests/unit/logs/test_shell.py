"""What a shell says of a command that SIGKILL has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, read
from tests.unit.logs.lines import gave_up, judged


@pytest.mark.parametrize("said", ["Killed", "run.sh: line 12:  4711 Killed                  python train.py"])
def test_the_last_line_tells_that_the_job_was_killed_and_not_by_whom(said: str, tmp_path: Path) -> None:
    found = judged(tmp_path, f"step 1\nstep 2\n{said}\n").judgement
    assert found is not None
    assert (found.status, found.verdict.cause, found.verdict.culprits) == ("failed", "undetermined", ())
    assert "SIGKILL ended a process of this job" in found.verdict.summary
    assert "dmesg" in found.verdict.fix


def test_what_comes_behind_it_goes_on(tmp_path: Path) -> None:
    for text in ("Killed\nstep 3\n", "Killed 3 stale workers\n"):
        path = tmp_path / "run.log"
        path.write_text(text)
        assert not read(path, Logs())


def test_other_lines_tell_more(tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join((*(gave_up(rank, 7) for rank in (0, 1, 3)), "Killed"))).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [2]
