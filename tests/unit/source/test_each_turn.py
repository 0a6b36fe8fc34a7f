"""Lines that each turn of a training loop comes to, and those that only some turns come to."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangwatch.model import Frame
from hangwatch.source.each_turn import each_turn

SOURCE = textwrap.dedent("""
    def clip(params):
        while not norm(params) <= 1.0:
            halve(params)                       # inner
        if cached:
            return 0
        return total(params)                    # after a return
    def step(batch):
        loss = forward(batch)                   # in a function
        loss.backward()
        optimizer.step()
    def refill(shards):
        for shard in shards:
            rows = parse(shard)                 # in a generator
            yield from rows
    def triples(users):
        for user in users:
            if user.new:
                greet(user)                     # of some items
            other = draw(user)                  # of each item
            while other in seen[user]:
                other = draw(user)              # again for an item
            yield user, other
        farewell()                              # behind the items
    def filtered(rows):
        for row in rows:
            value = parse(row)                  # of what is not given
            if value:
                yield value
    class Images:
        def __getitem__(self, index):
            return decode(index)                # a sample
    @lru_cache
    def table():
        return build()                          # cached
    def train():
        for epoch in range(3):
            for batch in refill(shards):        # asks for an item
                optimizer.zero_grad()
                model(batch).backward()         # backward
                clip(params)                    # clip
                if n % 100 == 0:
                    evaluate()                  # at times
                try:
                    push(batch)                 # tried
                except OSError:
                    push_again(batch)           # caught
                if bad(batch):
                    continue
                report(batch)                   # after continue
                optimizer.step()
            evaluate()                          # each epoch
        for batch in loader:
            step(batch)                         # step
            late(batch) if n else None          # one of two
            table()                             # of the table
""")
TREE = ast.parse(SOURCE)


def at(*names: str) -> list[tuple[Frame, ast.Module]]:
    lines = {line.partition("# ")[2]: number for number, line in enumerate(SOURCE.splitlines(), 1)}
    return [(Frame("/home/ann/train.py", lines[name], "f"), TREE) for name in names]


@pytest.mark.parametrize(
    "stack",
    [
        ("backward",),
        ("clip",),
        ("inner", "clip"),
        ("tried",),
        ("step",),
        ("in a function", "step"),
        ("of each item", "asks for an item"),
        ("again for an item", "asks for an item"),
        ("a sample", "asks for an item"),
    ],
)
def test_what_each_turn_comes_to(stack: tuple[str, ...]) -> None:
    (outermost, _), *_ = at(stack[-1])
    assert each_turn(at(*stack)) == outermost


@pytest.mark.parametrize(
    "stack",
    [
        ("at times",),
        ("caught",),
        ("after continue",),
        ("each epoch",),
        ("asks for an item",),
        ("one of two",),
        ("after a return", "clip"),
        ("in a generator", "asks for an item"),
        ("of some items", "asks for an item"),
        ("behind the items", "asks for an item"),
        ("of what is not given", "asks for an item"),
        ("in a function", "asks for an item"),
        ("in a generator", "clip"),
        ("cached", "of the table"),
        ("in a function",),
    ],
)
def test_what_only_some_turns_come_to_or_no_loop_is_known_of(stack: tuple[str, ...]) -> None:
    assert each_turn(at(*stack)) is None
