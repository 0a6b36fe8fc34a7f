"""Writes the page's types of the records, dashboard/web/src/records.ts. A test holds it to hangwatch/model/."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

from hangwatch import model as records
from hangwatch.wire import codec

TARGET = Path(__file__).parent.parent / "dashboard" / "web" / "src" / "records.ts"
_SCALARS = {str: "string", int: "number", float: "number", bool: "boolean", types.NoneType: "null"}


def typescript() -> str:
    """Every record as an interface and every enumeration as a union, in the order of the module."""
    kinds = [
        kind
        for kind in vars(records).values()
        if inspect.isclass(kind) and kind.__module__.startswith(f"{records.__name__}.")
    ]
    parts = "\n\n".join(_union(kind) if issubclass(kind, StrEnum) else _interface(kind) for kind in kinds)
    return f"// Written by scripts/generate_types.py from hangwatch/model/. Edit there.\n\n{parts}\n"


def _union(kind: type[StrEnum]) -> str:
    members = " | ".join(f'"{member}"' for member in kind)
    return f"export type {kind.__name__} = {members};"


def _interface(kind: type) -> str:
    hints = codec.hints(kind)
    fields = "\n".join(f"  {entry.name}: {_type(hints[entry.name])};" for entry in dataclasses.fields(kind))
    return f"export interface {kind.__name__} {{\n{fields}\n}}"


def _type(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_type(argument) for argument in arguments)
    if origin is tuple:
        one = _type(arguments[0])
        return f"({one})[]" if " | " in one else f"{one}[]"
    if origin is dict:
        return f"Record<string, {_type(arguments[1])}>"
    return _SCALARS.get(kind) or kind.__name__


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(typescript(), encoding="utf-8")


if __name__ == "__main__":
    main()
