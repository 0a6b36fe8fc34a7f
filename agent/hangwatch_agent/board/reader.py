"""Reads a board, whichever process wrote it and however it ended. `writer.BoardWriter` explains the format.

Everything is read with `pread`, never through a mapping: a file that is cut off under us must not kill the watchdog.
A hostile or spoiled file gives a BoardError or a valid Reading. A reader keeps what it has decoded: a poll costs what
is new.
"""

from __future__ import annotations

import json
import os
import resource
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

from hangwatch.model import Collective, ExceptionFacts, Frame, GroupMade, Identity, LoaderFacts, Reading, StepEntry
from hangwatch_agent.board import decode as to
from hangwatch_agent.board import layout as b
from hangwatch_agent.board.layout import BoardError
from hangwatch_agent.board.ring import Place, Ring
from hangwatch_agent.shared.redact import one_line, redact_environment, redact_text

T = TypeVar("T")
MOST_OPEN = 64  # boards kept open by `read_board` at least; half of the files that may be open at most
STEPS = Place(b.STEPS_AT, b.STEPS, b.STEP_WORDS, b.W_STEPS_WRITTEN)
CALLS = Place(b.CALLS_AT, b.CALLS, b.CALL_WORDS, b.W_CALLS_WRITTEN)
THREADS = range(b.THREADS_AT, b.THREADS_AT + b.THREAD_SLOTS * b.SLOT_WORDS, b.SLOT_WORDS)

Mark = tuple[int, int, int]

_readers: OrderedDict[Path, BoardReader] = OrderedDict()


