"""scripts/keep_report.py: a report of a real program, kept with what is true of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.report import files
from scripts import judged, keep_report
from scripts.judged import Truth
from tests.examples import uneven_steps

ABOUT = 'rank 3 has a "short" shard'


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = files.write(uneven_steps(), tmp_path).json_path
    assert path is not None
    return path


def keep(report: Path, folder: Path, *more: str, name: str = "short-shard", cause: str = "uneven-steps") -> str | None:
    return keep_report.main([str(report), name, "--about", ABOUT, "--causes", cause, *more], folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "judged"
    made.mkdir()
    return made


def test_what_is_kept_is_read_again(report: Path, folder: Path) -> None:
    # WHEN two are kept
    assert keep(report, folder, "--ranks", "3", "--line", "train.py:61") is None
    assert keep(report, folder, name="another") is None
    # THEN what is said of them is read again, and so are the reports
    assert judged.truths(folder) == [
        Truth("another", ABOUT, ("uneven-steps",), ()),
        Truth("short-shard", ABOUT, ("uneven-steps",), (3,), "train.py:61"),
    ]
    assert judged.incident("short-shard", folder) == files.read(report)


def test_links_that_a_program_printed_are_not_kept(folder: Path) -> None:
    printed = uneven_steps()
    said = replace(printed.verdict, details=("try [a tracker](https://host.example/tracker)",))
    judged.keep(replace(printed, verdict=said), Truth("short-shard", ABOUT, ("uneven-steps",), ()), folder)
    assert judged.incident("short-shard", folder).verdict.details == ("try [a tracker]()",)


def test_a_name_that_is_taken_keeps_what_it_has(report: Path, folder: Path) -> None:
    assert keep(report, folder) is None
    assert "is kept already" in str(keep(report, folder, "--ranks", "1"))
    assert judged.truths(folder) == [Truth("short-shard", ABOUT, ("uneven-steps",), ())]


def test_what_is_dropped_leaves_the_others_as_they_are(report: Path, folder: Path) -> None:
    assert keep(report, folder, "--ranks", "3", name="another") is None
    others = judged.truths(folder)
    assert keep(report, folder, "--line", "train.py:61") is None
    judged.drop("short-shard", folder)
    judged.drop("unknown", folder)
    assert judged.truths(folder) == others
    assert sorted(path.name for path in folder.iterdir()) == ["another.json.xz", "another.toml"]


@pytest.mark.parametrize(
    ("name", "cause", "says"),
    [("Short shard", "uneven-steps", "small letters"), ("short-shard", "uneven", "no such cause: uneven")],
)
def test_names_that_mean_nothing_are_refused(report: Path, folder: Path, name: str, cause: str, says: str) -> None:
    assert says in str(keep(report, folder, name=name, cause=cause))
    assert list(folder.iterdir()) == []


def test_a_broken_report_is_refused(folder: Path, tmp_path: Path) -> None:
    cut = tmp_path / "incident-cut.json"
    cut.write_text("{")
    assert "cut off" in str(keep(cut, folder))
    assert list(folder.iterdir()) == []
