"""The conditions ahead of a line under which a backward or an update is called. The line is marked with `# here`."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.model import Frame, ThreadStack
from hangwatch.source.hints import annotated

FILE = "/home/ann/train.py"


def conditions(source: str) -> list[tuple[int, str, str]]:
    text = textwrap.dedent(source).strip("\n")
    marked = [number for number, line in enumerate(text.splitlines(), 1) if "# here" in line]
    stack = ThreadStack(1, "MainThread", tuple(Frame(FILE, line, "f") for line in marked), main=True)
    loop = annotated(stack, lambda file: text).loop
    return [(each.where.line, each.text, each.asks) for each in (loop.updates if loop is not None else ())]


@pytest.mark.parametrize(
    "update", ["d_loss.backward()", "accelerator.backward(d_loss)", "self.update(x)", "self.scheduled_opt.step()"]
)
def test_a_condition_that_leads_to_a_backward_ahead_of_the_line(update: str) -> None:
    source = f"""
    def update(x):
        critic(x).backward()
    for x in loader:
        if balance.active:
            {update}
        g_loss.backward()  # here
        if late: h_loss.backward()
    """
    assert conditions(source) == [(4, "if balance.active", "check")]


@pytest.mark.parametrize(
    "other", ["scheduler.step()", "prof.step()", "env.step(action)", "game.step()", "step()", "log(x)"]
)
def test_what_else_is_called_step_updates_nothing(other: str) -> None:
    source = f"""
    for x in loader:
        if x.mean() > 3:
            {other}
        loss.backward()  # here
    """
    assert conditions(source) == []


def test_all_that_stands_ahead_of_the_line_in_a_function_of_a_turn_counts() -> None:
    source = """
    def turn(x):
        if rank == 0:
            extra(x).backward()
        loss(x).backward()  # here
    for x in loader:
        if step % 2: warm_opt.step()
        turn(x)  # here
    """
    assert conditions(source) == [(6, "if step % 2", "alike"), (2, "if rank == 0", "rank")]
