"""Hypothesis strategies for records, generated from their fields: a new field is tested without being listed here."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from enum import StrEnum
from typing import Any, TypeVar

from hypothesis import strategies as st

from hangwatch.model import StackNode
from hangwatch.wire import codec

T = TypeVar("T")

# Lone surrogates too: file names and messages of a job may hold any bytes.
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
NUMBERS = st.integers(-(2**53), 2**53)
_SCALARS: dict[type, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBERS,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
}


def record(kind: type[T], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Records of type `kind`; fields in `fixed` are drawn from the strategies given, the others from their type."""
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    untyped: Any = kind
    for entry in dataclasses.fields(untyped):
        has_default = not (entry.default is entry.default_factory is dataclasses.MISSING)
        place = optional if has_default and entry.name not in fixed else required
        place[entry.name] = fixed[entry.name] if entry.name in fixed else _of(codec.hints(untyped)[entry.name])
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: kind(**values))


@functools.cache
def _of(kind: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return st.none() | _of(next(argument for argument in arguments if argument is not type(None)))
    if origin is tuple:
        return st.lists(_of(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(_of(arguments[0]), _of(arguments[1]), max_size=2)
    if kind is StackNode:
        return _stack_nodes()
    if dataclasses.is_dataclass(kind):
        known = typing.cast("type[Any]", kind)
        return st.deferred(lambda: record(known))
    if issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    return _SCALARS[kind]


def _stack_nodes() -> st.SearchStrategy[StackNode]:
    leaf = record(StackNode, children=st.just(()))
    return st.recursive(leaf, lambda inner: record(StackNode, children=st.lists(inner, max_size=2).map(tuple)))
