"""For which key a line waits, and which lines set that key, read from the user's source."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.model import Frame, KeySetter, StoreKey
from hangwatch.source.store_keys import awaited_key, places, with_setters

FILE = "/home/ann/train.py"


def key_at(source: str, *lines: int) -> str:
    """The key for which these lines, innermost first, wait."""
    text = textwrap.dedent(source)
    return awaited_key(places([Frame(FILE, line, "f") for line in lines], lambda file: text))


def setters(source: str, key: str = "manifest") -> tuple[KeySetter, ...]:
    return with_setters(StoreKey((), key), {FILE: textwrap.dedent(source)}).setters


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('store.get("manifest")', "manifest"),
        ('store.wait(["manifest"], timeout)', "manifest"),
        ("text = store.get(key='manifest').decode()", "manifest"),
        ('store.get(f"parts/{epoch}")', "parts/{}"),
        ('store.wait(["one", "two"])', ""),
        ("store.get(name)", ""),
        ('store.get(f"{name}")', ""),
        ('dist.broadcast("manifest")', ""),
        ("store.get()", ""),
    ],
)
def test_the_key_is_what_the_call_names(line: str, key: str) -> None:
    assert key_at(line, 1) == key


def test_a_constant_of_the_module_is_a_key_and_one_that_is_set_twice_is_none() -> None:
    assert key_at('KEY = "manifest"\nstore.get(KEY)\n', 2) == "manifest"
    assert key_at('KEY = "manifest"\nKEY = "other"\nstore.get(KEY)\n', 3) == ""
    assert key_at('class Keys:\n    DONE = "done"\n\nstore.get(Keys.DONE)\n', 4) == "done"


HANDED = """
    def fetch(store, key):
        return store.get(key)

    class Catalog:
        def load(self, name):
            return self.read(name)

        def read(self, key):
            return fetch(self.store, key=key)

    catalog.load("manifest")
"""


def test_callers_may_hand_the_key_down() -> None:
    assert key_at(HANDED, 3, 10, 7, 12) == "manifest"
    assert key_at(HANDED, 3, 10, 7) == ""
    assert key_at(HANDED, 3) == ""


def test_a_loop_may_ask_again_and_again() -> None:
    source = """
        def ready():
            while not store.check(["manifest"]):
                time.sleep(1)
    """
    assert key_at(source, 4) == "manifest"


PUBLISHES = """
    def publish(store):
        try:
            manifest = build()
            store.set("manifest", manifest)
        except Exception as error:
            print(error)

    def main():
        rank = dist.get_rank()
        if rank == 0:
            publish(store)
        else:
            store.get("manifest")
"""


def test_the_line_that_sets_it_is_found_with_its_conditions_and_the_clause_that_swallows() -> None:
    (found,) = setters(PUBLISHES)
    assert [(each.line, each.function) for each in found.frames] == [(5, "publish"), (12, "main")]
    assert [(each.text, each.where.line, each.asks) for each in found.conditions] == [("if rank == 0", 11, "rank")]
    assert (found.where.line, found.rank) == (5, 0)
    assert found.tries == Frame(FILE, 4, "publish")
    assert found.swallows == Frame(FILE, 6, "publish")


def test_a_function_may_set_the_key_that_it_is_given() -> None:
    source = """
        def put(store, key, value):
            store.set(key, value)

        if ready:
            put(store, "manifest", 1)
    """
    (found,) = setters(source)
    assert (found.where.line, [each.text for each in found.conditions], found.rank) == (6, ["if ready"], None)


def test_other_keys_and_functions_that_are_called_twice_are_not_followed() -> None:
    assert setters(PUBLISHES, "manifests") == ()
    (found,) = setters(PUBLISHES + "\n        publish(store)\n")
    assert (len(found.frames), found.rank) == (1, None)


@pytest.mark.parametrize(
    ("condition", "rank"),
    [
        ("if rank == 2:", 2),
        ("if not rank:", 0),
        ("if is_main:", 0),
        ("if not rank != 1:", 1),
        ("if rank != 0:", None),
        ("if rank < 2:", None),
        ("if local_rank == 0:", None),
        ("if dist.get_rank(group) == 0:", None),
        ("if dist.get_rank() == 0:", 0),
        ("if is_last_rank:", None),
        ("if rank == 0 or forced:", None),
        ("if ready:", None),
    ],
)
def test_the_rank_that_comes_there_is_told_where_it_is_one(condition: str, rank: int | None) -> None:
    (found,) = setters(f'{condition}\n    store.set("manifest", 1)\n')
    assert found.rank == rank


def test_the_other_way_of_a_condition_is_told_as_its_opposite() -> None:
    (found,) = setters('if rank != 0:\n    pass\nelse:\n    store.set("manifest", 1)\n')
    assert (found.rank, [each.text for each in found.conditions]) == (0, ["if rank == 0"])
    (found,) = setters('if ready(x):\n    pass\nelse:\n    store.set("manifest", 1)\n')
    assert [each.text for each in found.conditions] == ["if not ready(x)"]
