"""What the condition in front of a call asks for, by its source."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.model import Frame
from hangwatch.source.hints import ways_past_call

FILE = "/home/ann/train.py"

LOOP = """
def reduced(value):
    dist.all_reduce(value)
    return value.item()

def noted(epoch):
    return 0.5 if epoch % 2 else args.loss

def measured(epoch):
    return SCORES[rank][epoch]

class Stopper:
    def due(self, epoch):
        return time.monotonic() > self.until
    def tick(self):
        self.n += 1
def on_signal(number, frame):
    job.leaving = True

def main(args):
    best, spike, loss = 9.0, CEILING, 0.0
    is_best = score < best
    shared = reduced(score)
    dist.broadcast(flag, 0)
    boxes = find(batch)
    chosen_idx, gate = router(batch)
    first = rank == 0
    seen = 0
    for batch in shard:
        seen += len(batch)
    for step, batch in enumerate(loader):
        for part in batch:
            if {condition}:
                gather()  # here
            dist.broadcast(part, 0)
"""


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        ("score < best", "value"),
        ("is_best", "value"),
        ("time.monotonic() - begun > 60", "value"),
        ("stopper.should_stop(score)", "value"),
        ("self.improved", "value"),
        ("measured(epoch) < 0.5", "value"),
        ("self.due(epoch)", "value"),
        ("self.preemption.requested", "value"),
        ("job.leaving", "value"),
        ("random.random() < 0.1", "value"),
        ("step % 10 == 0 and score < best", "value"),
        ("self.best is not None and score > self.best", "value"),
        ("not score < best", "value"),
        ("model(batch).pow(2).mean().item() > 1", "value"),
        ("boxes.quantile(0.9) > 3", "value"),
        ("rank == 0 and score < best", "rank"),
        ("first", "rank"),
        ("boxes", "check"),
        ("len(boxes) > 0", "check"),
        ("batch is not None", "check"),
        ("torch.isfinite(score)", "check"),
        ("not torch.isnan(score).any()", "check"),
        ("mask.any()", "check"),
        ("(labels == 1).any()", "check"),
        ("torch.any(widths > 0)", "check"),
        ("(load > 0.3).any()", "value"),
        ("is_best.all()", "value"),
        ("(chosen_idx == step).nonzero()[0].numel() == 0", "check"),
        ("chosen_idx > 3", "value"),
        ("idx % 10 == 0", "alike"),
        ("self.n % 10 == 0", "alike"),
        ("not (self.n + 1) % LOG_EVERY", "alike"),
        ("self.n > 10", "value"),
        ("self.parity % 2 == 0", "value"),
        ("self.n % spike.item() == 0", "value"),
        ("step % args.every == 0", "alike"),
        ("step > WARM_UP", "alike"),
        ("self.config.save", "alike"),
        ("part.grad is None", "check"),
        ("seen", "check"),
        ("seen > 100", "value"),
        ("shared < 0.5", "alike"),
        ("flag", "alike"),
        ("flag.item() > 0", "alike"),
        ("reduced(score) < 0.5", "alike"),
        ("self.global_step % 5 == 0", "alike"),
        ("epoch == 3", "alike"),
        ("schedule.due(step)", "alike"),
        ("noted(epoch) < 0.5", "alike"),
        ("reduced(score).clamp(0) > 1", "alike"),
    ],
)
def test_what_a_condition_asks_for(condition: str, asked: str) -> None:
    text = textwrap.dedent(LOOP.format(condition=condition)).strip("\n")
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "# here" in each)
    (way,) = ways_past_call((Frame(FILE, line, "main"),), lambda file: text)
    assert (way.asks, way.of_turn) == (asked, False)


def test_a_continue_ends_the_turn_and_a_return_the_call_alone() -> None:
    text = "def save(x):\n    if x > y: return\n    gather()\nfor b in l:\n    if b > c: continue\n    save(b)\n"
    ways = ways_past_call((Frame(FILE, 3, "save"), Frame(FILE, 6, "<module>")), lambda file: text)
    assert [(way.where.line, way.asks, way.of_turn) for way in ways] == [(2, "value", False), (5, "value", True)]


@pytest.mark.parametrize(("condition", "asked"), [("trainer.sanity_checking", "alike"), ("trainer.is_better", "value")])
def test_a_phase_of_a_trainer_is_alike_on_all_ranks(condition: str, asked: str) -> None:
    text = f"def hook(trainer, best):\n    if {condition}:\n        return\n    save()\n"
    (way,) = ways_past_call((Frame(FILE, 4, "hook"),), lambda file: text)
    assert way.asks == asked


@pytest.mark.parametrize("drawn", ["x, mask = batch", "for x, mask in [batch]: break", "mask = draw(batch)"])
def test_what_is_computed_from_data_is_a_ranks_own(drawn: str) -> None:
    found = "found = mask.flatten(1).sum(1) > 9"
    text = f"def hook(batch):\n    {drawn}\n    {found}\n    if found.any():\n        gather()\n"
    (way,) = ways_past_call((Frame(FILE, 5, "hook"),), lambda file: text)
    assert way.asks == "value"


@pytest.mark.parametrize(
    ("loop", "asked"),
    [
        ("for i, n in enumerate(lengths)", "alike"),
        ("for i in itertools.count()", "alike"),
        ("for n, i in enumerate(lengths)", "value"),
        ("for i in lengths", "value"),
    ],
)
def test_the_number_of_a_turn_is_alike_on_all_ranks_and_what_comes_with_it_is_not(loop: str, asked: str) -> None:
    text = f"def main(lengths):\n    {loop}:\n        if i % 50 == 49:\n            gather()\n"
    (way,) = ways_past_call((Frame(FILE, 4, "main"),), lambda file: text)
    assert way.asks == asked


@pytest.mark.parametrize(
    ("turns", "asked"),
    [("range(400)", "alike"), ("range(1, 400)", "alike"), ("range(first, 400)", "value"), ("picked", "value")],
)
def test_the_number_of_a_turn_is_the_same_on_all_ranks_in_that_turn(turns: str, asked: str) -> None:
    text = f"for i in {turns}:\n    train(i)\n    if i % 20 == 19:\n        gather()\n"
    found = ways_past_call((Frame(FILE, 4, "<module>"),), lambda file: text)
    assert [way.asks for way in found] == [asked]
