"""What a module of the user's imports from another file of theirs: definitions that are read together with it.

A check of the rank, a manager that swallows errors, a topology: programs keep them in a file of their own. Ahead of
each definition stands where it is from, so that its lines can be told as those of its own file.
"""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from hangwatch.model import Frame
from hangwatch.source.syntax import IMPORTED, parsed

_ROOTS = 2  # folders in which a module is looked for: that of the file, and the one above
_MOST = 16  # modules of one file
_ORIGIN = "imported: "  # begins the text ahead of a definition
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign


class _Import(NamedTuple):
    """The places of a module, relative to the folder of the file, and the names that are taken from it."""

    places: tuple[str, ...]
    names: frozenset[str]


def with_imports(file: str, source_of: Callable[[str], str | None]) -> str | None:
    """The text of a file, and from line `IMPORTED` on the text of what it imports from files beside it.

    So the lines of the file stay where they are. None where it cannot be read.
    """
    text = source_of(file)
    if text is None or text.count("\n") >= IMPORTED - 1:
        return text
    folder, found = posixpath.dirname(file), []
    for each in _imports(text):
        places = [posixpath.normpath(posixpath.join(folder, place)) for place in each.places]
        others = ((place, source_of(place)) for place in places)
        other = next(((place, other) for place, other in others if other is not None and other != text), None)
        if other is not None:
            found.append((*other, each.names))
    return _joined(text, tuple(found)) if found else text


@lru_cache(maxsize=64)
def _imports(text: str) -> tuple[_Import, ...]:
    tree = parsed(text)
    found = [each for node in ast.walk(tree) for each in _taken(node, tree)] if tree is not None else []
    return tuple(found[:_MOST])


def _taken(node: ast.AST, tree: ast.Module) -> Iterator[_Import]:
    if isinstance(node, ast.ImportFrom):
        names = frozenset(each.name for each in node.names)
        if node.level:
            up = "../" * (node.level - 1)
            yield _Import((f"{up}{_path(node.module)}",) if node.module else (), names)
        elif node.module and _may_be_own(node.module):
            yield _Import(tuple(f"{'../' * up}{_path(node.module)}" for up in range(_ROOTS)), names)
    elif isinstance(node, ast.Import):
        for each in node.names:
            names = frozenset(_asked_of(each.asname or each.name, tree)) if _may_be_own(each.name) else frozenset()
            if names:
                yield _Import(tuple(f"{'../' * up}{_path(each.name)}" for up in range(_ROOTS)), names)


def _may_be_own(module: str) -> bool:
    first = module.partition(".")[0]
    return first not in sys.stdlib_module_names and first != "torch"


def _path(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def _asked_of(module: str, tree: ast.Module) -> Iterator[str]:
    """The names in `module.name`."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return (node.attr for node in attributes if ast.unparse(node.value) == module)


def at_its_origin(place: Frame, tree: ast.Module) -> Frame:
    """`place`, which may stand in what a module imports, as a place of the file that defines it."""
    if place.line < IMPORTED:
        return place
    marked = [(node.lineno, told) for node in tree.body if (told := _origin_told(node)) and node.lineno < place.line]
    line, told = marked[-1]
    file, _, first = told.rpartition(":")
    return replace(place, file=file, line=int(first) + place.line - line - 1)


def _origin_told(node: ast.stmt) -> str:
    """The file and line of the definition behind it; "" for another statement."""
    text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
    return text.removeprefix(_ORIGIN) if isinstance(text, str) and text.startswith(_ORIGIN) else ""


@lru_cache(maxsize=64)
def _joined(text: str, others: tuple[tuple[str, str, frozenset[str]], ...]) -> str:
    parts = [part for file, other, names in others for part in _definitions(file, other, names)]
    return "\n".join((text + "\n" * (IMPORTED - 2 - text.count("\n")), *parts, "")) if parts else text


def _definitions(file: str, text: str, names: frozenset[str]) -> Iterator[str]:
    """The text of each definition as it stands there, behind a line that says where that is."""
    tree = parsed(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # as Python counts them
    for node in tree.body if tree is not None else ():
        if isinstance(node, _Definition) and not names.isdisjoint(_defines(node)):
            first = min((each.lineno for each in getattr(node, "decorator_list", ())), default=node.lineno)
            yield repr(f"{_ORIGIN}{file}:{first}")
            yield from lines[first - 1 : node.end_lineno]


def _defines(node: _Definition) -> set[str]:
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {node.name}
