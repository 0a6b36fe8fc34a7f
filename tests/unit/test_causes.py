"""From the id of a cause alone its rule, its words, its page and its script are found."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import hangwatch
from hangwatch.catalogue import CATALOGUE, Cause
from hangwatch.gallery import CASES
from hangwatch.judge import ORDER

ROOT = Path(hangwatch.__file__).parent
CAUSES = [cause for cause in CATALOGUE if cause.stage is not None and cause.id != "undetermined"]
NO_SCRIPT = {  # nothing here can make them happen: simulated evidence and other machines show them
    "compile-skew",
    "device-stall",
    "duplicate-gpu",
    "gpu-fault",
    "interconnect-stall",
    "node-lost",
}
each_cause = pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)


def home(cause: Cause) -> str:
    return f"hangwatch.rules.{cause.stage}.{cause.id.replace('-', '_')}"


def emitted(path: Path) -> set[str]:
    """The ids of causes that a module gives to a Finding, or to a sentence that several causes share."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    known = {cause.id for cause in CATALOGUE}
    given = (argument for call in calls for argument in call.args if isinstance(argument, ast.Constant))
    return {argument.value for argument in given if isinstance(argument.value, str) and argument.value in known}


@each_cause
def test_its_rule_stands_in_the_file_of_its_name(cause: Cause) -> None:
    asked = {rule.__module__ for rule in ORDER}
    assert any(module == home(cause) or module.startswith(f"{home(cause)}.") for module in asked)


@each_cause
def test_its_rule_has_a_test_file_of_its_name(cause: Cause) -> None:
    name = f"test_{cause.id.replace('-', '_')}.py"
    assert (Path(__file__).parent / "rules" / str(cause.stage) / name).is_file()


@each_cause
def test_no_other_file_emits_it(cause: Cause) -> None:
    own = ROOT / "rules" / str(cause.stage) / cause.id.replace("-", "_")
    files = [path for path in (ROOT / "rules").rglob("*.py") if cause.id in emitted(path)]
    assert files
    assert [path for path in files if path != own.with_suffix(".py") and own not in path.parents] == []


@each_cause
def test_its_page_has_a_section(cause: Cause) -> None:
    text = (ROOT.parent / "docs" / "causes.md").read_text()
    assert re.search(rf"^#+ .*{re.escape(cause.id)}", text, re.MULTILINE)


@each_cause
def test_its_script_is_in_the_gallery(cause: Cause) -> None:
    shown = any(case.cause == cause.id for case in CASES)
    assert shown or cause.id in NO_SCRIPT
