"""The rules of the house: what is depended on, who imports what, and what `make` offers."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from scripts.check_tests_ran import main as check_tests_ran
from scripts.generate_docs import DOCS, PAGES
from tests import needs

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]
TARGETS = ["demo", "test", "lint", "types", "bench", "docs", "clean"]


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def imports(node: ast.AST, *, lazy: bool = True) -> Iterator[str]:
    """The absolute modules imported below `node`; with lazy=False only those imported along with it."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # no statement stands within one
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level and child.module:
            yield child.module
        elif not is_for_types_only(child) and (lazy or not isinstance(child, functions)):
            yield from imports(child, lazy=lazy)


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def dotted(module: Path) -> str:
    parts = module.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def allowed_outside(module: str) -> set[str]:
    """The top-level packages that the contracts of pyproject.toml let this module of hangwatch import."""
    exceptions = chain(*(rule["ignore_imports"] for rule in CONTRACTS if rule.get("source_modules") == ["hangwatch"]))
    edges = (exception.split(" -> ") for exception in exceptions)
    return {to.partition(".")[0] for source, to in edges if fnmatch(module, source)}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_torch_is_in_no_list_of_dependencies() -> None:
    # GIVEN what pip would install with hangwatch, with and without extras
    project = PYPROJECT["project"]
    required = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    # THEN torch, which belongs to the job that is watched, is not among it
    assert not {"torch", "torchvision", "pynvml"} & requirement_names(required)


def test_tests_run_against_one_exact_torch() -> None:
    assert "torch==2.13.0" in PYPROJECT["dependency-groups"]["test"]


def test_make_alone_says_what_can_be_made() -> None:
    said = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    offered = dict(re.findall(r"^\s+make (\w+)\s+(\S.*)$", said.stdout, re.MULTILINE))
    assert not set(TARGETS) - offered.keys()


def test_importing_hangwatch_costs_nothing() -> None:
    # GIVEN a fresh interpreter, not measured by coverage, which imports more
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    # WHEN it imports hangwatch
    script = "import sys; import hangwatch; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    # THEN neither torch nor anything else from outside the standard library came along
    assert not {"torch", "rich", "psutil", "pynvml", "hangwatch_agent"} & set(run.stdout.split())


def test_what_all_share_needs_only_the_standard_library() -> None:
    outside = {
        dotted(module): found - {"hangwatch"} - allowed_outside(dotted(module)) - sys.stdlib_module_names
        for module, found in packages_imported().items()
    }
    assert {module: names for module, names in outside.items() if names} == {}


def test_reaching_back_to_agent_and_dashboard_is_lazy() -> None:
    back = {
        dotted(module): found & {"hangwatch_agent", "hangwatch_dashboard"}
        for module, found in packages_imported(lazy=False).items()
    }
    assert {module: names for module, names in back.items() if names} == {}


def packages_imported(*, lazy: bool = True) -> dict[Path, set[str]]:
    """Of each module of hangwatch: the top-level packages that it imports."""
    found = {
        module: {name.partition(".")[0] for name in imports(ast.parse(module.read_text()), lazy=lazy)}
        for module in modules("hangwatch")
    }
    assert len(found) > 100
    return found


@pytest.mark.parametrize("folder", ["agent", "dashboard", "docker", "scripts", "tests"])
def test_folders_that_are_no_packages_stay_so(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("name", PAGES)
def test_generated_docs_are_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs` and commit the result"


def junit(path: Path, **counts: int) -> str:
    attributes = " ".join(f'{name}="{count}"' for name, count in counts.items())
    path.write_text(f"<testsuites><testsuite {attributes}/></testsuites>")
    return str(path)


def test_ci_is_content_when_tests_ran(tmp_path: Path) -> None:
    assert check_tests_ran(junit(tmp_path / "junit.xml", tests=3, skipped=1, failures=0, errors=0)) is None


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ({"tests": 0}, "no test ran"),
        ({"tests": 2, "skipped": 2}, "no test ran"),
        ({"tests": 2, "failures": 1}, "1 failures"),
        ({"tests": 2, "errors": 1}, "1 errors"),
    ],
)
def test_ci_complains(tmp_path: Path, counts: dict[str, int], complaint: str) -> None:
    said = check_tests_ran(junit(tmp_path / "junit.xml", **counts))
    assert said is not None
    assert complaint in said


def test_ci_looks_at_every_part(tmp_path: Path) -> None:
    good = junit(tmp_path / "good.xml", tests=3, skipped=1, failures=0, errors=0)
    said = check_tests_ran(good, junit(tmp_path / "empty.xml", tests=0), good)
    assert said == f"{tmp_path}/empty.xml: no test ran"
    assert check_tests_ran() == "no JUnit file is named"


def test_a_missing_program_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program"):
        needs.program("no-such-program")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program"):
        needs.program("no-such-program")


def test_a_program_that_is_there_is_found() -> None:
    assert needs.program("sh").name == "sh"
