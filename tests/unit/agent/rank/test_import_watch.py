from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from hangwatch_agent.rank.import_watch import ImportWatch


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("hw_first", "hw_second", "hw_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text("value = 1\n" if name != "hw_broken" else "raise RuntimeError('broken')\n")
    return tmp_path


def test_it_says_so_after_the_import(modules: Path) -> None:
    heard: list[tuple[str, int]] = []
    watch = ImportWatch(["hw_first", "hw_second"], lambda name: heard.append((name, sys.modules[name].value)))
    before = list(sys.meta_path)
    watch.install()
    watch.install()
    importlib.import_module("hw_first")
    assert heard == [("hw_first", 1)]
    importlib.import_module("hw_second")
    assert [name for name, _ in heard] == ["hw_first", "hw_second"]
    assert sys.meta_path == before
    assert "exec_module" not in vars(sys.modules["hw_first"].__loader__)


def test_it_can_be_removed_before(modules: Path) -> None:
    heard: list[str] = []
    watch = ImportWatch(["hw_first"], heard.append)
    watch.install()
    watch.remove()
    watch.remove()
    importlib.import_module("hw_first")
    assert heard == []


def test_a_module_that_is_there_is_not_waited_for() -> None:
    before = list(sys.meta_path)
    ImportWatch(["sys"], lambda name: None).install()
    assert sys.meta_path == before


def test_a_module_that_fails_or_is_absent_fails_as_always(modules: Path) -> None:
    heard: list[str] = []
    watch = ImportWatch(["hw_broken", "hw_absent"], heard.append)
    watch.install()
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("hw_broken")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hw_absent")
    assert heard == []
    watch.remove()
