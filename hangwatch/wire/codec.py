"""Records to JSON and back, strictly: what stands in a report or comes over the link is checked on the way in.

`decode` refuses wrong types, missing fields and unknown enum values with the path to the place; unknown *fields* are
refused too unless `lenient`, which readers of files from a newer hangwatch use.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar, cast

from hangwatch import model as records

LONGEST_NAME = 64  # shorter texts are names that come again and again
T = TypeVar("T")
Decoder = Callable[[Any, str, bool], Any]


class WireError(ValueError):
    """A document that is not what it should be. The message names the place and what was expected there."""


def encode(value: Any) -> Any:
    """A record as plain dictionaries, lists and scalars, ready for `json.dumps`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return str(value) if isinstance(value, StrEnum) else value


def dumps(record: Any, indent: int | None = None) -> str:
    """A record as JSON text (ASCII, so that lone surrogates from hostile strings survive)."""
    return json.dumps(encode(record), indent=indent, allow_nan=False)


def decode(kind: type[T], data: Any, *, lenient: bool = False) -> T:
    """The record of type `kind` that `data` (from `json.loads`) describes. Raises WireError."""
    result: T = _decoder(cast("Any", kind))(data, kind.__name__, lenient)
    return result


def loads(kind: type[T], text: str | bytes, *, lenient: bool = False) -> T:
    """The record of type `kind` in a JSON text. Raises WireError, also for text that is not JSON."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    return decode(kind, data, lenient=lenient)


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(entry.name for entry in dataclasses.fields(kind))


@functools.cache
def hints(kind: type) -> dict[str, Any]:
    """The resolved type of every field of a record."""
    return typing.get_type_hints(kind, vars(records))


@functools.cache
def _decoder(kind: Any) -> Decoder:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType or origin is typing.Union:
        return _optional(_decoder(next(a for a in arguments if a is not type(None))))
    if origin is tuple:
        return _sequence(_decoder(arguments[0]), shared=_repeats(arguments[0]))
    if origin is dict:
        return _mapping(arguments[0], _decoder(arguments[1]), shared=arguments[1] is int)
    if dataclasses.is_dataclass(kind):
        return _record(typing.cast(type, kind))
    if issubclass(kind, StrEnum):
        return _enum(kind)
    return _scalar(kind)


def _repeats(kind: Any) -> bool:
    """Tuples of these are the same for most ranks: stacks, shapes, types of tensors."""
    return kind is records.Frame or kind is str or typing.get_origin(kind) is tuple


def _optional(inner: Decoder) -> Decoder:
    return lambda data, path, lenient: None if data is None else inner(data, path, lenient)


def _sequence(inner: Decoder, shared: bool) -> Decoder:
    # The first of all equal values in place of each: thousands of ranks issue the same calls from the same places.
    keep: Callable[[Any], Any] = (
        functools.lru_cache(maxsize=8192)(lambda value: value) if shared else lambda value: value
    )

    def read(data: Any, path: str, lenient: bool) -> Any:
        if not isinstance(data, list):
            raise _wrong(path, "a list", data)
        return keep(tuple(inner(item, f"{path}[{i}]", lenient) for i, item in enumerate(data)))

    return read


def _mapping(key_kind: type, inner: Decoder, shared: bool) -> Decoder:
    keep: Callable[[Any], Any] = functools.lru_cache(maxsize=8192)(dict)

    def read(data: Any, path: str, lenient: bool) -> Any:
        if not isinstance(data, dict):
            raise _wrong(path, "an object", data)
        try:
            found = {key_kind(key): inner(item, f"{path}.{key}", lenient) for key, item in data.items()}
            return keep(tuple(found.items())) if shared else found
        except ValueError as error:
            if isinstance(error, WireError):
                raise
            raise _wrong(path, f"keys of type {key_kind.__name__}", data) from error

    return read


def _record(kind: type) -> Decoder:
    required = {
        entry.name
        for entry in dataclasses.fields(kind)
        if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
    }
    known = hints(kind)

    def read(data: Any, path: str, lenient: bool) -> Any:
        if not isinstance(data, dict):
            raise _wrong(path, f"an object ({kind.__name__})", data)
        if missing := required - data.keys():
            raise WireError(f"{path}: {', '.join(sorted(missing))} missing")
        values = {}
        for name, item in data.items():
            if name in known:
                values[name] = _decoder(known[name])(item, f"{path}.{name}", lenient)
            elif not lenient:
                raise WireError(f"{path}: unknown field {name!r}")
        return kind(**values)

    return read


def _enum(kind: type[StrEnum]) -> Decoder:
    def read(data: Any, path: str, lenient: bool) -> Any:
        try:
            return kind(data)
        except ValueError:
            raise _wrong(path, f"one of {', '.join(kind)}", data) from None

    return read


def _scalar(kind: type) -> Decoder:
    if kind is float:
        return _number

    def read(data: Any, path: str, lenient: bool) -> Any:
        if type(data) is not kind:  # bool is an int to isinstance, and must not be one here
            raise _wrong(path, kind.__name__, data)
        return sys.intern(data) if isinstance(data, str) and len(data) <= LONGEST_NAME else data

    return read


def _number(data: Any, path: str, lenient: bool) -> float:
    """JSON's numbers are finite; Python's reader lets others pass, which no writer could write again."""
    try:
        number = float(data) if type(data) in (float, int) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(path, "float", data)
    return number


def _wrong(path: str, expected: str, data: Any) -> WireError:
    found = repr(data)
    return WireError(f"{path}: expected {expected}, found {found[:60]}")
