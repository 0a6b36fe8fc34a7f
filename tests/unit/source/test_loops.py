"""Loops in the source: the ways out of a turn and out of the loop."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import replace

import pytest

from hangwatch.facts.calls.inner_loops import going_out
from hangwatch.model import Frame
from hangwatch.source.loops import loop_around
from tests.unit.facts.loops.turning import SCRIPT, at, loop


def test_the_ways_out_of_a_turn_and_out_of_the_loop() -> None:
    found = loop(6)
    assert found is not None
    assert found.where.line == 2
    assert found.counted
    assert at(found.skips) == [4, 7]  # not line 9, which raises again
    assert at(found.leaves) == [15]  # neither the inner loop's break nor the helper's return
    assert found.swallows is None


def test_the_loop_of_a_caller_and_what_stands_around_it() -> None:
    found = loop(1000, 23)
    assert found is not None
    assert (found.where.line, found.counted) == (22, False)
    assert found.swallows is not None
    assert found.swallows.line == 26  # an interrupt is no error


def test_a_clause_below_the_loop_skips_the_rest_of_a_turn() -> None:
    found = loop(42, 6)  # the try of stage(), called from the loop of train()
    assert found is not None
    assert found.where.line == 2
    assert at(found.skips) == [43, 4, 7]


@pytest.mark.parametrize(
    ("condition", "by_itself"),
    [
        ("True", False),
        ("step < steps", False),
        ("self.step < steps", False),
        ("step < steps and not stop", True),
        ("error > tolerance", True),
        ("residual > 0.1", True),
        ("not stop", True),
        ("go()", True),
    ],
)
def test_a_while_that_asks_for_more_than_a_number_can_be_left_at_its_condition(condition: str, by_itself: bool) -> None:
    source = f"while {condition}:\n    update()\n    step += 1\n    self.step += 1\n    residual *= rate\n"
    found = loop_around([(Frame(SCRIPT, 2, "f"), ast.parse(source))])
    assert found is not None
    assert at(found.leaves) == ([1] if by_itself else [])


@pytest.mark.parametrize(
    ("source", "items"),
    [
        ("losses = [update(x, y) for x, y in sampler]", "sampler"),
        ("total = sum(update(x) for x in parts[rank])", "parts[rank]"),
        ("found = {x: update(x) for x in range(3)}", "range(3)"),
        ("kept = [x for x in prepare(parts)]\nupdate(kept)", None),  # it is called besides
    ],
)
def test_a_comprehension_that_calls_the_function_below_is_a_loop(source: str, items: str | None) -> None:
    line = source.count("\n") + 1
    places = [
        (Frame(SCRIPT, 9, "update"), ast.parse("\n" * 8 + "send()")),
        (Frame(SCRIPT, line, "<listcomp>"), ast.parse(source)),
    ]
    found = loop_around(places)
    assert (found.items if found is not None else None) == items
    if found is not None:
        assert (found.where.line, found.leaves) == (1, ())


@pytest.mark.parametrize(
    ("function", "head", "body", "line"),
    [
        ("forward", "for block in self.blocks:", "x = block(x)", 7),
        ("GPT.forward", "for i, block in enumerate(self.blocks):", "x = block(x)", 7),
        ("forward", "for i in range(len(self.blocks)):", "x = self.blocks[i](x)", 7),
        ("forward", "for block in self.blocks:", "x = block(x) if block.on else x", 2),  # LayerDrop, an early exit
        ("forward", "for part in parts:", "x = self.block(part)", 2),
        ("fit", "for batch in self.loader:", "x = self.model(batch)", 2),
    ],
)
def test_a_pass_through_the_layers_of_a_module_is_no_loop_that_ranks_make_unlike_turns_of(
    function: str, head: str, body: str, line: int
) -> None:
    tree = ast.parse(
        f"def forward(self, x, parts):\n    {head}\n        {body}\n\n\ndef fit():\n    for x in data:\n        step(x)"
    )
    found = loop_around([(Frame(SCRIPT, 3, function), tree), (Frame(SCRIPT, 8, "fit"), tree)])
    assert found is not None
    assert found.where.line == line


def test_what_the_loops_around_it_go_through_is_told_from_the_innermost_on() -> None:
    text = "for epoch in range(start, epochs):\n    while on:\n        for part in parts:\n            send(part)"
    found = loop_around([(Frame(SCRIPT, 4, "main"), ast.parse(text))])
    assert found is not None
    assert (found.items, found.outer_items) == ("parts", ("", "range(start, epochs)"))
    around = going_out(found, 2)
    assert (around.where.line, around.items, around.counted, around.outer) == (1, "range(start, epochs)", True, ())
    assert going_out(replace(found, outer_items=()), 2).items == "parts", "a report of an older version"


def test_while_and_suppress() -> None:
    found = loop(33)
    assert found is not None
    assert (found.where.line, found.counted) == (32, True)
    assert at(found.leaves) == [35]
    assert found.swallows is not None
    assert found.swallows.line == 31


def test_who_asks_for_the_next_item_stands_in_the_loop() -> None:
    for line in (2, 22, 32):
        found = loop(line)
        assert found is not None
        assert found.where.line == line


def test_a_range_over_data_is_not_counted_and_no_loop_is_none() -> None:
    found = loop(38)
    assert found is not None
    assert not found.counted
    assert loop(30) is None


UPDATES = """\
for iteration in range(20):
    for inner in range(4):
        for parameter in parameters:
            reduce(parameter)
        if kl() > limit:
            break
    report()
