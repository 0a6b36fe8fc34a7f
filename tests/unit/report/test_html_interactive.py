"""The interactive page of an incident: the incident in a page that was built before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Incident
from hangwatch.report import html
from hangwatch.report.html import interactive
from hangwatch.wire import codec
from tests import examples

TEMPLATE = f"""<!doctype html><html><head><meta content="{interactive.STYLES}'sha256-page'">{interactive.TITLE}</head>
<body><script id="incident" type="application/json">{interactive.PLACE}</script>
<noscript>{interactive.WITHOUT_SCRIPT}</noscript><script>run()</script></body></html>"""
SOURCE = Path(__file__).parents[3] / "dashboard" / "web" / "incident.html"
EVIL = f"</script><script>alert(1)</script><!-- {interactive.WITHOUT_SCRIPT} {interactive.PLACE} \ud800"


def embedded(text: str) -> Incident:
    data = text.split('<script id="incident" type="application/json">', 1)[1].split("</script>", 1)[0]
    return codec.decode(Incident, json.loads(data))


def test_the_page_that_is_built_has_the_places() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    for place in (interactive.TITLE, interactive.PLACE, interactive.WITHOUT_SCRIPT):
        assert source.count(place) == 1


def test_the_incident_stands_in_the_page() -> None:
    text = interactive.filled(TEMPLATE, examples.uneven_steps(), "<p>without script</p>")
    assert embedded(text).verdict == examples.uneven_steps().verdict
    assert "<title>vision: HUNG, proven, 3.1 s after the last step; cause proven</title>" in text
    assert "<noscript><p>without script</p></noscript>" in text


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The template, as if the dashboard's page were installed."""
    template = tmp_path / "incident.html"
    template.write_text(TEMPLATE)
    monkeypatch.setattr(interactive, "find_template", lambda: template)
    return template


def test_hostile_strings_do_not_leave_their_element(built: Path) -> None:
    made = examples.uneven_steps()
    evil = replace(made, job=replace(made.job, name=EVIL), verdict=replace(made.verdict, summary=EVIL))
    text = html.page(evil)
    assert text.count("<script") == TEMPLATE.count("<script")
    assert text.count("</script") == TEMPLATE.count("</script")
    assert embedded(text).job.name == EVIL


def test_only_what_is_shown_is_embedded() -> None:
    made = examples.uneven_steps()
    rank = made.ranks[0]
    many = tuple(replace(rank.collectives.recent[0], seq=seq) for seq in range(2000))
    made = replace(made, ranks=(replace(rank, collectives=replace(rank.collectives, recent=many)), *made.ranks[1:]))
    recent = interactive.slim(made).ranks[0].collectives.recent
    assert [call.seq for call in recent] == list(range(2000 - interactive.MOST_CALLS, 2000))
    assert all(len(call.frames) == 1 for call in recent)


def test_eight_ranks_fit_into_two_megabytes() -> None:
    made = examples.uneven_steps(8, 5, 4)
    call = replace(made.ranks[0].collectives.recent[0], frames=examples.BACKWARD_STACK * 4)
    ranks = tuple(replace(rank, collectives=replace(rank.collectives, recent=(call,) * 2000)) for rank in made.ranks)
    assert len(codec.dumps(interactive.slim(replace(made, ranks=ranks)))) < 1_500_000


def test_without_script_the_whole_report_is_there_with_its_style(built: Path) -> None:
    text = html.page(examples.uneven_steps())
    _, _, rest = text.partition("<noscript><style>")
    style, _, body = rest.partition("</noscript>")[0].partition("</style>")
    assert f"style-src {interactive._hash(style)} 'sha256-page'" in text, "the page's policy allows it"
    for part in ("Rank 3 ran out of data", "Who waits for whom", "Collectives", "Processes"):
        assert part in body
    assert embedded(text).verdict == examples.uneven_steps().verdict


def test_without_the_page_the_plain_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made = examples.uneven_steps()
    monkeypatch.setattr(interactive, "find_template", lambda: None)
    assert html.page(made) == html.render(made)
