"""The page of an incident as one file, opened from disk, without a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from hangwatch.catalogue import BY_ID
from hangwatch.judge import diagnose
from hangwatch.model import Excerpt, Incident, RankReport
from hangwatch.report import html, summary
from hangwatch.report.incident import incident
from hangwatch.wire import codec
from tests import examples
from tests.browser.conftest import BOTH, Screen, Watched, fits
from tests.browser.test_rules import VIEWS, barriers

Open = Callable[[Incident], Page]
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture
def open_file(browser: Browser, tmp_path: Path, screen: Screen) -> Iterator[Open]:
    """Writes an incident's page and opens it, without any network. Afterwards: no error on its console."""
    size = ViewportSize(width=screen.width, height=900)
    context = browser.new_context(viewport=size, color_scheme=screen.scheme, offline=True)
    watch = Watched(context, "file:")
    path = tmp_path / "incident.html"

    def opened(incident: Incident) -> Page:
        path.write_text(html.page(incident), encoding="utf-8")
        page = context.new_page()
        page.goto(path.as_uri())
        return page

    yield opened
    context.close()
    watch.check()


@BOTH
def test_it_opens_from_disk_and_shows_every_view(open_file: Open) -> None:
    page = open_file(examples.uneven_steps(8, 5, 4))
    banner = page.get_by_role("region", name="Verdict")
    expect(banner).to_contain_text("Rank 5 ran out of data")
    expect(banner).to_contain_text("3.1 s after the last step")
    expect(banner.locator(".excerpt li")).to_have_count(7)
    expect(banner.locator(".excerpt [aria-current] code")).to_have_text("dist.barrier()", use_inner_text=True)
    shown = {
        "Collectives": "mismatch",
        "Steps": "rank 5, at fault",
        "Timeline": "sampled once a second",
        "Stacks": "_engine_run_backward",
        "GPUs": "NVIDIA H200",
        "Loader": "250 of 250",
        "Evidence": "took longer than 2 s",
    }
    for view, text in shown.items():
        page.get_by_role("link", name=view, exact=True).click()
        expect(page.locator("main")).to_contain_text(text)
        assert page.url.endswith(f"#/{view.lower()}")
    # A rank has an address in the file too.
    page.goto(page.url.split("#")[0] + "#/ranks/5")
    expect(page.get_by_role("heading", name="Rank 5 on")).to_be_visible()
    # The stacks can be taken to speedscope.
    page.get_by_role("link", name="Stacks", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download for speedscope").click()
    assert "speedscope" in download.value.path().read_text()


@BOTH
def test_the_cause_of_a_real_verdict_explains_itself(open_file: Open, screen: Screen) -> None:
    # GIVEN the file of what the real diagnosis says, offline
    snapshot = examples.uneven_steps_snapshot()
    judgement = diagnose(snapshot)
    page = open_file(incident(judgement, snapshot, id="3f2a", opened_at=1e9, hangwatch_version="0.1.0"))
    known = BY_ID[judgement.verdict.cause]
    banner = page.get_by_role("region", name="Verdict")
    expect(banner.get_by_text(known.explanation)).to_be_hidden()
    # WHEN the cause is opened, by keyboard
    banner.locator("summary", has_text=known.title).focus()
    page.keyboard.press("Enter")
    # THEN the catalogue's text is there, with what the cause is often taken for
    expect(banner.get_by_text(known.explanation)).to_be_visible()
    for other in known.look_alikes:
        expect(banner.get_by_role("listitem").filter(has_text=BY_ID[other].explanation)).to_be_visible()
    assert fits(page, screen.width)
    assert barriers(page) == []


@pytest.mark.parametrize("cause", ["constructor", "a cause of a later version"])
def test_a_cause_that_is_not_in_the_catalogue_is_shown_as_it_is(open_file: Open, cause: str) -> None:
    made = examples.uneven_steps()
    page = open_file(replace(made, verdict=replace(made.verdict, cause=cause)))
    expect(page.locator(".row-why")).to_contain_text(cause)
    expect(page.locator(".row-why details")).to_have_count(0)


def test_a_summary_is_what_the_terminal_writes(open_file: Open) -> None:
    made = examples.uneven_steps()
    page = open_file(made)
    with page.expect_download() as download:
        page.get_by_role("button", name="Summary").click()
    assert download.value.suggested_filename == "incident-3f2a-summary.json"
    saved = codec.loads(Incident, download.value.path().read_text())
    wanted = summary.of(made)
    assert replace(saved, ranks=()) == replace(wanted, ranks=())
    # of a call the file from disk keeps the user's frames alone
    assert [_without_frames(rank) for rank in saved.ranks] == [_without_frames(rank) for rank in wanted.ranks]


def _without_frames(rank: RankReport) -> RankReport:
    calls = tuple(replace(call, frames=()) for call in rank.collectives.open_calls)
    return replace(rank, collectives=replace(rank.collectives, open_calls=calls))


def test_eight_ranks_are_small(tmp_path: Path) -> None:
    made = examples.uneven_steps(8, 5, 4)
    call = replace(made.ranks[0].collectives.recent[0], frames=examples.BACKWARD_STACK * 4)
    calls = tuple(replace(call, seq=seq) for seq in range(2000))
    ranks = tuple(replace(rank, collectives=replace(rank.collectives, recent=calls)) for rank in made.ranks)
    size = len(html.page(replace(made, ranks=ranks)).encode())
    print(f"{size} bytes")
    assert size <= 2_000_000


def test_hostile_strings_stay_text(open_file: Open) -> None:
    made = examples.uneven_steps()
    stack = replace(made.ranks[3].stacks[0], name=EVIL)
    rank = replace(made.ranks[3], last_output=EVIL, waiting_for=EVIL, stacks=(stack,), host=EVIL)
    who = replace(made.verdict.culprits[0], excerpt=Excerpt(EVIL, 88, 87, (EVIL, EVIL)))
    verdict = replace(made.verdict, summary=EVIL, fix=EVIL, evidence=(EVIL,), culprits=(who,))
    page = open_file(replace(made, job=replace(made.job, name=EVIL), ranks=(*made.ranks[:3], rank), verdict=verdict))
    for place in ("", "#/stacks", "#/ranks/3", "#/evidence"):
        page.goto(page.url.split("#")[0] + place)
        expect(page.locator("h1")).to_contain_text("</script><script>")
        assert page.locator("img").count() == 0
        assert page.title() != "owned"
    page.goto(page.url.split("#")[0])
    expect(page.locator(".excerpt .here")).to_contain_text("</script><script>")


@pytest.mark.parametrize("width", [1440, 400])
def test_without_script_the_verdict_is_there(browser: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "incident.html"
    path.write_text(html.page(examples.uneven_steps()), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, viewport={"width": width, "height": 900})
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(path.as_uri())
    for text in ("Rank 3 ran out of data", "Who waits for whom", "Ruled out"):
        assert text in page.inner_text("body")
    # AND it is laid out: labels beside what they name or above it, and nothing wider than the screen
    label, value = (page.locator(".verdict dl").first.locator(part).first.bounding_box() for part in ("dt", "dd"))
    assert label is not None
    assert value is not None
    beside = label["x"] + label["width"] <= value["x"] + 1 and abs(label["y"] - value["y"]) < 12
    assert beside if width > 1000 else beside or label["y"] + label["height"] <= value["y"] + 1
    assert fits(page, width)
    assert said == [], "the page's policy allows the style"
    # AND nothing is cut off: not the badge, not the last line of code, not a column of the ranks
    for name in (".state", "pre.excerpt", ".wide:has(td[data-label='waits for'])"):
        cut = "one => one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1"
        assert not page.locator(name).first.evaluate(cut), name
        box = page.locator(name).first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width, name
    context.close()


@BOTH
@pytest.mark.parametrize("name", sorted(examples.EXAMPLES))
def test_every_kind_of_incident_is_shown_without_a_barrier(open_file: Open, name: str, screen: Screen) -> None:
    page = open_file(examples.EXAMPLES[name]())
    for view in VIEWS:
        page.goto(f"{page.url.split('#')[0]}#{view or '/'}")
        page.locator(".verdict").wait_for()
        expect(page.locator(".kicker .status")).to_have_text(re.compile("hung|waiting|lingering|failed|recovered"))
        assert fits(page, screen.width), view
        assert barriers(page) == [], view