def read_board(path: Path, *, steps: int = b.STEPS, calls: int = b.CALLS, anchor_ns: int | None = None) -> Reading:
    """What the board at `path` says now, with at most so many of the newest ledger steps and calls.

    Args:
        anchor_ns: what makes the board's times times of day (see `steady`); by default what its writer says. A
            watchdog gives its own, so that the times of all boards of its host are on one clock.

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
        while len(_readers) > _most_open():
            _readers.popitem(last=False)[1].close()
    _readers.move_to_end(path)
    try:
        return reader.read(steps=steps, calls=calls, anchor_ns=anchor_ns)
    except (BoardError, OSError):
        _readers.pop(path).close()
        raise


def namespace(path: Path) -> int:
    """The pid namespace of the pids on a board that `read_board` has just read; 0 where it is not known."""
    reader = _readers.get(Path(path))
    return reader.namespace if reader is not None else 0


def forget_board(path: Path) -> None:
    """Close a board that is not going to be read again. Nothing is lost: it can be."""
    if (reader := _readers.pop(path, None)) is not None:
        reader.close()


def _most_open() -> int:
    """Boards that may be kept open: one that is opened anew at each poll is decoded anew as a whole."""
    return max(MOST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


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


def request_taken_up(path: Path) -> bool:
    """Whether the rank of a board has begun to answer the last `request_collectives`. False where it cannot be told."""
    try:
        with BoardReader(path) as opened:
            return opened.has_taken_up()
    except (BoardError, OSError):
        return False


class BoardReader:
    """Reads one board again and again. `close` it, or use it in a `with` statement."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._places = b.blob_places()
        self._blobs: dict[str, tuple[Mark, Any]] = {}
        self._lines: list[Any] = []
        self._paths: dict[int, tuple[Frame, ...]] = {}
        self._table_read = 0
        self._groups: tuple[to.Slot, ...] = ()
        self._steps: Ring[StepEntry] = Ring(self._descriptor, STEPS)
        self._calls: Ring[Collective] = Ring(self._descriptor, CALLS)
        self._taken_back = 0
        self._anchor = self._own_anchor = 0
        self.namespace = 0

    def __enter__(self) -> BoardReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Does nothing the second time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def pid_namespace(self) -> int:
        """The pid namespace that the board's pid belongs to; 0 where it is not known. Raises BoardError."""
        return _checked(self._descriptor)[b.W_PID_NAMESPACE]

    def has_taken_up(self) -> bool:
        """Whether no request waits for the rank's ticker. Raises BoardError."""
        words = _checked(self._descriptor)
        return words[b.W_ANSWERED] == words[b.W_REQUEST]

    def replaced(self) -> bool:
        """Whether another file has taken this board's name. One that is gone has not been replaced."""
        try:
            there, here = self.path.lstat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def read(self, *, steps: int = b.STEPS, calls: int = b.CALLS, anchor_ns: int | None = None) -> Reading:
        """What the board says now (see `read_board`). Raises BoardError."""
        words = _checked(self._descriptor)
        self.namespace = words[b.W_PID_NAMESPACE]
        self._use_anchor(words, anchor_ns)
        trouble: list[str] = []
        identity = self._identity(words)
        self._read_table(words[b.W_TABLE_USED])
        self._read_groups(words, trouble)
        ledger = self._ledger(words, max(steps, 2))
        problems: tuple[str, ...] = self._blob(words, "problems", trouble, _problems, ())
        exception: ExceptionFacts | None = self._blob(words, "exception", trouble, self._exception, None)
        caught: tuple[ExceptionFacts, ...] = self._blob(words, "caught", trouble, self._exceptions, ())
        lasting: tuple[int, ...] | None = self._blob(words, "lasting_threads", trouble, to.thread_ids, None)
        made: tuple[GroupMade, ...] = self._blob(words, "groups_made", trouble, _groups_made, ())
        ring = self._ring(words, calls)
        return Reading(
            identity=identity,
            taken_at=(time.monotonic_ns() + self._anchor) / 1e9 if self._anchor else time.time(),
            phase=to.phase(words[b.W_PHASE]),
            phase_at=to.moment(words[b.W_PHASE_AT], self._anchor),
            progress=to.progress(words, ledger[-1] if ledger else None, self._anchor),
            ticker_at=to.moment(words[b.W_TICKER_AT], self._anchor),
            heads=tuple(to.head(slot, words) for slot in self._groups if slot.alive),
            calls=ring,
            calls_dropped=max(words[b.W_CALLS_WRITTEN] - len(ring), 0),
            open_calls=self._open_calls(words),
            steps=ledger[-steps:] if steps > 0 else (),
            loaders=self._loaders(words, trouble),
            exception=exception,
            caught=caught,
            times=to.times(words),
            groups_made=made,
            detached=words[b.W_DETACHED] != 0,
            problems=(*problems, *trouble),
            lasting_threads=lasting,
            backward=self._backward(words[b.W_BACKWARD_PATH] - 1),
        )

    def _use_anchor(self, words: array[int], wanted: int | None) -> None:
        """Times are the writer's own times of day where it has no anchor."""
        own = words[b.W_ANCHOR_NS]
        anchor = own if wanted is None or own == 0 else wanted
        if anchor != self._anchor or own != self._own_anchor:
            self._anchor, self._own_anchor = anchor, own
            self._blobs.clear()
            self._steps.forget()
            self._calls.forget()

    # ------------------------------------------------------------ what has no fixed size

    def _identity(self, words: array[int]) -> Identity:
        missing: list[str] = []
        identity: Identity | None = self._blob(words, "identity", missing, self._described, None)
        if identity is None:
            raise BoardError(f"a board that does not say whose it is: {'; '.join(missing) or 'nothing written'}")
        return identity

    def _described(self, data: Any) -> Identity:
        """Redacted here and not in the rank, where it would cost milliseconds."""
        identity = to.identity(data)
        environment = redact_environment(identity.environment)
        started_at = identity.started_at + self._shift
        command = one_line(redact_text(identity.command))
        return replace(identity, command=command, environment=environment, started_at=started_at)

    def _exception(self, data: Any) -> ExceptionFacts | None:
        if data is None:
            return None
        facts = to.record(ExceptionFacts, data)
        # Its message is what a library wrote: a URL with its signature, a login that was refused.
        return replace(facts, at=facts.at + self._shift, message=redact_text(facts.message))

    def _exceptions(self, data: Any) -> tuple[ExceptionFacts, ...]:
        return tuple(found for each in data if (found := self._exception(each)) is not None)

    @property
    def _shift(self) -> float:
        """Seconds between our times of day and those of the writer."""
        return (self._anchor - self._own_anchor) / 1e9

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
            value = decode(to.sane(json.loads(data)))
        except to.SPOILED as error:
            trouble.append(f"{name} on the board: {error}"[:300])
            return default
        self._blobs[name] = (mark, value)
        return value

    def _read_table(self, used: int) -> None:
        used = min(max(used, 0), b.TABLE_BYTES)
        if used < self._table_read:
            self._lines, self._paths, self._table_read = [], {}, 0
        data = os.pread(self._descriptor, used - self._table_read, b.TABLE_AT + self._table_read)
        whole = data.rfind(b"\n") + 1
        self._table_read += whole
        self._lines += [_json(line) for line in data[:whole].split(b"\n")[:-1]]

    def _line(self, number: int) -> Any:
        return self._lines[number] if 0 <= number < len(self._lines) else None

    def _call_path(self, number: int) -> tuple[Frame, ...]:
        """The call path in a line of the table: decoded once, and one tuple for all calls that came by it."""
        if number not in self._paths:
            self._paths[number] = to.call_path(self._line(number), self._line)
        return self._paths[number]

    def _backward(self, number: int) -> tuple[Frame, ...]:
        known = 0 <= number < len(self._lines)  # it may be newer than our look at the table
        return self._call_path(number) if known else ()

    def _read_groups(self, words: array[int], trouble: list[str]) -> None:
        groups: tuple[to.Slot, ...] = self._blob(words, "groups", trouble, to.slots, ())
        if groups != self._groups:
            self._groups = groups
            self._steps.forget()
            self._calls.forget()

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

    def _ledger(self, words: array[int], wanted: int) -> tuple[StepEntry, ...]:
        if words[b.W_TAKEN_BACK] != self._taken_back:
            self._taken_back = words[b.W_TAKEN_BACK]
            self._steps.forget()

        def decode(number: int, raw: bytes) -> StepEntry:
            return to.step_entry(number, raw, self._groups, self._anchor)

        count = words[b.W_STEPS_WRITTEN]
        if wanted < b.STEPS:
            return self._steps.newest(count, wanted, decode)
        return self._steps.follow(count, decode)

    def _ring(self, words: array[int], wanted: int) -> tuple[Collective, ...]:
        def decode(number: int, raw: bytes) -> Collective:
            return self._call(raw, words)

        count = words[b.W_CALLS_WRITTEN]
        return self._calls.newest(count, wanted, decode) if wanted < b.CALLS else self._calls.follow(count, decode)

    def _call(self, raw: bytes, words: array[int]) -> Collective:
        site, ident = (
            int.from_bytes(raw[8 * word : 8 * word + 8], sys.byteorder, signed=True) for word in (b.C_SITE, b.C_THREAD)
        )
        if site >= len(self._lines):  # the call is newer than our look at the table, and we remember what we make of it
            self._read_table(_words(self._descriptor, b.W_BLOBS)[b.W_TABLE_USED])
        return to.call(raw, self._groups, self._line, self._call_path, self._thread_name(words, ident), self._anchor)

    def _thread_name(self, words: array[int], ident: int) -> str:
        name = next((self._line(words[at + b.T_NAME]) for at in THREADS if words[at + b.T_IDENT] == ident), "")
        return name if isinstance(name, str) else ""

    def _open_calls(self, words: array[int]) -> tuple[Collective, ...]:
        numbers = (words[at + b.T_CALL] - 1 for at in THREADS)
        entries = (self._calls.entry(number) for number in numbers if number >= 0)
        return tuple(self._call(raw, words) for raw in entries if raw is not None)


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


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _problems(data: Any) -> tuple[str, ...]:
    return tuple(redact_text(str(each)) for each in data)


def _groups_made(data: Any) -> tuple[GroupMade, ...]:
    return tuple(to.group_made(each) for each in data)
