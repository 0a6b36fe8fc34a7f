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

_SCALARS = frozenset((str, int, float, bool, type(None)))
LONGEST_NAME = 64  # shorter texts are names that come again and again
T = TypeVar("T")
Decoder = Callable[[Any], Any]


class WireError(ValueError):
    """A document that is not what it should be. The message names the place and what was expected there."""


class _MisfitError(Exception):
    """What is wrong with a value. Those that read around it say where it lies, on its way out of them.

    To have the path ready at each value would cost more than to read the value.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.path = ""

    def lies_in(self, step: str) -> None:
        self.path = step + self.path


def encode(value: Any) -> Any:
    """A record as plain dictionaries, lists and scalars, ready for `json.dumps`."""
    if type(value) in _SCALARS:  # nine values in ten
        return value
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
    try:
        result: T = _decoder(cast("Any", kind), lenient)(data)
    except _MisfitError as misfit:
        raise WireError(f"{kind.__name__}{misfit.path}: {misfit}") from None
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
    """The resolved type of every field of a record.

    A name in an annotation is looked up in the module of its class first, then among the records of the model, which
    import each other for type checkers only.
    """
    names = dict(vars(records))
    for base in reversed(kind.__mro__):
        names |= vars(sys.modules[base.__module__])
    return typing.get_type_hints(kind, names)


@functools.cache
def _decoder(kind: Any, lenient: bool) -> Decoder:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType or origin is typing.Union:
        return _optional(_decoder(next(a for a in arguments if a is not type(None)), lenient))
    if origin is tuple:
        return _sequence(_decoder(arguments[0], lenient), shared=_repeats(arguments[0]))
    if origin is dict:
        return _mapping(arguments[0], _decoder(arguments[1], lenient), shared=arguments[1] is int)
    if dataclasses.is_dataclass(kind):
        return _record(typing.cast(type, kind), lenient)
    if issubclass(kind, StrEnum):
        return _enum(kind)
    return _scalar(kind)


def _repeats(kind: Any) -> bool:
    """Tuples of these are the same for most ranks: stacks, shapes, types of tensors."""
    return kind is records.Frame or kind is str or typing.get_origin(kind) is tuple


def _optional(inner: Decoder) -> Decoder:
    return lambda data: None if data is None else inner(data)


def _sequence(inner: Decoder, shared: bool) -> Decoder:
    # The first of all equal values in place of each: thousands of ranks issue the same calls from the same places.
    keep: Callable[[Any], Any] = (
        functools.lru_cache(maxsize=8192)(lambda value: value) if shared else lambda value: value
    )

    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise _wrong("a list", data)
        found: list[Any] = []
        try:
            found.extend(map(inner, data))
        except _MisfitError as misfit:
            misfit.lies_in(f"[{len(found)}]")
            raise
        return keep(tuple(found))

    return read


def _mapping(key_kind: type, inner: Decoder, shared: bool) -> Decoder:
    keep: Callable[[Any], Any] = functools.lru_cache(maxsize=8192)(dict)

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _wrong("an object", data)
        try:
            keys = [key_kind(key) for key in data]
        except ValueError:
            raise _wrong(f"keys of type {key_kind.__name__}", data) from None
        found: list[Any] = []
        try:
            found.extend(map(inner, data.values()))
        except _MisfitError as misfit:
            misfit.lies_in(f".{list(data)[len(found)]}")
            raise
        pairs = zip(keys, found, strict=True)
        return keep(tuple(pairs)) if shared else dict(pairs)

    return read


def _record(kind: type, lenient: bool) -> Decoder:
    required = {
        entry.name
        for entry in dataclasses.fields(kind)
        if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
    }

    @functools.cache  # not before the first is read: a record may hold records of its own kind
    def decoders() -> dict[str, Decoder]:
        return {name: _decoder(hint, lenient) for name, hint in hints(kind).items()}

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _wrong(f"an object ({kind.__name__})", data)
        if not required <= data.keys():
            raise _MisfitError(f"{', '.join(sorted(required - data.keys()))} missing")
        known = decoders()
        if not data.keys() <= known.keys():
            if not lenient:
                raise _MisfitError(f"unknown field {min(data.keys() - known.keys())!r}")
            data = {name: item for name, item in data.items() if name in known}
        values = {}
        name = ""
        try:
            for name, item in data.items():
                values[name] = known[name](item)
        except _MisfitError as misfit:
            misfit.lies_in(f".{name}")
            raise
        return kind(**values)

    return read


def _enum(kind: type[StrEnum]) -> Decoder:
    def read(data: Any) -> Any:
        try:
            return kind(data)
        except ValueError:
            raise _wrong(f"one of {', '.join(kind)}", data) from None

    return read


def _scalar(kind: type) -> Decoder:
    if kind is float:
        return _number
    if kind is str:
        return _text

    def read(data: Any) -> Any:
        if type(data) is not kind:  # bool is an int to isinstance, and must not be one here
            raise _wrong(kind.__name__, data)
        return data

    return read


def _text(data: Any) -> str:
    if type(data) is not str:
        raise _wrong("str", data)
    return sys.intern(data) if len(data) <= LONGEST_NAME else data


def _number(data: Any) -> float:
    """JSON's numbers are finite; Python's reader lets others pass, which no writer could write again."""
    try:
        number = float(data) if type(data) in (float, int) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong("float", data)
    return number


def _wrong(expected: str, data: Any) -> _MisfitError:
    return _MisfitError(f"expected {expected}, found {repr(data)[:60]}")
