"""Thresholds of the diagnosis: one name has one value, and each says its unit or its reason beside it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hangwatch

ROOT = Path(hangwatch.__file__).parent
ROOMS = ("facts", "health", "judge", "proof", "queues", "ranks", "rules", "stacks")


def constants(path: Path) -> Iterator[tuple[str, int]]:
    """Name and line of each number at the top of a module; one of a module's own is read as the same name."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and is_number(node.value):
            names = (name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name))
            yield from ((name.lstrip("_"), node.lineno) for name in names)


def is_number(node: ast.AST) -> bool:
    """A number, several of them, or a sum, product or shift of such."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def test_a_name_stands_for_one_threshold() -> None:
    counts = Counter(name for path in MODULES for name, _ in constants(path))
    assert len(counts) > 50
    assert [name for name, times in counts.items() if times > 1] == []


def test_each_threshold_has_its_unit_or_reason_beside_it() -> None:
    for path in MODULES:
        lines = path.read_text().splitlines()
        for name, line in constants(path):
            assert "  # " in lines[line - 1] or lines[line - 2].startswith("#"), f"{name} in {path}"
