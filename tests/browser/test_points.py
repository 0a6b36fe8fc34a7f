"""What a reader of the page needs, point by point: words while a job waits, its end, large jobs, narrow screens."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from hangwatch.model import Culprit, Incident
from tests import examples
from tests.browser.conftest import Served, fits, until
from tests.browser.fleet import Fleet
from tests.browser.test_file import Open, open_file
from tests.browser.test_job import hang, open_job
from tests.browser.test_rules import barriers

__all__ = ["open_file"]


def test_it_counts_down_and_says_why_a_job_waits(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN a job of which one rank is awaited by the others, which hangwatch does not judge yet
    fleet.step = 100
    fleet.beat()
    open_job(page, served)
    expect(page.locator(".countdown")).to_have_count(0)
    fleet.texts = {0: {"waiting_for": "all_reduce 201 of group 0"}}
    fleet.still = 20.0
    fleet.live(0.5)
    # THEN the page says for how long, until when, and why
    countdown = page.locator(".countdown")
    expect(countdown).to_contain_text(re.compile(r"No rank has moved for \d+ s: called hung in 1\d\d s"))
    expect(countdown).to_contain_text("Rank 0 waits for all_reduce 201 of group 0")
    before = countdown.inner_text()
    expect(countdown).not_to_have_text(before, use_inner_text=True)


def test_time_stands_still_when_a_job_has_ended(page: Page, served: Served, fleet: Fleet) -> None:
    hang(page, served, fleet)
    fleet.stop()
    expect(page.get_by_role("button", name="Capture now").first).to_be_visible()
    fleet.exit_code = 1
    fleet.finish()
    expect(page.locator(".verdict .after")).to_contain_text("the job ended")
    expect(page.locator(".facts-line")).to_contain_text("ended")
    expect(page.locator("header.title").get_by_role("button", name="Capture now")).to_have_count(0)
    expect(page.locator("h1")).to_contain_text("failed")


def test_a_verdict_is_copied_as_markdown(page: Page, served: Served, fleet: Fleet) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    hang(page, served, fleet)
    page.get_by_role("button", name="Copy as Markdown").click()
    copied = until(lambda: page.evaluate("navigator.clipboard.readText()"))
    for text in ("in `vision`", "> Rank 3 ran out of data", "(`uneven-steps`), cause proven", "train.py:88`", page.url):
        assert text in copied


def test_rows_have_the_words_of_the_field(page: Page, served: Served, fleet: Fleet) -> None:
    hang(page, served, fleet)
    labels = page.locator(".verdict .row dt")
    words = {"Who", "Fix", "Cause", "Evidence", "Proof", "Ruled out", "Unavailable"}
    until(lambda: set(labels.all_inner_texts()) == words)  # the last rows come with the incident itself
    expect(page.locator(".row-why")).to_contain_text("Ranks ran out of data at different batches uneven-steps")


def test_a_line_has_an_address_and_keys_turn_pages(page: Page, served: Served, fleet: Fleet) -> None:
    hang(page, served, fleet)
    page.get_by_role("link", name="Link to line 88").first.click()
    assert page.url.endswith("#train.py-L88")
    page.reload()
    expect(page.locator(".excerpt .named").first).to_be_in_viewport()
    page.keyboard.press("]")
    expect(page.locator("nav.views [aria-current]")).to_have_text("Diff")
    page.keyboard.press("[")
    page.locator(".situations a").first.click()
    expect(page.get_by_role("heading", name="Rank 3 on")).to_be_visible()
    page.keyboard.press(",")
    expect(page.get_by_role("heading", name="Rank 2 on")).to_be_visible()
    page.goto(served.url)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search jobs")).to_be_focused()


@pytest.mark.parametrize("width", [1440, 400])
def test_long_names_and_messages_stay_within_the_page(page: Page, served: Served, fleet: Fleet, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    fleet.name, fleet.command = "a-very-long-name-of-a-run-" * 8, "train.py --config " + "configs/" * 100
    fleet.beat()
    page.goto(served.url)
    row = page.locator("tbody tr")
    expect(row).to_contain_text("running")
    for text in ("4", "2"):  # ranks and nodes are on the screen, not beside it
        box = row.get_by_text(text, exact=True).first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
    assert fits(page, width)
    page.locator("tbody th a").click()
    page.locator("canvas").first.wait_for()
    assert fits(page, width)
    assert barriers(page) == []


def test_on_a_narrow_screen_the_culprits_branch_is_seen(page: Page, served: Served, fleet: Fleet) -> None:
    page.set_viewport_size({"width": 400, "height": 900})
    hang(page, served, fleet)
    page.goto(f"{page.url}/stacks")
    expect(page.locator(".box[aria-pressed=true]")).to_be_in_viewport(ratio=0.9)
    expect(page.locator("nav.views [aria-current]")).to_be_in_viewport(ratio=0.9)


def with_a_stuck_worker() -> Incident:
    """A loader worker of rank 1 is at fault; every rank of the job waits."""
    made = examples.uneven_steps()
    ranks = tuple(
        replace(
            rank,
            workers=tuple(
                replace(worker, rank=rank.rank, facts=replace(worker.facts, pid=9000 + 10 * rank.rank + number))
                for number, worker in enumerate(rank.workers or made.ranks[0].workers)
            ),
        )
        for rank in made.ranks
    )
    worker = ranks[1].workers[0]
    who = Culprit(1, worker.facts.pid, ranks[1].host, "loader-worker", made.verdict.culprits[0].where)
    verdict = replace(made.verdict, culprits=(who,), victims=(0, 1, 2, 3))
    return replace(made, ranks=ranks, verdict=verdict)


@pytest.mark.parametrize("width", [1440, 400])
def test_a_worker_that_is_named_is_marked_and_its_stack_shown(open_file: Open, width: int) -> None:
    page = open_file(with_a_stuck_worker())
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(page.url.split("#")[0] + "#/loader")
    row = page.get_by_role("region", name="Loader workers").locator("tr.at-fault")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("9010")
    expect(row).to_contain_text("at fault")
    expect(page.locator(".chosen")).to_contain_text("Worker 0 of rank 1, pid 9010")
    expect(page.locator(".chosen .frames li").first).to_be_visible()
    # AND in the drawing the rank of the worker alone is at fault
    page.goto(page.url.split("#")[0] + "#/")
    expect(page.locator(".drawing .fault")).to_have_count(1)
    expect(page.locator(".drawing .fault .name")).to_have_text("rank 1")
    assert barriers(page) == []


def test_last_output_stands_beside_the_stacks(page: Page, served: Served, fleet: Fleet) -> None:
    hang(page, served, fleet)
    page.goto(f"{page.url}/ranks/3")
    output = page.get_by_label("Last output", exact=True)
    expect(output).to_contain_text("epoch 0 step 240")
    stack = page.locator(".thread").first.bounding_box()
    beside = output.bounding_box()
    assert stack is not None
    assert beside is not None
    assert beside["x"] >= stack["x"] + stack["width"]


def test_many_ranks_are_found_and_calm_nodes_collapse(page: Page, served: Served) -> None:
    large = Fleet(served.url, world_size=128, per_node=8)
    large.snapshot = examples.uneven_steps_snapshot(128, 3, 8)
    large.step = 249
    large.beat()
    open_job(page, served)
    expect(page.locator(".told")).to_contain_text("128 ranks on 16 nodes")
    large.live(0.5)
    large.hang()
    try:
        page.locator(".verdict").wait_for()
        expect(page.locator(".collapsed")).to_contain_text("15 nodes with 120 ranks")
        expect(page.locator(".told")).to_contain_text("8 ranks on 1 node")
        page.get_by_role("button", name="Show all nodes").click()
        expect(page.locator(".told")).to_contain_text("128 ranks on 16 nodes")
        page.get_by_label("Go to rank").fill("999")
        page.keyboard.press("Enter")
        expect(page.locator(".go-to")).to_contain_text("no such rank")
        page.set_viewport_size({"width": 400, "height": 900})
        expect(page.get_by_label("Go to rank")).to_be_visible()
        assert fits(page, 400)
        page.get_by_label("Go to rank").fill("100")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Rank 100 on")).to_be_visible()
    finally:
        large.stop()
