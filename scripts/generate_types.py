"""Writes the page's types, titles and explanations into dashboard/web/src. A test holds them to their sources."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

from hangwatch import model as records
from hangwatch.catalogue import CATALOGUE, Cause
from hangwatch_dashboard import answers

FOLDER = Path(__file__).parent.parent / "dashboard" / "web" / "src"
_OF_THE_CATALOGUE = "// Written by scripts/generate_types.py from the catalogue of causes. Edit there."
_EXPLANATION = """\
export interface Explanation {
  says: string;
  fix: string; // the usual one; a verdict's own is about its code
  alike: string[]; // the causes that a person would suspect first
}"""
_SCALARS = {str: "string", int: "number", float: "number", bool: "boolean", types.NoneType: "null"}


def record_types() -> str:
    """Every record as an interface and every enumeration as a union, in the order of the module."""
    return f"// Written by scripts/generate_types.py from hangwatch/model/. Edit there.\n\n{_types(records)}\n"


def answer_types() -> str:
    """The same of what the dashboard answers."""
    text = _types(answers)
    known = sorted(kind.__name__ for kind in _kinds(records) if kind.__name__ in _words(text))
    first = "// Written by scripts/generate_types.py from hangwatch_dashboard/answers.py. Edit there."
    return f'{first}\n\nimport type {{ {", ".join(known)} }} from "./records";\n\n{text}\n'


def titles() -> str:
    """What people call the causes and warnings, by id."""
    lines = "\n".join(f"  {json.dumps(cause.id)}: {json.dumps(cause.title)}," for cause in CATALOGUE)
    return f"{_OF_THE_CATALOGUE}\n\nexport const TITLES: Readonly<Record<string, string>> = {{\n{lines}\n}};\n"


def explanations() -> str:
    """What the catalogue says of each cause: the page explains it without a published site, in a report file too."""
    lines = "\n".join(map(_explained, CATALOGUE))
    known = "export const EXPLANATIONS: Readonly<Record<string, Explanation>>"
    return f"{_OF_THE_CATALOGUE}\n\n{_EXPLANATION}\n\n{known} = {{\n{lines}\n}};\n"


def _explained(cause: Cause) -> str:
    fields = {"says": cause.explanation, "fix": cause.fix, "alike": list(cause.look_alikes)}
    inside = ", ".join(f"{name}: {json.dumps(value)}" for name, value in fields.items())
    return f"  {json.dumps(cause.id)}: {{ {inside} }},"


def _types(module: ModuleType) -> str:
    return "\n\n".join(_union(kind) if issubclass(kind, StrEnum) else _interface(kind) for kind in _kinds(module))


def _kinds(module: ModuleType) -> list[type]:
    return [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and f"{kind.__module__}.".startswith(f"{module.__name__}.")
    ]


def _words(text: str) -> set[str]:
    return set("".join(letter if letter.isalnum() else " " for letter in text).split())


def _union(kind: type[StrEnum]) -> str:
    members = " | ".join(f'"{member}"' for member in kind)
    return f"export type {kind.__name__} = {members};"


def _interface(kind: type) -> str:
    hints = typing.get_type_hints(kind, vars(records) | vars(answers))
    fields = "\n".join(f"  {entry.name}: {_type(hints[entry.name])};" for entry in dataclasses.fields(kind))
    return f"export interface {kind.__name__} {{\n{fields}\n}}"


def _type(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_type(argument) for argument in arguments)
    if origin is tuple:
        item = _type(arguments[0])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if origin is dict:
        return f"Record<string, {_type(arguments[1])}>"
    return _SCALARS.get(kind) or kind.__name__


FILES: dict[str, Callable[[], str]] = {
    "records.ts": record_types,
    "answers.ts": answer_types,
    "titles.ts": titles,
    "explanations.ts": explanations,
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
