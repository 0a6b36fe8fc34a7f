from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import Table, parse_stat
from tests.unit.agent.capture.made_up import process

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=15)


def line(name: str, state: str = "S", status: int = 0) -> str:
    return (
        f"42 ({name}) {state} 7 8 9 " + " ".join(["0"] * 7) + " 150 50 0 0 20 0 3 0 777 0 2 " + "0 " * 27 + str(status)
    )


@given(NAMES)
def test_a_name_may_hold_anything(name: str) -> None:
    stat = parse_stat(line(name))
    assert (stat.pid, stat.name, stat.state, stat.parent, stat.group, stat.session) == (42, name, "S", 7, 8, 9)
    assert (stat.cpu_s, stat.threads, stat.ticks, stat.resident_bytes) == (200 / procfs.TICKS_PER_S, 3, 777, 2 * 4096)


@pytest.mark.parametrize(
    ("state", "status", "exit_code"), [("Z", 256, 1), ("Z", 9, -9), ("Z", 139, -11), ("Z", 0, 0), ("S", 256, None)]
)
def test_exit_codes_of_zombies(state: str, status: int, exit_code: int | None) -> None:
    assert parse_stat(line("x", state, status)).exit_code == exit_code


@given(st.text())
def test_nonsense_raises_what_is_promised(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_stat(text)


def test_a_line_cut_short_is_a_process_that_is_not_there(tmp_path: Path) -> None:
    folder = process(tmp_path, 5)
    (folder / "stat").write_text("5 (python) S 1")
    assert procfs.stat_of(5, tmp_path) is None
    assert procfs.stat_of(6, tmp_path) is None


def test_the_tree_of_a_table(tmp_path: Path) -> None:
    for pid, parent in ((2, 1), (3, 2), (4, 2), (5, 4), (9, 1)):
        process(tmp_path, pid, parent=parent)
    (tmp_path / "7").mkdir()  # gone while it was read
    (tmp_path / "self").mkdir()
    table = Table.read(tmp_path)
    assert table.children(2) == (3, 4)
    assert table.descendants(2) == (3, 4, 5)
    assert table.ancestors(5) == (4, 2)
    assert table.ancestors(777) == ()


def test_a_tree_that_changed_into_a_ring_while_it_was_read(tmp_path: Path) -> None:
    process(tmp_path, 2, parent=3)
    process(tmp_path, 3, parent=2)
    table = Table.read(tmp_path)
    assert table.descendants(2) == (3,)
    assert table.ancestors(2) == (3, 2)


def test_no_proc_at_all(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert Table.read(nowhere).stats == {}
    assert procfs.boot_time(nowhere) == 0.0
    assert procfs.command_line(1, nowhere) == ()
