"""The build's hook: when it builds the page, with which Node, and what it says where it cannot. npm is a stand-in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import hatch_build
from hatch_build import BUILT, NODE, STATIC, WEB, PageError, build, find_node, needed

BUILDS = "mkdir -p ../hangwatch_dashboard/static && cd ../hangwatch_dashboard/static && touch index.html incident.html"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout without a built page."""
    (tmp_path / WEB / "src").mkdir(parents=True)
    (tmp_path / WEB / "src" / "main.tsx").write_text("")
    (tmp_path / WEB / "package.json").write_text("{}")
    return tmp_path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are looked for, besides the system's own."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    return folder


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    (folder / name).chmod(0o755)


def put_page(root: Path, seconds: float) -> None:
    """A built page, so many seconds newer than its sources."""
    (root / STATIC).mkdir(parents=True, exist_ok=True)
    newest = max(file.stat().st_mtime for file in (root / WEB).rglob("*"))
    for name in BUILT:
        (root / STATIC / name).write_text("built")
        os.utime(root / STATIC / name, (newest + seconds, newest + seconds))


def test_a_page_is_needed_where_there_is_none_or_an_old_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert needed(root)
    put_page(root, -5)
    assert needed(root)
    put_page(root, 0)  # as in an sdist, in which all files have one time
    assert not needed(root)
    (root / STATIC / BUILT[1]).unlink()
    assert needed(root)
    monkeypatch.setenv("HANGWATCH_PAGE", "skip")
    assert not needed(root)


def test_what_npm_installed_is_no_source(root: Path) -> None:
    put_page(root, 0)
    (root / WEB / "node_modules").mkdir()
    later = (root / STATIC / BUILT[0]).stat().st_mtime + 100
    (root / WEB / "node_modules" / "module.js").write_text("")
    os.utime(root / WEB / "node_modules" / "module.js", (later, later))
    assert not needed(root)


@pytest.mark.parametrize(
    ("version", "usable"),
    [("v24.1.0", True), ("v22.12.0", True), ("v22.11.9", False), ("v20.20.2", False), ("", False)],
)
def test_a_node_must_be_new_enough(programs: Path, version: str, usable: bool) -> None:
    install(programs, "node", f"echo {version}")
    install(programs, "npm", "")
    assert (find_node() is not None) == usable


def test_a_node_without_npm_is_none(programs: Path) -> None:
    install(programs, "node", "echo v24.1.0")
    assert find_node() is None


def hook(root: Path) -> hatch_build.PageHook:
    return hatch_build.PageHook(str(root), {}, None, None, str(root), "wheel")  # type: ignore[arg-type]


def test_pip_is_asked_for_a_node_only_where_one_is_needed(root: Path, programs: Path) -> None:
    assert hook(root).dependencies() == [NODE]
    install(programs, "node", "echo v24.1.0")
    install(programs, "npm", "")
    assert hook(root).dependencies() == []
    (programs / "npm").unlink()
    put_page(root, 0)
    assert hook(root).dependencies() == []


def test_the_page_is_built_beside_the_sources_and_put_into_the_package(root: Path, programs: Path) -> None:
    # GIVEN an npm that writes where it is into the page
    install(programs, "node", "echo v24.1.0")
    install(programs, "npm", f'case "$*" in *ci) touch node_modules;; *) {BUILDS}; pwd > index.html;; esac')
    (root / STATIC).mkdir(parents=True)
    (root / STATIC / "old.js").write_text("")
    # WHEN the page is built
    hook(root).initialize("standard", {})
    # THEN it is in the package, nothing older is, and the sources are as they were
    assert sorted(file.name for file in (root / STATIC).iterdir()) == sorted(BUILT)
    assert str(root) not in (root / STATIC / "index.html").read_text()
    assert not (root / WEB / "node_modules").exists()
    assert not needed(root)


def test_a_failure_of_npm_is_told_with_its_words_and_leaves_nothing(
    root: Path, programs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install(programs, "node", "echo v24.1.0")
    install(programs, "npm", "echo no registry answers; exit 1")
    with pytest.raises(SystemExit) as ended:
        hook(root).initialize("standard", {})
    said = "".join(capfd.readouterr())
    assert ended.value.code == 1
    assert "`npm ci` failed" in said
    assert "no registry answers" in said
    assert "HANGWATCH_PAGE=skip" in said
    assert not (root / STATIC).exists()


def test_without_node_that_is_what_is_said(root: Path, programs: Path) -> None:
    with pytest.raises(PageError, match=r"no Node\.js"):
        build(root)


def test_a_build_that_makes_no_page_is_no_success(root: Path, programs: Path) -> None:
    install(programs, "node", "echo v24.1.0")
    install(programs, "npm", "mkdir -p ../hangwatch_dashboard/static")
    with pytest.raises(PageError, match=r"index\.html, incident\.html"):
        build(root)


def test_the_page_can_be_left_out(root: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGWATCH_PAGE", "skip")
    hook(root).initialize("standard", {})
    assert not (root / STATIC).exists()
