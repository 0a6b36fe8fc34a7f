"""The checklist of docs/doctor.md: eight lines, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| (?!before|---)(.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    text = (ROOT / "docs" / "doctor.md").read_text()
    return ROW.findall(text[text.index("The checklist, line by line") :])


def test_it_has_eight_lines_each_with_a_check_that_fires_and_one_that_must_not() -> None:
    found = rows()
    assert len(found) == 8
    for line, _, tests in found:
        fires, _, silent = tests.partition("silent: ")
        assert re.findall(r"`test_\w+`", fires), line
        assert re.findall(r"`test_\w+`", silent), line


def test_every_test_that_it_names_exists() -> None:
    known = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        known |= set(re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE))
    named = {name for _, _, tests in rows() for name in re.findall(r"`(test_\w+)`", tests)}
    assert named <= known, named - known
