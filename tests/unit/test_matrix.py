"""docs/versions.md: what `make matrix` keeps, and the table that is made of it."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.matrix.page import page
from scripts.matrix.results import HEALTHY, Entry, Said, load, put

DOCS = Path(__file__).parents[2] / "docs"
RIGHT = Said(True, "uneven-steps", "proven", "proven")
NEW = Entry("3.12.1", "2.15.0+cu130", "2026-11-22", True, {"uneven-steps": RIGHT, HEALTHY: Said(True)})
OLD = Entry("3.12.1", "2.6.0", "2026-11-22", False, {"uneven-steps": Said(False, "rank-frozen", "likely", "likely")})
NONE = Entry("3.13.0", "2.4.1", "2026-11-22", error="no matching distribution | found")


def rows(text: str) -> list[list[str]]:
    """The cells of the table, its head first."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_entries_are_kept_newest_torch_first_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    assert load(file) == []
    for entry in (OLD, NEW, NONE, OLD):
        put(entry, file)
    assert load(file) == [NEW, OLD, NONE]


def test_the_table_says_what_was_right_and_what_was_not() -> None:
    head, *body = rows(page([NEW, OLD, NONE]))
    assert head == ["torch", "Python", "recorder", "uneven-steps", HEALTHY, "run on"]
    assert body[0][:5] == ["2.15.0+cu130", "3.12.1", "yes", "right, proven/proven", "nothing said, right"]
    assert body[1][:5] == ["2.6.0", "3.12.1", "no", "**rank-frozen**, likely/likely", "-"]
    assert body[2][:3] == ["2.4.1", "3.13.0", r"not run: no matching distribution \| found"]
    assert {len(row) for row in body} == {len(head)}


def test_where_nothing_has_run_that_is_said() -> None:
    assert "It has not run yet" in page([])


def test_the_committed_table_has_its_form() -> None:
    # GIVEN what is committed
    head, *body = rows((DOCS / "versions.md").read_text(encoding="utf-8"))
    # THEN it has the newest torch first, and nothing but words that the legend explains
    assert head[:3] == ["torch", "Python", "recorder"]
    versions = [tuple(map(int, row[0].partition("+")[0].split("."))) for row in body]
    assert versions == sorted(versions, reverse=True)
    assert versions[0] > (2, 13)
    words = re.compile(
        r"right, [\w ]+/\w+|nothing said, right|\*\*nothing said\*\*|\*\*[\w-]+\*\*, [\w ]+/\w+|-|not run: .+"
    )
    assert [cell for row in body for cell in row[3:-1] if not words.fullmatch(cell)] == []
