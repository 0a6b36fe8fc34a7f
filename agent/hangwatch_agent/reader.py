"""Reads a board, whoever wrote it and however it ended. Its format stands in `hangwatch_agent.board.BoardWriter`.

Everything is read with `pread`, never through a mapping: a file that is cut off under us must not kill the watchdog.
A hostile or spoiled file gives a BoardError or a valid Reading. A reader keeps what it has decoded: a poll costs what
is new.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hangwatch.records import Collective, ExceptionFacts, GroupMade, Identity, LoaderFacts, Reading, StepEntry
from hangwatch_agent import board as b
from hangwatch_agent import reading as to
from hangwatch_agent.board import BoardError
from hangwatch_agent.capture.redact import redact_environment, redact_text

T = TypeVar("T")
MOST_OPEN = 64  # boards kept open by read_board
ORDER = sys.byteorder
THREADS = range(b.THREADS_AT, b.THREADS_AT + b.THREAD_SLOTS * b.SLOT_WORDS, b.SLOT_WORDS)

Mark = tuple[int, int, int]

_readers: OrderedDict[Path, BoardReader] = OrderedDict()


def read_board(path: Path, *, steps: int = b.STEPS, calls: int = b.CALLS) -> Reading:
    """What the board at `path` says now, with at most so many of the newest ledger steps and calls.

    Raises:
        BoardError: the file is no board, is of another version, or is cut off; the message says which.
        OSError: the file cannot be opened. A board that was deleted after it was first read still gives a Reading.
    """
    path = Path(path)
    reader = _readers.get(path)
    if reader is not None and reader.replaced():
        _readers.pop(path).close()
        reader = None
    if reader is None:
        reader = _readers[path] = BoardReader(path)
        while len(_readers) > MOST_OPEN:
            _readers.popitem(last=False)[1].close()
    _readers.move_to_end(path)
    try:
        return reader.read(steps=steps, calls=calls)
    except (BoardError, OSError):
        _readers.pop(path).close()
        raise


def request_collectives(path: Path, pid: int) -> None:
    """Ask the rank of a board to write `collectives-PID.json` beside it; it does so at its ticker's next tick.

    The file is replaced as a whole, also where its content is the same.

    Raises:
        BoardError: the file is no board of this version, or not that of process `pid`.
        OSError: it cannot be opened for writing.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        words = _checked(descriptor)
        if words[b.W_PID] != pid:
            raise BoardError(f"{path} is the board of process {words[b.W_PID]}, not of {pid}")
        request = array("q", [(words[b.W_REQUEST] + 1) & 0x7FFFFFFF])
        os.pwrite(descriptor, request.tobytes(), b.W_REQUEST * 8)
    finally:
        os.close(descriptor)


