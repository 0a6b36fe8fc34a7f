"""tests/judged/: the evidence of real programs, judged by the rules of this checkout."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hangwatch.catalogue import BY_ID
from hangwatch.judge import diagnose
from hangwatch.report.incident import snapshot_of
from scripts import judged
from scripts.judged import Truth

TRUTHS = judged.truths()


def programs() -> list[object]:
    return [pytest.param(truth, id=truth.name, marks=list(_marks(truth))) for truth in TRUTHS]


def _marks(truth: Truth) -> Iterator[pytest.MarkDecorator]:
    """What the gallery's evidence reaches is measured; to trace all reports takes three quarters of the time."""
    if truth.known_wrong:
        yield pytest.mark.xfail(reason=truth.known_wrong, strict=True)
    if not truth.name.startswith("gallery-"):
        yield pytest.mark.untraced


@pytest.mark.parametrize("truth", programs())
def test_the_verdict_names_cause_culprits_and_line(truth: Truth) -> None:
    verdict = diagnose(snapshot_of([judged.incident(truth.name)])).verdict
    told = "\n".join((verdict.summary, *verdict.details, *verdict.evidence, verdict.fix))
    assert verdict.cause in truth.causes, told
    blamed = {each.rank for each in verdict.culprits if each.rank is not None}
    assert blamed == set(truth.ranks), told
    assert truth.line in told
    assert "of hangwatch failed" not in told  # a rule that raises finds nothing


def test_each_report_has_its_truth_and_each_truth_a_report() -> None:
    kept = {path.name.removesuffix(judged.ENDING) for path in judged.FOLDER.glob(f"*{judged.ENDING}")}
    assert kept == {truth.name for truth in TRUTHS}
    assert {cause for truth in TRUTHS for cause in truth.causes} <= BY_ID.keys()
    assert all(truth.about and truth.causes for truth in TRUTHS)
