"""The JSON Schema of an incident report, generated from the dataclasses, and the field tables of docs/report.md.

`python -m hangwatch.report.schema` writes both anew; a test fails when the committed ones differ.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from hangwatch.model import SCHEMA, Incident
from hangwatch.wire import codec

SCHEMA_FILE = Path(__file__).with_name("incident.schema.json")
DOCS_FILE = Path(__file__).parents[2] / "docs" / "report.md"
BEGIN, END = "<!-- generated: fields -->\n", "<!-- end of the generated part -->\n"
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12). Readers accept fields that they do not know, so it allows them too."""
    definitions = {kind.__name__: _object(kind) for kind in kinds() if kind is not Incident}
    incident = _object(Incident)
    incident["properties"]["schema"] = {"const": SCHEMA}
    incident["required"] = sorted({*incident["required"], "schema"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA.replace('/', ':')}",
        "title": "A hang, as hangwatch reports it",
        **incident,
        "$defs": definitions,
    }


def kinds() -> tuple[type, ...]:
    """Incident and every record type that can stand in one, in the order in which the report comes to them."""
    found: dict[type, None] = {}
    todo: list[Any] = [Incident]
    while todo:
        kind = todo.pop(0)
        if dataclasses.is_dataclass(kind) and kind not in found:
            found[typing.cast(type, kind)] = None
            todo += codec.hints(typing.cast(Any, kind)).values()
        else:
            todo += typing.get_args(kind)
    return tuple(found)


def _object(kind: Any) -> dict[str, Any]:
    fields = dataclasses.fields(kind)
    required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": {f.name: _value(codec.hints(kind)[f.name]) | _comment(kind, f.name) for f in fields},
        "required": required,
    }


def _comment(kind: type, name: str) -> dict[str, str]:
    said = comments(kind).get(name)
    return {"description": said} if said else {}


def _value(kind: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return {"anyOf": [_value(argument) for argument in arguments]}
    if origin is tuple:
        return {"type": "array", "items": _value(arguments[0])}
    if origin is dict:
        keys = {} if arguments[0] is str else {"propertyNames": {"pattern": "^-?[0-9]+$"}}
        return {"type": "object", "additionalProperties": _value(arguments[1]), **keys}
    if kind is type(None):
        return {"type": "null"}
    if dataclasses.is_dataclass(kind):
        return {"$ref": f"#/$defs/{typing.cast(type, kind).__name__}"}
    if issubclass(kind, StrEnum):
        return {"enum": list(map(str, kind))}
    return {"type": _SCALARS[kind]}


@functools.cache
def comments(kind: type) -> dict[str, str]:
    """What the source says of each field behind its definition."""
    found = re.finditer(r"^    (\w+): [^#\n]*# (.+)$", inspect.getsource(kind), re.MULTILINE)
    return {match[1]: match[2] for match in found}


def tables() -> str:
    """The fields of every record of a report, for docs/report.md."""
    return "\n".join(line for kind in kinds() for line in _table(kind))


def _table(kind: Any) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    yield f"{' '.join((kind.__doc__ or '').split())}\n"
    yield "| field | type | |"
    yield "|---|---|---|"
    for entry in dataclasses.fields(kind):
        said = comments(kind).get(entry.name, "").replace("|", "\\|")
        yield f"| `{entry.name}` | {_words(codec.hints(kind)[entry.name])} | {said} |"
    yield ""


def _words(kind: Any) -> str:
    """A type for readers of JSON."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return f"{_words(arguments[0])} or null"
    if origin is tuple:
        return f"list of {_words(arguments[0])}"
    if origin is dict:
        return f"object: {_words(arguments[0])} to {_words(arguments[1])}"
    if dataclasses.is_dataclass(kind):
        name = typing.cast(type, kind).__name__
        return f"[{name}](#{name.lower()})"
    return ", ".join(f"`{word}`" for word in kind) if issubclass(kind, StrEnum) else _SCALARS[kind]


def schema_text() -> str:
    """What the committed schema file should hold."""
    return json.dumps(json_schema(), indent=1) + "\n"


def docs_text(current: str) -> str:
    """docs/report.md with its generated part made anew."""
    before, _, rest = current.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Write the generated files of a checkout."""
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    DOCS_FILE.write_text(docs_text(DOCS_FILE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
