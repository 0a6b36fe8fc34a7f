"""For which keys of a store ranks may wait, and which lines set these, from the user's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from hangwatch.model import KeySetter, RankEvidence, StoreKey
from hangwatch.source.store_keys import awaited_key, places, with_setters
from hangwatch.stacks.frames import of_origin
from hangwatch_agent.capture.source.files import Sources
from hangwatch_agent.capture.source.lines import one_line
from hangwatch_agent.capture.source.programs import root_of, texts

MOST = 16  # places of a node at which ranks wait for keys


def store_keys(ranks: Iterable[RankEvidence], sources: Sources, proc: Path) -> tuple[StoreKey, ...]:
    """One for each place where a rank's main thread asks a store for one key. Ranks that stand alike share one."""
    known = list(ranks)
    waiting = dict.fromkeys(each for rank in known for each in _waits(rank, sources, proc))
    if not waiting:
        return ()
    program = texts(known, sources, proc)
    return tuple(_shown(with_setters(each, program)) for each in list(waiting)[:MOST])


def _waits(rank: RankEvidence, sources: Sources, proc: Path) -> Iterator[StoreKey]:
    own = of_origin(rank.main_stack, "user")
    key = awaited_key(places(own, sources.reader(root_of(rank, proc))))
    if key:
        yield StoreKey(own, key)


def _shown(found: StoreKey) -> StoreKey:
    return replace(found, key=_key_shown(found.key), setters=tuple(map(_setter_shown, found.setters)))


def _key_shown(key: str) -> str:
    """As text in quotes is, without them."""
    return one_line(f"'{key}'").removeprefix("'").removesuffix("'")


def _setter_shown(setter: KeySetter) -> KeySetter:
    told = tuple(replace(each, text=one_line(each.text)) for each in setter.conditions)
    return replace(setter, conditions=told)
