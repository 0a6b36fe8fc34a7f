"""Call sites: the user's lines that lead to a call, and the function outside of torch that makes it."""

from __future__ import annotations

import pytest

from hangwatch.facts.call_site import (
    at_the_end_of_its_block,
    at_the_entry_of_its_block,
    caller,
    framework,
    from_one_line,
    recorded_site,
    same,
    site,
    site_of,
)
from hangwatch.model import Collective, Frame
from hangwatch.stacks.frames import told, via

SCRIPT = "/home/ann/train.py"
TRAINER = "/venv/lib/python3.12/site-packages/trainer/loop.py"
TORCH = Frame("/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 2900, "all_reduce")
USER = (Frame(SCRIPT, 40, "log"), Frame(SCRIPT, 90, "main"))


def below_trainer(line: int, function: str = "Loop.reduce") -> tuple[Frame, ...]:
    return TORCH, Frame(TRAINER, line, function), Frame(SCRIPT, 90, "main")


def test_a_call_by_the_user_has_the_users_lines_and_no_framework() -> None:
    found = site_of("all_reduce", (TORCH, *USER))
    assert found.lines == ((SCRIPT, 40), (SCRIPT, 90))
    assert found.caller == (SCRIPT, "log", 40)
    assert framework(found) is None


def test_below_a_trainer_the_trainers_function_makes_the_call() -> None:
    found = site_of("all_reduce", below_trainer(7))
    assert found.lines == ((SCRIPT, 90),)
    assert framework(found) == Frame(TRAINER, 7, "reduce")


def test_below_one_line_of_the_user_two_lines_of_the_trainer_are_two_sites() -> None:
    one, other = (site_of("all_reduce", below_trainer(line)) for line in (7, 12))
    assert not same(one, other)
    assert same(one, one)


def test_a_site_of_which_only_the_users_line_is_known_is_the_same_as_one_below_it() -> None:
    known, bare = site_of("all_reduce", below_trainer(7)), site_of("all_reduce", (Frame(SCRIPT, 90, "main"),))
    assert same(known, bare)
    assert not same(site_of("barrier", below_trainer(7)), bare)


def test_a_function_has_one_name_however_its_frame_was_read() -> None:
    assert caller(below_trainer(7, "Loop.reduce")) == caller(below_trainer(7, "reduce"))


def test_frames_of_torch_alone_show_no_caller() -> None:
    assert caller((TORCH,)) is None
    assert site_of("all_reduce", (TORCH,)).lines == ()


def test_what_one_line_calls_in_two_functions_has_no_order_in_the_source() -> None:
    step, retry = (Frame(TRAINER, line, name) for line, name in ((57, "Loop.step"), (67, "Loop.retry")))
    run = (Frame(TRAINER, 30, "Loop.run"), Frame(SCRIPT, 90, "main"))
    assert from_one_line((TORCH, retry, *run), (step, *run))
    behind = (TORCH, Frame(TRAINER, 35, "Loop.run"), Frame(SCRIPT, 90, "main"))
    assert not from_one_line(behind, (step, *run))
    assert not from_one_line((step, *run), (step, *run))
    assert not from_one_line((TORCH,), (Frame(SCRIPT, 90, "main"),))  # no line in common


def inside(line: int, start: int = 90) -> tuple[Frame, ...]:
    """A hook of the user's that a trainer calls on `line`."""
    return TORCH, Frame(SCRIPT, 15, "prepare"), Frame(TRAINER, line, "Loop.prepare"), Frame(SCRIPT, start, "main")


def at_exit(line: int, name: str = "Barrier.__exit__") -> tuple[Frame, ...]:
    return Frame("libc.so", 0, "poll", native=True), Frame(TRAINER, 7, name), *inside(line)[2:]


@pytest.mark.parametrize(
    ("one", "other", "past"),
    [
        (at_exit(20), inside(22), True),
        (at_exit(20), inside(18), False),  # before the block
        (at_exit(20), inside(22, start=91), False),  # another call of that function
        (at_exit(20, "Barrier.__enter__"), inside(22), False),
        (at_exit(20), (Frame(SCRIPT, 90, "main"),), False),
    ],
)
def test_one_that_waits_at_the_end_of_a_block_has_gone_past_all_of_it(
    one: tuple[Frame, ...], other: tuple[Frame, ...], past: bool
) -> None:
    assert at_the_end_of_its_block(one, other) is past


def test_one_that_waits_at_the_entry_of_a_block_names_its_line_to_one_that_has_entered_it() -> None:
    entry = at_exit(20, "Barrier.__enter__")
    assert at_the_entry_of_its_block(entry, inside(22)) == Frame(TRAINER, 20, "Loop.prepare")
    assert at_the_entry_of_its_block(entry, inside(18)) is None  # it has not come to it yet
    assert at_the_entry_of_its_block(at_exit(20), inside(22)) is None


def test_one_helper_of_a_package_is_another_site_below_each_of_its_callers() -> None:
    helper = Frame("/venv/lib/python3.12/site-packages/accelerate/operations.py", 348, "_gather")
    one, other = ((TORCH, helper, *below_trainer(line)[1:]) for line in (7, 12))
    assert not same(site_of("all_gather", one), site_of("all_gather", other))
    # AND the ring of the board, which keeps a few of the frames, tells them apart as well
    kept = [Collective("0", 1, "all_gather", frames=told(each), via=via(each)) for each in (one, other)]
    assert kept[0].frames == kept[1].frames
    assert [recorded_site(each) for each in kept] == [site_of("all_gather", whole) for whole in (one, other)]
    assert site(kept[0]) != site(kept[1])
    # AND where a site is known without it, the innermost function decides
    assert same(site_of("all_gather", one)._replace(via=0), site_of("all_gather", other))
