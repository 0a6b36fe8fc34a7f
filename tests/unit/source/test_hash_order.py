"""Orders and numbers that follow from the hash of a value, in the source."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangwatch.model import Frame
from hangwatch.source.hash_order import by_hash


def found(body: str, call: str = "dist.broadcast(x)") -> tuple[int, str] | None:
    """The line and the text that decide by a hash about the one `call` in a function with that body."""
    source = "def main(self, x):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    line = next(number for number, text in enumerate(source.splitlines(), 1) if call in text)
    hashed = by_hash([(Frame("/home/ann/train.py", line, "main"), ast.parse(source))])
    return (hashed.where.line, hashed.text) if hashed is not None else None


@pytest.mark.parametrize(
    ("made", "through"),
    [
        ("names = {'a', 'b'}", "names"),
        ("names = set(self.all)", "names"),
        ("names: set = {each for each in self.all}", "list(names)"),
        ("self.names = set()", "self.names"),
        ("self.names = set()", "enumerate(self.names - {x})"),
        ("names = self.wanted.keys()", "set(names).union(x)"),
        ("names = frozenset(self.all)", "tuple(names)"),
    ],
)
def test_a_loop_over_a_set(made: str, through: str) -> None:
    assert found(f"{made}\nfor each in {through}:\n    dist.broadcast(x)\n") == (3, f"for each in {through}")


@pytest.mark.parametrize(
    ("made", "through"),
    [
        ("names = {'a', 'b'}", "sorted(names)"),
        ("names = {1, 2, 3}", "names"),
        ("names = {(rank + 1) % n, (rank - 1) % n}", "names"),
        ("names = {2 * each for each in self.all}", "names"),
        ("names = set(len(each) for each in self.all)", "names"),
        ("names = set(range(4))", "names"),
        ("names = ['a', 'b']", "names"),
        ("names = {'a': 1}", "names"),
        ("names = set(self.all)\nnames = sorted(names)", "names"),
        ("names = set(self.all)\nnames = names | {'a'}", "names"),  # it may be, but its name is not read further
        ("pass", "self.names"),
    ],
)
def test_another_order_is_the_same_everywhere_or_not_known(made: str, through: str) -> None:
    assert found(f"{made}\nfor each in {through}:\n    dist.broadcast(x)\n") is None


@pytest.mark.parametrize(
    ("call", "line"),
    [("dist.broadcast(x, src=hash(x) % 4)", 2), ("dist.broadcast(x, src=owner(x))", 4), ("dist.broadcast(x)", None)],
)
def test_a_number_made_of_a_hash_in_the_call_or_in_a_function_that_it_calls(call: str, line: int | None) -> None:
    hashed = found(f"{call}\ndef owner(name):\n    return hash(name) % 4\n", call)
    assert (hashed and hashed[0]) == line


def test_what_a_block_holds_is_not_asked_by_its_first_line() -> None:
    assert found("if dist.get(x):\n    y = hash(x)\n", "dist.get(x)") is None


def test_the_innermost_line_is_told_also_of_a_caller() -> None:
    source = "def main(x):\n    for each in set(x):\n        save(each)\ndef save(x):\n    dist.barrier()\n"
    tree = ast.parse(source)
    hashed = by_hash([(Frame("train.py", 5, "save"), tree), (Frame("train.py", 3, "main"), tree)])
    assert hashed is not None
    assert (hashed.where, hashed.text) == (Frame("train.py", 2, "main"), "for each in set(x)")


@pytest.mark.parametrize(("handed", "told"), [("step(name)", True), ("step(x)", False)])
def test_a_loop_around_the_function_with_the_call_counts_where_it_hands_on_what_it_goes_through(
    handed: str, *, told: bool
) -> None:
    source = f"def step(x):\n    dist.broadcast(x)\ndef main(x):\n    for name in {{'a', 'b'}}:\n        {handed}\n"
    tree = ast.parse(source)
    frames = [(Frame("/home/ann/train.py", line, name), tree) for line, name in ((2, "step"), (5, "main"))]
    assert (by_hash(frames) is not None) is told


def test_a_hash_asked_for_on_the_way_to_the_function_with_the_call_decides_nothing_in_it() -> None:
    source = "def step(x):\n    dist.broadcast(x)\ndef main(x):\n    step(x, hash(x))\n"
    tree = ast.parse(source)
    frames = [(Frame("/home/ann/train.py", line, name), tree) for line, name in ((2, "step"), (4, "main"))]
    assert by_hash(frames) is None


NAMES = """
from dataclasses import dataclass, field

@dataclass
class Wanted:
    names: set = field(default_factory=lambda: {"body", "head"})

def collect(model, wanted):
    found = {FOUND}
    return found

def reduce(parts):
    for name, part in parts.items():
        dist.all_reduce(part)

def main(model):
    wanted = Wanted()
    parts = collect(model, GIVEN)
    reduce(parts)
"""
FILLED = "{}\n    for name in wanted:\n        found[name] = 1"


def put_in_order(how: str, given: str) -> tuple[int, str] | None:
    source = NAMES.replace("{FOUND}", how).replace("GIVEN", given)
    lines = [n for n, text in enumerate(source.splitlines(), 1) if "all_reduce" in text or "    reduce(parts)" in text]
    tree = ast.parse(source)
    frames = [
        (Frame("/home/ann/train.py", line, name), tree) for line, name in zip(lines, ("reduce", "main"), strict=True)
    ]
    hashed = by_hash(frames)
    return (hashed.where.line, hashed.text) if hashed is not None else None


@pytest.mark.parametrize(
    ("how", "given", "told"),
    [
        ("{name: model[name] for name in wanted.names}", "wanted", (9, "for name in wanted.names")),
        ("dict((name, 1) for name in wanted)", "set(model)", None),  # how a call orders what it is given is not known
        (FILLED, "set(model)", (20, "set(model)")),
        (FILLED, "wanted.names", (20, "wanted.names")),
        (FILLED, "sorted(set(model))", None),
        ("{name: model[name] for name in sorted(wanted.names)}", "wanted", None),
    ],
    ids=["a comprehension", "dict()", "a loop", "a loop over an attribute", "sorted by the caller", "sorted"],
)
def test_the_order_of_a_set_is_found_where_another_function_went_through_it(
    how: str, given: str, told: tuple[int, str] | None
) -> None:
    assert put_in_order(how, given) == told
