"""torchrun numbers the folders of its processes by local rank: of several nodes, what rank that is follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangwatch.commands.evidence_files import sort_out
from hangwatch.logs import first_ranks


def node(tmp_path: Path, name: str, *, label: int | None = None, attempt: int = 0) -> Path:
    """The folders of one node's two processes, of which the second one failed; `label` is the rank of its lines."""
    folder = tmp_path / name / f"attempt_{attempt}"
    for local in range(2):
        (folder / str(local)).mkdir(parents=True)
    before = f"[rank{label}]: " if label is not None else ""
    (folder / "1" / "stderr.log").write_text(f"{before}warming up\n{before}step 1\n")
    message = {"message": {"message": f"ValueError: of {name}", "extraInfo": {"py_callstack": ""}}}
    (folder / "1" / "error.json").write_text(json.dumps(message))
    return folder


def failed(tmp_path: Path) -> dict[int, str]:
    return {rank: failure.text for rank, failure in sort_out([tmp_path]).logs.failures.items()}


def test_on_one_node_a_local_rank_is_the_rank(tmp_path: Path) -> None:
    node(tmp_path, "run", attempt=0)
    last = node(tmp_path, "run", attempt=1)
    assert first_ranks([tmp_path]) == {last: 0}
    assert failed(tmp_path) == {1: "ValueError: of run"}


@pytest.mark.parametrize("names", [("node0/run_x", "node1/run_y"), ("gpu-01/run", "gpu-02/run")])
def test_nodes_that_are_counted_by_their_names(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        node(tmp_path, name)
    assert failed(tmp_path) == {1: f"ValueError: of {names[0]}", 3: f"ValueError: of {names[1]}"}


def test_lines_with_a_rank_tell_where_a_node_begins(tmp_path: Path) -> None:
    one, other = node(tmp_path, "east/run", label=3), node(tmp_path, "west/run", label=1)
    assert first_ranks([tmp_path]) == {one: 2, other: 0}
    # AND they contradict the names of nodes that were given other numbers
    (one.parent.parent).rename(tmp_path / "node0")
    (other.parent.parent).rename(tmp_path / "node1")
    assert list(first_ranks([tmp_path]).values()) == [2, 0]


def test_otherwise_no_rank_is_named(tmp_path: Path) -> None:
    for name in ("east/run", "west/run"):
        node(tmp_path, name)
    assert set(first_ranks([tmp_path]).values()) == {None}
    assert failed(tmp_path) == {}


def test_runs_of_one_job_side_by_side_are_no_nodes(tmp_path: Path) -> None:
    for name in ("try_0", "try_1"):
        node(tmp_path, name)
    assert set(first_ranks([tmp_path]).values()) == {None}


def test_of_one_node_of_several_its_lines_tell_where_it_begins(tmp_path: Path) -> None:
    folder = node(tmp_path, "run", label=25)
    assert first_ranks([tmp_path]) == {folder: 24}


def test_a_file_that_was_named_by_itself_is_of_its_attempt(tmp_path: Path) -> None:
    folder = node(tmp_path, "run")
    assert first_ranks([folder / "1" / "error.json"]) == {folder: 0}