class BoardReader:
    """Reads one board again and again. `close` it, or use it in a `with` statement."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._places = b.blob_places()
        self._blobs: dict[str, tuple[Mark, Any]] = {}
        self._lines: list[Any] = []
        self._table_read = 0
        self._groups: tuple[to.Slot, ...] = ()
        self._steps: dict[int, tuple[bytes, StepEntry]] = {}
        self._calls: dict[int, tuple[bytes, Collective]] = {}

    def __enter__(self) -> BoardReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Does nothing the second time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def replaced(self) -> bool:
        """Whether another file has taken this board's name. One that is gone has not been replaced."""
        try:
            there, here = self.path.lstat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def read(self, *, steps: int = b.STEPS, calls: int = b.CALLS) -> Reading:
        """What the board says now. Raises BoardError."""
        words = _checked(self._descriptor)
        trouble: list[str] = []
        identity = self._identity(words)
        self._read_table(words[b.W_TABLE_USED])
        self._read_groups(words, trouble)
        ledger = self._ledger(words, max(steps, 2))
        problems: tuple[str, ...] = self._blob(words, "problems", trouble, lambda data: tuple(map(str, data)), ())
        exception: ExceptionFacts | None = self._blob(words, "exception", trouble, _exception, None)
        lasting: tuple[int, ...] | None = self._blob(words, "lasting_threads", trouble, to.thread_ids, None)
        made: tuple[GroupMade, ...] = self._blob(words, "groups_made", trouble, _groups_made, ())
        return Reading(
            identity=identity,
            taken_at=time.time(),
            phase=to.phase(words[b.W_PHASE]),
            phase_at=to.seconds(words[b.W_PHASE_AT]),
            progress=to.progress(words, ledger[-1] if ledger else None),
            ticker_at=to.seconds(words[b.W_TICKER_AT]),
            heads=tuple(to.head(slot, words) for slot in self._groups if slot.alive),
            calls=self._ring(words, calls),
            open_calls=self._open_calls(words),
            steps=ledger[-steps:] if steps > 0 else (),
            loaders=self._loaders(words, trouble),
            exception=exception,
            times=to.times(words),
            groups_made=made,
            detached=words[b.W_DETACHED] != 0,
            problems=(*problems, *trouble),
            lasting_threads=lasting,
        )

    # ------------------------------------------------------------ what has no fixed size

    def _identity(self, words: array[int]) -> Identity:
        missing: list[str] = []
        identity: Identity | None = self._blob(words, "identity", missing, _identity, None)
        if identity is None:
            raise BoardError(f"a board that does not say whose it is: {'; '.join(missing) or 'nothing written'}")
        return identity

    def _blob(self, words: array[int], name: str, trouble: list[str], decode: Callable[[Any], T], default: T) -> T:
        """Blob `name`, decoded; `default` where nothing was written, or where it is spoiled, as `trouble` then says."""
        word, start, capacity = self._places[name]
        for _ in range(4):  # it may be written while we read it, hardly so often
            half = words[word] - 1
            if half not in (0, 1):
                return default
            mark = (half, words[word + 1 + 2 * half], words[word + 2 + 2 * half])
            seen = self._blobs.get(name)
            if seen is not None and seen[0] == mark:
                value: T = seen[1]
                return value
            if 0 <= mark[1] <= capacity:
                data = os.pread(self._descriptor, mark[1], start + half * capacity)
                if len(data) == mark[1] and zlib.crc32(data) == mark[2]:
                    return self._decoded(name, mark, data, trouble, decode, default)
            words = _checked(self._descriptor)
        trouble.append(f"{name} on the board: torn")
        return default

    def _decoded(
        self, name: str, mark: Mark, data: bytes, trouble: list[str], decode: Callable[[Any], T], default: T
    ) -> T:
        try:
            value = decode(json.loads(data))
        except to.SPOILED as error:
            trouble.append(f"{name} on the board: {error}"[:300])
            return default
        self._blobs[name] = (mark, value)
        return value

    def _read_table(self, used: int) -> None:
        used = min(max(used, 0), b.TABLE_BYTES)
        if used < self._table_read:
            self._lines, self._table_read = [], 0
        data = os.pread(self._descriptor, used - self._table_read, b.TABLE_AT + self._table_read)
        whole = data.rfind(b"\n") + 1
        self._table_read += whole
        self._lines += [_json(line) for line in data[:whole].split(b"\n")[:-1]]

    def _line(self, number: int) -> Any:
        return self._lines[number] if 0 <= number < len(self._lines) else None

    def _read_groups(self, words: array[int], trouble: list[str]) -> None:
        groups: tuple[to.Slot, ...] = self._blob(words, "groups", trouble, to.slots, ())
        if groups != self._groups:
            self._groups, self._steps, self._calls = groups, {}, {}

    def _loaders(self, words: array[int], trouble: list[str]) -> tuple[LoaderFacts, ...]:
        found = []
        known: list[Any] = self._blob(words, "loaders", trouble, list, [])
        for each in known[: b.LOADER_SLOTS]:
            try:
                found.append(to.loader(each, words))
            except to.SPOILED as error:
                trouble.append(f"a loader on the board: {error}"[:300])
        return tuple(found)

    # ------------------------------------------------------------ rings

    def _entries(self, count: int, at: int, size: int, width: int, wanted: int) -> list[tuple[int, bytes]]:
        """The newest entries of a ring by number, oldest first; those that are being written right now are left out.

        `count` is the index of the word that counts the entries, `at` the ring's first word.
        """
        written = _words(self._descriptor, b.W_BLOBS)[count]
        first = max(0, written - min(size, max(0, wanted)))
        found = []
        for begin, end in _ranges(first, written, size):
            place = (at + begin % size * width) * 8
            data = os.pread(self._descriptor, (end - begin) * width * 8, place)
            found += [(number, _slice(data, number - begin, width * 8)) for number in range(begin, end)]
        # An entry is copied in several steps: one whose place has been given to a newer one since may be half of each.
        oldest = _words(self._descriptor, b.W_BLOBS)[count] - size + 1
        return [(n, raw) for n, raw in found if n >= oldest and raw[:8] == (n + 1).to_bytes(8, ORDER)]

    def _ledger(self, words: array[int], wanted: int) -> tuple[StepEntry, ...]:
        before, found = self._steps, {}
        for number, raw in self._entries(b.W_STEPS_WRITTEN, b.STEPS_AT, b.STEPS, b.STEP_WORDS, wanted):
            seen = before.get(number)
            same = seen is not None and seen[0] == raw
            found[number] = seen if seen and same else (raw, to.step_entry(number, raw, self._groups))
        self._steps = found
        return tuple(entry for _, entry in found.values())

    def _ring(self, words: array[int], wanted: int) -> tuple[Collective, ...]:
        entries = self._entries(b.W_CALLS_WRITTEN, b.CALLS_AT, b.CALLS, b.CALL_WORDS, wanted)
        self._calls = {number: (raw, self._call(number, raw, words)) for number, raw in entries}
        return tuple(call for _, call in self._calls.values())

    def _call(self, number: int, raw: bytes, words: array[int]) -> Collective:
        seen = self._calls.get(number)
        if seen is not None and seen[0] == raw:
            return seen[1]
        ident = int.from_bytes(_slice(raw, b.C_THREAD, 8), ORDER, signed=True)
        return to.call(raw, self._groups, self._line, self._thread_name(words, ident))

    def _thread_name(self, words: array[int], ident: int) -> str:
        name = next((self._line(words[at + b.T_NAME]) for at in THREADS if words[at + b.T_IDENT] == ident), "")
        return name if isinstance(name, str) else ""

    def _open_calls(self, words: array[int]) -> tuple[Collective, ...]:
        found = []
        for at in THREADS:
            number = words[at + b.T_CALL] - 1
            if number < 0:
                continue
            raw = os.pread(self._descriptor, b.CALL_WORDS * 8, (b.CALLS_AT + number % b.CALLS * b.CALL_WORDS) * 8)
            if raw[:8] == (number + 1).to_bytes(8, ORDER):
                found.append(self._call(number, raw, words))
        return tuple(found)


