"""The Health view: a slow rank of a job that runs, its GPU memory, narrow and wide, light and dark, by keyboard."""

from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import Page, expect

from hangwatch.model import StepTimes
from tests.browser.conftest import BOTH, Screen, Served, fits, until
from tests.browser.fleet import Fleet
from tests.browser.test_job import open_job
from tests.browser.test_rules import NAME_OF_FOCUSED, barriers

GIB = 1 << 30


def trained(served: Served, fleet: Fleet, slow: float) -> None:
    """Two minutes of training, of which rank 2 took so much longer for its forward; then the job stands still."""
    assert fleet.snapshot is not None
    first, second = fleet.snapshot.nodes
    foreign = replace(second.gpus[0], processes=second.gpus[0].processes | {4711: 3 * GIB})
    fleet.snapshot = replace(fleet.snapshot, nodes=(first, replace(second, gpus=(foreign, *second.gpus[1:]))))
    fleet.step = 1000
    fleet.beat()
    job = until(lambda: next(iter(served.service.registry.jobs.values()), None))
    ranked = job.ranked()
    last = max(node.taken_at for node, _ in ranked)

    def train() -> None:
        for number in range(25):
            steps = 20 + 30 * number
            at = last - 121 + 5 * number
            job.health.note(at, [(node, replace(beat, times=_times(beat.rank, steps, slow))) for node, beat in ranked])

    served.do(train)


def _times(rank: int, steps: int, slow: float) -> StepTimes:
    return StepTimes(steps, 0.01 * steps, _forward(rank, slow) * steps, 0.2 * steps)


def _forward(rank: int, slow: float) -> float:
    return 0.05 + (slow if rank == 2 else 0.002 * rank)


@BOTH
def test_a_slow_rank_stands_first(page: Page, served: Served, fleet: Fleet, screen: Screen) -> None:
    trained(served, fleet, slow=0.09)
    open_job(page, served)
    page.get_by_role("link", name="Health", exact=True).click()
    main = page.locator("main")
    expect(main).to_contain_text("Rank 2 adds 88 ms to each step, most of it before the end of its forward")
    row = page.get_by_role("region", name="Pace by rank").locator("tbody tr").first
    expect(row).to_contain_text("slow")
    expect(row.get_by_role("link", name="2")).to_be_visible()
    assert row.locator(".spark path").get_attribute("d")
    expect(row.locator(".spark")).to_be_visible()
    expect(row.locator(".stacked")).to_be_visible()  # a picture is something to show on a card, too
    expect(page.get_by_role("region", name="Pace by node").locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("region", name="Parts of the step, quantiles over the ranks")).to_contain_text("Forward")
    # AND the memory that rank 3 holds on the GPU of rank 2 is marked in the matrix
    expect(main).to_contain_text("Rank 3 holds 3.0 GiB on GPU 0 of node-b, which is rank 2's")
    expect(main.locator("td.foreign")).to_contain_text("3.0 GiB")
    assert fits(page, screen.width)
    assert barriers(page) == []


def test_an_even_job_is_called_that_and_everything_can_be_reached_by_keyboard(
    page: Page, served: Served, fleet: Fleet
) -> None:
    trained(served, fleet, slow=0.004)
    open_job(page, served)
    page.get_by_role("link", name="Health", exact=True).click()
    expect(page.locator(".calm")).to_contain_text("No rank is clearly slower than the others")
    expect(page.locator("main tr.at-fault")).to_have_count(0)
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(NAME_OF_FOCUSED))
    assert {"Pace by rank", "Pace by node", "0", "1", "2", "3", "all GPUs"} <= set(reached)
