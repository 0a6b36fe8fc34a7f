"""A cause that nothing excludes is told apart from one that was ruled out, wherever a verdict is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hangwatch.commands import evidence_files
from hangwatch.model import Alternative, Certainty, Incident
from hangwatch.report import html, markdown, terminal
from tests import examples
from tests.dump_programs import TURN
from tests.dump_world import JobDumps, every

MAY = "rank 3 may have left that call out"


def _incident() -> Incident:
    made = examples.uneven_steps()
    may = Alternative("skipped-collective", Certainty.UNDETERMINED, MAY, open=True)
    return replace(made, verdict=replace(made.verdict, alternatives=(may, made.verdict.alternatives[0])))


def test_in_the_terminal() -> None:
    text = terminal.render(_incident(), 100, False)
    assert f"\n  or      skipped-collective: {MAY}\n  not     rank-zero-only-collective: " in text


def test_in_markdown() -> None:
    text = markdown.render(_incident())
    open_one, _, excluded = text.partition("**Ruled out**")
    assert "**Not excluded**\n\n- One rank skipped a collective (`skipped-collective`): " in open_one
    assert "rank-zero-only-collective" in excluded
    assert "Not excluded" not in markdown.render(examples.uneven_steps())


def test_on_the_page() -> None:
    page = html.render(_incident())
    assert page.index("Not excluded") < page.index(MAY) < page.index("Ruled out, and why")


def test_dumps_exclude_no_cause(tmp_path: Path) -> None:
    """They show what ranks have enqueued, and no host."""
    JobDumps(every(4, TURN * 4, {2: TURN * 3}), timed=False).write(tmp_path)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert found.verdict.alternatives
    assert all(each.open for each in found.verdict.alternatives)
