"""What a file imports from other files of the user's is read with it."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from hangwatch.model import Frame, ThreadStack
from hangwatch.source.hints import annotated, follows_from_a_hash, ways_past_call
from hangwatch.source.imports import with_imports
from hangwatch.source.syntax import IMPORTED

HOME = "/home/ann/job"
ENV = '''\
import os


def writes():
    """One process of the job."""
    return int(os.environ["RANK"]) == 0


def owner(name):
    return hash(name) % 4


def unused():
    return 1
'''
TIMING = """\
class Section:
    def __enter__(self): ...
    def __exit__(self, *error):
        return True
"""
TRAIN = """\
import torch
from env import owner, writes
from tools.timing import Section


def main():
    if writes():
        dist.barrier()
    with Section():
        dist.barrier()
    dist.broadcast(x, src=owner("a"))
"""
FILES = {f"{HOME}/train.py": TRAIN, f"{HOME}/env.py": ENV, f"{HOME}/tools/timing.py": TIMING}


def at(line: int) -> tuple[Frame, ...]:
    return (Frame(f"{HOME}/train.py", line, "main"),)


def test_only_what_is_imported_is_added_and_no_line_moves() -> None:
    text = with_imports(f"{HOME}/train.py", FILES.get)
    assert text is not None
    assert text.startswith(TRAIN)
    added = [node for node in ast.parse(text).body if node.lineno >= IMPORTED]
    assert [each.name for each in added if isinstance(each, ast.FunctionDef | ast.ClassDef)] == [
        "writes",
        "owner",
        "Section",
    ]
    assert with_imports(f"{HOME}/env.py", FILES.get) == ENV
    assert with_imports(f"{HOME}/gone.py", FILES.get) is None


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("sub/train.py", "from ..env import writes"),
        ("sub/train.py", "from env import writes"),  # in the folder above
        ("train.py", "from .env import writes"),
        ("train.py", "import env"),
    ],
)
def test_where_a_module_is_looked_for(file: str, line: str) -> None:
    text = f"{line}\nenv.writes()\n"
    found = with_imports(f"{HOME}/{file}", {**FILES, f"{HOME}/{file}": text}.get)
    assert found is not None
    assert "def writes():" in found
    assert "def unused" not in found


def test_a_module_that_is_no_python_is_left_out() -> None:
    broken = {**FILES, f"{HOME}/env.py": "def writes(:\n"}
    found = with_imports(f"{HOME}/train.py", broken.get)
    assert found is not None
    assert "def writes" not in found


def test_a_check_of_the_rank_in_another_file_is_one() -> None:
    stack = annotated(ThreadStack(1, "", at(8), main=True), FILES.get)
    assert stack.guard == "rank"
    (way,) = ways_past_call(at(8), FILES.get)
    assert (way.text, way.asks) == ("if writes()", "rank")


def test_a_manager_of_another_file_swallows_errors() -> None:
    assert [(way.where.line, way.text) for way in ways_past_call(at(10), FILES.get)] == [(9, "with Section()")]


def test_a_hash_in_another_file_is_told_where_it_is_asked_for() -> None:
    hashed = follows_from_a_hash(at(11), FILES.get)
    assert hashed is not None
    assert (hashed.where.line, hashed.text) == (11, "hash(name)")


def test_the_standard_library_and_torch_are_not_looked_for() -> None:
    asked: list[str] = []

    def source_of(file: str) -> str | None:
        asked.append(file)
        return dedent("import os, torch\nfrom torch import nn\nos.path\ntorch.nn\n") if file.endswith("a.py") else None

    with_imports(f"{HOME}/a.py", source_of)
    assert asked == [f"{HOME}/a.py"]
