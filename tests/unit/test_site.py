"""The documentation's site: a page for each cause, links that follow the pages, and everything in the navigation."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.catalogue import BY_ID
from scripts import build_site
from scripts.cause_pages import NO_REPORT, listed, pages, shown

ROOT = Path(__file__).parents[2]
CAUSES = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
REPORTS = ROOT / "docs" / "reports"
PAGES = pages(CAUSES, REPORTS)


def test_every_cause_has_its_page() -> None:
    assert sorted(PAGES) == sorted(BY_ID)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_says_what_hangwatch_says_and_what_to_do(name: str) -> None:
    page = PAGES[name]
    assert f"# {BY_ID[name].title}\n" in page
    parts = [page.index(f"\n## {title}\n") for title in ("What hangwatch says", "What do I do now")]
    assert parts == sorted(parts)
    assert len(page[parts[1] :].split("\n## ")[1]) > 60
    assert (shown(name) is None) == (NO_REPORT.strip() in page)
    assert "](#" not in page


def test_a_report_is_what_hangwatch_printed() -> None:
    said = (REPORTS / "uneven-steps.txt").read_text(encoding="utf-8")
    assert said.startswith("hangwatch: HUNG, proven")
    assert said.rstrip() in PAGES["uneven-steps"]


@pytest.mark.parametrize("report", sorted(REPORTS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_report_belongs_to_a_cause_that_the_gallery_shows(report: Path) -> None:
    assert shown(report.stem) is not None
    assert report.read_text(encoding="utf-8").startswith("hangwatch: ")


@pytest.mark.parametrize("name", [name for name in sorted(BY_ID) if shown(name) is not None])
def test_a_cause_that_the_gallery_shows_has_its_report(name: str) -> None:
    assert (REPORTS / f"{name}.txt").is_file(), f"python -m scripts.play_reports {name}"


def test_the_list_keeps_the_anchors_that_verdicts_link_to() -> None:
    text = listed(CAUSES)
    assert [name for name in BY_ID if f"\n### {name}\n" not in text or f"(causes/{name}.md)" not in text] == []
    assert len(text) < len(CAUSES) / 2


def test_links_follow_the_pages() -> None:
    assert build_site.from_docs("[a](../README.md) [b](how-it-works.md#several-nodes)") == (
        "[a](readme.md) [b](how-it-works.md#several-nodes)"
    )
    assert build_site.from_root('[a](docs/causes.md) [b](CONTRIBUTING.md) <img src="docs/images/a.png">') == (
        '[a](causes.md) [b](contributing.md) <img src="images/a.png">'
    )


def test_every_page_is_in_the_navigation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_site, "SOURCE", tmp_path / "source")
    build_site.gather()
    assert build_site.strays() == ""
    (tmp_path / "source" / "stray.md").write_text("")
    assert "stray.md" in build_site.strays()