"""


def test_the_ways_out_of_the_loops_around() -> None:
    found = loop_around([(Frame(SCRIPT, 4, "main"), ast.parse(UPDATES))])
    assert found is not None
    assert (found.where.line, at(found.leaves)) == (3, [])
    assert (at(found.outer), [at(each) for each in found.outer_leaves]) == ([2, 1], [[6], []])


ENDS = """\
for turn in range(20):
    todo = shards(turn)
    if not todo:
        sys.exit(0)
    for shard in todo:
        train(shard)
        if broken():
            raise SystemExit(1)
        def later():
            exit()
quit()
"""


def test_where_the_loops_around_end_the_process() -> None:
    found = loop_around([(Frame(SCRIPT, 6, "main"), ast.parse(ENDS))])
    assert found is not None
    assert (found.where.line, at(found.exits), at(found.leaves)) == (5, [4, 8], [])


POLLS = """\
while int(self.store.get("done")) < world:
    time.sleep(0.1)
for batch in batches:
    known.get(batch)
    store = batch
"""


@pytest.mark.parametrize(("line", "asks", "last"), [(2, True, 2), (4, False, 5)])
def test_a_loop_that_asks_the_store_and_its_last_line(line: int, asks: bool, last: int) -> None:
    found = loop_around([(Frame(SCRIPT, line, "main"), ast.parse(POLLS))])
    assert found is not None
    assert (found.asks_store, found.last) == (asks, last)


@pytest.mark.parametrize(
    ("value", "turn", "asks"),
    [
        ("self.store.add(key, 0)", "while not self.came():", True),
        ("self.found", "while not self.came():", False),
        ("self.store.add(key, 0)", "for one in all: self.came();", False),
    ],
    ids=["asked by a function", "one that asks no store", "no question"],
)
def test_a_loop_asks_the_store_by_way_of_a_function_of_its_own(value: str, turn: str, asks: bool) -> None:
    source = f"def came(self):\n    return {value}\ndef wait(self):\n    {turn} \\\n        nap()\n"
    found = loop_around([(Frame(SCRIPT, 5, "wait"), ast.parse(source))])
    assert found is not None
    assert found.asks_store is asks


@pytest.mark.parametrize(
    ("body", "by_itself"),
    [("found.append(one())", False), ("other.append(one())", True), ("found.add(one())", True), ("drop(found)", True)],
)
def test_a_while_over_the_length_of_what_it_appends_to_is_counted(body: str, by_itself: bool) -> None:
    source = f"while len(found) < limit:\n    {body}\n    if done():\n        break\n"
    found = loop_around([(Frame(SCRIPT, 2, "f"), ast.parse(source))])
    assert found is not None
    assert at(found.leaves) == ([1, 4] if by_itself else [4])


@pytest.mark.parametrize(
    ("body", "drained"),
    [
        ("try:\n            x = next(it)\n        except StopIteration:\n            break", True),
        ("try:\n            x = next(it)\n        except StopIteration:\n            it = iter(data)", False),
        ("x = next(it, None)\n        if x is None:\n            break", True),
        ("x = best()\n        if x is None:\n            break", False),
        ("try:\n            x = step()\n        except ValueError:\n            break", False),
    ],
)
def test_a_loop_that_asks_its_iterator_ends_with_it(body: str, drained: bool) -> None:
    """The `break` where the iterator has no more items, of this loop and of one around it."""
    source = f"def f():\n    while True:\n        {body}\n        for p in parameters:\n            reduce(p)\n"
    line = source.count("\n")
    for depth, at_line in ((0, 3), (1, line)):
        found = loop_around([(Frame(SCRIPT, at_line, "f"), ast.parse(source))])
        assert found is not None
        leaves = found.outer_leaves[0] if depth else found.leaves
        assert (bool(found.drained), {*found.drained} <= {*leaves}) == (drained, True)


def skips(source: str, line: int) -> list[int]:
    """Where a turn of the loop around `line` can go on after an error."""
    text = textwrap.dedent(source).strip("\n")
    found = loop_around([(Frame(SCRIPT, line, "f"), ast.parse(text))])
    assert found is not None
    return at(found.skips)


def test_a_clause_that_raises_again_after_the_last_try_goes_on_before() -> None:
    source = """
    for attempt in range(times):
        try:
            function()
        except OSError:
            if attempt == times:
                raise
            time.sleep(delay)
    """
    assert skips(source, 3) == [4]


@pytest.mark.parametrize(
    "clause",
    [
        "if 'memory' in str(error):\n            raise MemoryError from error\n        else:\n            raise",
        "try:\n            report(error)\n        finally:\n            raise",
        "async with lock:\n            raise",
    ],
)
def test_a_clause_that_raises_on_every_way_lets_no_turn_go_on(clause: str) -> None:
    source = f"for batch in loader:\n    try:\n        step(batch)\n    except RuntimeError as error:\n        {clause}"
    assert skips(source, 3) == []


@pytest.mark.parametrize(
    ("source", "bounded"),
    [
        ("for part in parts:\n    time.sleep(5)", True),
        ("for part in itertools.cycle(parts):\n    time.sleep(5)", False),
        ("for row in iter(queue.get, None):\n    time.sleep(5)", False),
        ("while time.monotonic() < deadline:\n    time.sleep(5)", True),
        ("while not path.exists() and time.time() < deadline:\n    time.sleep(5)", True),
        ("while not path.exists() or time.time() < deadline:\n    time.sleep(5)", False),
        ("while tries < 9:\n    tries += 1\n    time.sleep(5)", True),
        ("while True:\n    tries += 1\n    if tries > 9:\n        raise TimeoutError\n    time.sleep(5)", True),
        ("while True:\n    waited = time.time() - start\n    if waited > 60:\n        break\n    time.sleep(5)", True),
        ("while True:\n    if time.time() > warned + 60:\n        log('still')\n    time.sleep(5)", False),
        ("while not path.exists():\n    time.sleep(5)", False),
    ],
)
def test_a_loop_with_a_limit_ends_by_itself(source: str, bounded: bool) -> None:
    found = loop_around([(Frame(SCRIPT, source.count("\n") + 1, "run"), ast.parse(source))])
    assert found is not None
    assert found.bounded is bounded


@pytest.mark.parametrize(
    ("head", "endless"), [("while True", True), ("while not stop.is_set()", False), ("for part in parts", False)]
)
def test_a_loop_without_a_way_out_is_endless(head: str, endless: bool) -> None:
    found = loop_around([(Frame(SCRIPT, 2, "run"), ast.parse(f"{head}:\n    time.sleep(5)"))])
    assert found is not None
    assert found.endless is endless


@pytest.mark.parametrize(("ends", "line"), [("", 7), ("if not row: break", 2)])
def test_the_turns_of_a_generator_are_those_of_the_loop_that_goes_through_it(ends: str, line: int) -> None:
    source = f"""\
        def averaged(rows):
            for row in rows:
                dist.all_reduce(row)
                yield row
                {ends or "pass"}
        def report(rows, names):
            for value, name in zip(averaged(rows), names):
                print(name, value)
    """
    tree = ast.parse(textwrap.dedent(source))
    found = loop_around([(Frame("train.py", 3, "averaged"), tree), (Frame("train.py", 7, "report"), tree)])
    assert found is not None
    assert found.where.line == line
