"""Records of a machine whose clock differs from ours, moved to our clock."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, TypeVar

T = TypeVar("T")
NEGLIGIBLE_S = 0.02  # not worth rewriting a thousand records
# No records, nor tuples of such: each of 10,000 ranks lists 10,000 members of its groups, minutes to look through.
PLAIN = frozenset({"None", "tuple", "str", "int", "float", "bool"})


def shifted(record: T, offset: float) -> T:
    """A record with all its absolute times (fields "at" and "..._at") moved to our clock; 0 means "not known"."""
    if abs(offset) < NEGLIGIBLE_S:
        return record
    result: T = _shifted(record, offset)
    return result


def _shifted(value: Any, offset: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_shifted(item, offset) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    times, others = _fields(type(value))
    changes = {name: moment - offset for name in times if (moment := getattr(value, name))}
    changes |= {name: _shifted(getattr(value, name), offset) for name in others}
    return dataclasses.replace(value, **changes) if changes else value


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the absolute times of a record, and of the parts that may have some."""
    entries = [(entry.name, str(entry.type)) for entry in dataclasses.fields(kind)]
    times = tuple(name for name, declared in entries if _is_time(name, declared))
    others = tuple(
        name
        for name, declared in entries
        if name not in times and not PLAIN.issuperset(re.findall(r"\w+", declared)) and "dict[" not in declared
    )
    return times, others


def _is_time(name: str, declared: str) -> bool:
    return (name == "at" or name.endswith("_at")) and declared.startswith("float")
