"""Lines behind the exceptions of many ranks."""

from __future__ import annotations

from pathlib import Path

from hangwatch.logs import Logs, behind, tracebacks
from tests.unit.logs.lines import judged
from tests.unit.logs.test_own_words import trace


def test_those_that_are_followed_are_listed_again_only_where_they_change() -> None:
    logs, raised = Logs(), tracebacks.Tracebacks()
    followed = behind.Behind(raised)
    for rank in range(2):
        for line in trace(rank, "ValueError: bad").splitlines():
            raised.take(line, logs, None)
    followed.take(0, "step 1", logs)
    known = followed._now
    followed.take(1, "step 1", logs)
    assert followed._now is known
    for line in trace(1, "ValueError: again").splitlines():
        raised.take(line, logs, None)
    followed.take(1, "step 2", logs)
    assert followed._now is not known
    assert followed._now[1].raised.text == "ValueError: again"


def test_a_later_exception_of_a_rank_counts_its_own_turns(tmp_path: Path) -> None:
    first = [f"[rank{rank}]: step {step}" for step in range(9) for rank in range(2)]
    again = [f"[rank{rank}]: step {step}" for step in range(9, 12) for rank in range(2)]
    lines = [trace(1, "ValueError: bad"), *first, trace(1, "ValueError: worse"), *again]
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    assert "ValueError: worse" in found.verdict.summary
