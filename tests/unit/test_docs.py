"""Docs as tests: what they name is there, and what is there they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hangwatch.catalogue import BY_ID, CATALOGUE, DOCS
from hangwatch.commands import SUBCOMMANDS, parser
from hangwatch.commands.demo import sentence
from hangwatch.gallery import CASES

ROOT = Path(__file__).parents[2]
CAUSES = (ROOT / DOCS).read_text(encoding="utf-8")
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", CAUSES, re.MULTILINE | re.DOTALL))
PARTS = ("*What you see:*", "*How it is told:*", "*Who is named:*", "*How sure:*", "**What to do.**")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings can be linked to, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [link for link in found if not link.startswith(("http://", "https://", "mailto:"))]


def test_every_cause_has_its_section_and_every_section_its_cause() -> None:
    headings = re.findall(r"^### (\S+)$", CAUSES, re.MULTILINE)
    assert sorted(headings) == sorted(BY_ID)


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_a_section_says_all_that_is_to_be_said(name: str) -> None:
    assert [part for part in PARTS if part not in SECTIONS[name]] == []
    assert f"**{BY_ID[name].title}.**" in SECTIONS[name]
    assert [other for other in BY_ID[name].look_alikes if f"(#{other})" not in SECTIONS[name]] == []


@pytest.mark.parametrize("name", ["causes", "index", "reading-a-verdict"])
def test_how_sure_a_cause_is_means_the_same_everywhere(name: str) -> None:
    text = " ".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split())
    for meaning in (
        "a fact of the system, or independent witnesses that agree, settle",
        "the evidence fits this cause and no other of the catalogue",
        "fits another one as well",
        "cause not known",
    ):
        assert meaning in text, meaning


BARE = re.compile(r"(?<![\w`.])__[a-z]+__")  # Markdown makes it bold


def test_no_name_of_python_turns_bold_in_what_the_site_shows() -> None:
    said = [text for cause in CATALOGUE for text in (cause.explanation, cause.fix, cause.title)]
    said += [sentence(case) for case in CASES]
    assert [text for text in said if BARE.search(text)] == []
    assert [page.name for page in PAGES if BARE.search(re.sub(r"`[^`\n]+`", "", prose(page)))] == []


def test_what_is_installed_is_the_clone() -> None:
    """One way everywhere, which holds whether or not an index has it."""
    pages = [*PAGES, *(ROOT / "docker").glob("*Dockerfile")]
    assert [
        page.name for page in pages if re.search(r"pip install '?hangwatch(\W|$)(?!\*\.whl)", page.read_text())
    ] == []


def test_the_gallery_shows_causes_of_the_catalogue() -> None:
    assert {case.cause for case in CASES} <= set(BY_ID)


def test_warned_cases_are_those_of_health() -> None:
    health = {entry.id for entry in CATALOGUE if entry.stage is None}
    assert {case.cause in health for case in CASES if case.status == "warned"} <= {True}
    assert {case.status == "warned" for case in CASES if case.cause in health} <= {True}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_readme_knows_the_commands_that_there_are() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bhangwatch (\w+)", re.sub(r"hangwatch: .*", "", "\n".join(commands(readme))))) == set(
        SUBCOMMANDS
    )


def test_the_readme_knows_no_options_that_there_are_not() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    known = {option for name in SUBCOMMANDS for option in options(name)}
    for command in commands(readme):
        own = command.partition(" -- ")[0]
        assert set(re.findall(r"(?<!\S)(--[a-z][a-z-]+)", own)) <= known, command


def commands(text: str) -> list[str]:
    """What stands behind `hangwatch` in code, in blocks and in the line."""
    code = re.findall(r"^```.*?^```|`[^`\n]+`", text, re.MULTILINE | re.DOTALL)
    return [line for piece in code for line in re.findall(r"(?:^|`|-m )(hangwatch [a-z][^`\n]*)", piece, re.MULTILINE)]


def options(name: str) -> list[str]:
    """The options of a subcommand."""
    (subparsers,) = (action for action in parser()._actions if action.choices)
    choices = subparsers.choices
    assert isinstance(choices, dict)
    return list(choices[name]._option_string_actions) if name in choices else []
