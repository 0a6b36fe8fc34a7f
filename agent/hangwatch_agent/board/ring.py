"""Follows a ring of a board: what has been read and decoded once is kept, so that a poll costs what is new."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
ORDER = sys.byteorder
MOST_LATE = 16  # entries that are waited for: threads that were interrupted while they wrote

Decode = Callable[[int, bytes], T]


@dataclass(frozen=True)
class Place:
    """Where a ring lies on the board: `count` is the word that says how many entries were ever written.

    Entry n has `width` words and lies at word `at` + n % `size` * `width`; its first word is n + 1 once it is whole.
    """

    at: int
    size: int
    width: int
    count: int


class Ring(Generic[T]):
    """The entries of one ring of the board behind `descriptor`, oldest first."""

    def __init__(self, descriptor: int, place: Place) -> None:
        self._descriptor, self._place = descriptor, place
        self.forget()

    def forget(self) -> None:
        """Decode everything anew: what the entries mean has changed."""
        self._numbers: deque[int] = deque()
        self._entries: deque[T] = deque()
        self._next = 0
        self._late: list[int] = []  # not whole when they were read
        self._whole: tuple[T, ...] | None = ()

    def follow(self, count: int, decode: Decode[T]) -> tuple[T, ...]:
        """All entries that the ring holds, where `count` were ever written."""
        if count < self._next:
            self.forget()
        for number in self._late:
            self._take(number, number + 1, decode)
        self._take(max(self._next, count - self._place.size), count, decode)
        self._next = max(self._next, count)
        self._drop(self._oldest())
        if self._whole is None:
            self._whole = tuple(self._entries)
        return self._whole

    def newest(self, count: int, wanted: int, decode: Decode[T]) -> tuple[T, ...]:
        """The newest `wanted` entries, without keeping anything."""
        first = max(0, count - min(self._place.size, max(0, wanted)))
        found = list(self._read(first, count))
        oldest = self._oldest()
        return tuple(decode(number, raw) for number, raw in found if number >= oldest and _is_whole(number, raw))

    def entry(self, number: int) -> bytes | None:
        """Entry `number` as it stands on the board; None where it is not whole, or has been overwritten."""
        _, raw = next(self._read(number, number + 1))
        return raw if _is_whole(number, raw) else None

    def _take(self, first: int, end: int, decode: Decode[T]) -> None:
        """Decode entries `first` to `end`; those that are not whole yet are tried again next time."""
        entries = list(self._read(first, end))
        oldest = self._oldest()  # read after them: one that has been overwritten since may be half of each
        late = [number for number in self._late if not first <= number < end and number >= oldest]
        for number, raw in entries:
            if number < oldest:
                continue
            if _is_whole(number, raw):
                self._insert(number, decode(number, raw))
            else:
                late.append(number)
        self._late = late[-MOST_LATE:]

    def _insert(self, number: int, entry: T) -> None:
        at = len(self._numbers)
        while at and self._numbers[at - 1] > number:  # it was late
            at -= 1
        self._numbers.insert(at, number)
        self._entries.insert(at, entry)
        self._whole = None

    def _drop(self, oldest: int) -> None:
        while self._numbers and self._numbers[0] < oldest:
            self._numbers.popleft()
            self._entries.popleft()
            self._whole = None

    def _oldest(self) -> int:
        """The oldest entry that cannot be under the writer's pen: the place before it is where it writes next."""
        word = os.pread(self._descriptor, 8, self._place.count * 8)
        return int.from_bytes(word, ORDER, signed=True) - self._place.size + 1

    def _read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        place, width = self._place, self._place.width * 8
        for begin, stop in _ranges(first, end, place.size):
            data = os.pread(self._descriptor, (stop - begin) * width, place.at * 8 + begin % place.size * width)
            for number in range(begin, stop):
                yield number, data[(number - begin) * width : (number - begin + 1) * width]


def _is_whole(number: int, raw: bytes) -> bool:
    return raw[:8] == (number + 1).to_bytes(8, ORDER)


def _ranges(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """Numbers `first` to `end` as one or two ranges that do not wrap around a ring of `size`."""
    if first >= end:
        return []
    turn = (first // size + 1) * size
    return [(first, end)] if end <= turn else [(first, turn), (turn, end)]
