"""A rank that waits with the others and enqueued fewer calls than they did is told of, and not blamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Stop

CALLS: list[Step] = [Call("all_reduce", 0, 64)] * 24


def _job(stops: dict[int, int]) -> JobDumps:
    return JobDumps({rank: [*CALLS[: stops.get(rank, 24)], Stop()] for rank in range(8)})


def test_a_second_host_that_stopped_sooner_is_told_of(tmp_path: Path) -> None:
    found = verdict(_job({2: 12, 5: 15}), tmp_path)
    assert blamed(found) == [2]
    assert any("up to number 24, and rank 5 up to number 15" in text for text in found.evidence)


@pytest.mark.parametrize("stops", [{2: 12}, {2: 12, 3: 15, 4: 16, 5: 17, 6: 18}])
def test_hosts_that_run_ahead_alike_or_each_for_itself_are_not(stops: dict[int, int], tmp_path: Path) -> None:
    found = verdict(_job(stops), tmp_path)
    assert not any("up to number" in text for text in found.evidence)
