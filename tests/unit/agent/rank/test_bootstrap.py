"""The sitecustomize that every Python below `hangwatch run` imports: old ones too."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangwatch_agent.rank import bootstrap

FILE = bootstrap.bootstrap_folder() / "sitecustomize.py"
PYENV = Path(os.environ.get("PYENV_ROOT", "/root/.pyenv")) / "versions"
OLD = [sys.executable, *sorted(str(each) for each in PYENV.glob("*/bin/python"))]
NEWER_THAN_PYTHON_2 = (
    *(ast.JoinedStr, ast.AnnAssign, ast.AsyncFunctionDef, ast.Await, ast.Nonlocal, ast.YieldFrom, ast.Starred),
    *(ast.NamedExpr, ast.MatMult, ast.Match),
)


@pytest.mark.parametrize("version", [(3, 4), (3, 6), (3, 8)])
def test_its_syntax_is_that_of_old_pythons(version: tuple[int, int]) -> None:
    assert ast.parse(FILE.read_text(), feature_version=version).body


def test_its_syntax_is_that_of_python_2() -> None:
    tree = ast.parse(FILE.read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, NEWER_THAN_PYTHON_2), ast.unparse(node)
        if isinstance(node, ast.FunctionDef):
            assert not node.args.kwonlyargs
            assert not node.args.posonlyargs
            assert node.returns is None
            assert all(each.annotation is None for each in node.args.args)
        assert not (isinstance(node, ast.Raise) and node.cause)
        assert not (isinstance(node, ast.ClassDef) and node.keywords)
    assert FILE.read_bytes().isascii()


@pytest.mark.parametrize("python", OLD, ids=lambda path: Path(path).parts[-3])
def test_it_is_silent_and_runs_the_users_own(python: str, tmp_path: Path) -> None:
    # GIVEN a user's own sitecustomize behind ours on PYTHONPATH
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.stdout.write('own ')\n")
    environment = {"HANGWATCH_RUN_DIR": str(tmp_path), "RANK": "0", "PATH": os.environ["PATH"]}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    script = "import sys; sys.stdout.write(sys.modules['sitecustomize'].__file__)"
    for path, said in (
        (f"{FILE.parent}:{tmp_path}", f"own {tmp_path}/sitecustomize.py"),
        (f"{FILE.parent}", None),
    ):
        # WHEN any Python of this machine starts
        done = subprocess.run(
            [python, "-c", script], env=environment | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=60
        )
        # THEN it is as without us
        assert (done.returncode, done.stderr) == (0, "")
        assert said is None or done.stdout == said