def _checked(descriptor: int) -> array[int]:
    """The words at the front of a board. Raises BoardError where it is none, or none that we can read."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise BoardError("not a board: no regular file")
    words = _words(descriptor, b.STEPS_AT)
    if len(words) < 3 or words[b.W_MAGIC] != b.MAGIC:
        raise BoardError(f"not a board: {found.st_size} bytes of something else")
    if words[b.W_VERSION] != b.VERSION:
        raise BoardError(f"a board of version {words[b.W_VERSION]}; this hangwatch reads version {b.VERSION}")
    if len(words) < b.STEPS_AT or words[b.W_SIZE] != b.SIZE or found.st_size != b.SIZE:
        raise BoardError(f"a truncated board: {found.st_size} bytes of {b.SIZE}")
    return words


def _words(descriptor: int, count: int) -> array[int]:
    data = os.pread(descriptor, count * 8, 0)
    return array("q", data[: len(data) // 8 * 8])


def _ranges(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """Numbers `first` to `end` as one or two ranges that do not wrap around a ring of `size`."""
    if first >= end:
        return []
    turn = (first // size + 1) * size
    return [(first, end)] if end <= turn else [(first, turn), (turn, end)]


def _slice(data: bytes, index: int, width: int) -> bytes:
    return data[index * width : (index + 1) * width]


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _identity(data: Any) -> Identity:
    """Redacted here and not in the rank, where it would cost milliseconds."""
    identity = to.record(Identity, data)
    environment = redact_environment(identity.environment)
    return replace(identity, command=redact_text(identity.command), environment=environment)


def _exception(data: Any) -> ExceptionFacts | None:
    return None if data is None else to.record(ExceptionFacts, data)


def _groups_made(data: Any) -> tuple[GroupMade, ...]:
    return tuple(to.group_made(each) for each in data)
