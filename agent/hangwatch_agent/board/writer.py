"""The board: a small mapped file in which a rank says what it is doing, while it does it.

This module holds the writer, and imports nothing that a rank has not imported anyway. The numbers of the format are in
`hangwatch_agent.board.layout`, the reader is in `hangwatch_agent.board.reader`.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hangwatch_agent.board.layout import (
    BLOBS,
    C_AT,
    C_GROUP,
    C_NUMEL,
    C_OP,
    C_PEER,
    C_SEQ,
    C_SHAPES,
    C_SITE,
    C_STEP,
    C_TAG,
    C_THREAD,
    CALL_WORDS,
    CALLS,
    CALLS_AT,
    G_COMPLETED,
    G_ISSUED,
    GROUP_SLOTS,
    GROUPS_AT,
    MAGIC,
    NONE,
    SIZE,
    SLOT_WORDS,
    T_CALL,
    T_ENTERED,
    T_IDENT,
    T_NAME,
    TABLE_AT,
    TABLE_BYTES,
    THREAD_SLOTS,
    THREADS_AT,
    VERSION,
    W_ANCHOR_NS,
    W_CALLS_WRITTEN,
    W_MAGIC,
    W_PID,
    W_PID_NAMESPACE,
    W_SIZE,
    W_START_TICKS,
    W_TABLE_USED,
    W_VERSION,
    WORDS,
    blob_places,
)
from hangwatch_agent.board.mapping import mapped
from hangwatch_agent.shared import procfs, steady_clock
from hangwatch_agent.shared.thread_name import thread_name


class BoardWriter:
    """Writes the board of this process. One mapped file of `SIZE` bytes in the machine's byte order:

    =============  =================================================================================================
    words          128 words of 8 bytes: magic, version, size, pid, start of the process in ticks, then single
                   counters and times under the `W_` names. Times are nanoseconds of CLOCK_MONOTONIC; W_ANCHOR_NS
                   added to them makes times of day (see `shared.steady_clock`). A pid is good in the pid namespace
                   of this inode only. Steps that were none after all are counted in W_TAKEN_BACK
    group slots    24 x 8 words: how far the rank is in each group
    loader slots   8 x 8 words: epoch, batches drawn, flags
    thread slots   16 x 8 words: thread id, name, number + 1 of the call it is inside (0: none), since when
    peer slots     64 x 4 words: number of a group slot + 1 (0: free), peer, messages sent to it, received from it
    step ledger    ring of 512 x 34 words: mark, step, epoch, batch, loader, time, index of the word behind the
                   issued counts, optimizer steps made before it; number + 1 (0: none) of the step of the newest
                   backward, and of the newest forward without a synchronisation of gradients; issued counts
    calls          ring of 2048 x 12 words: mark, group, number, op, shapes, elements, peer, tag, thread, site, step, at
    table          128 kB of JSON lines, only ever appended to; words name a line by its number (op, shapes, site). A
                   site is a list of numbers of lines, each with one frame ([file, line, function]), innermost first
    blobs          what has no fixed size, as JSON: identity, groups, loaders, exception, groups made, problems,
                   lasting threads, caught errors; each has two halves with length and crc32, and a word that says which
                   one is valid
    =============  =================================================================================================

    What makes it readable while it is written, and after SIGKILL at any instruction: a word is stored by one
    machine instruction (a `memoryview` of format 'q'; `struct.pack_into` stores bytes). An entry of a ring gets its
    mark (number + 1) last, then the count of entries moves; readers leave out the oldest entry, which may be being
    overwritten. A blob is written to the half that is not valid, then the halves are swapped.

    Not safe: words that belong together, such as a group's issued and completed, can be of two different moments.

    The disk space is reserved at creation: a full disk is an error there, and never a SIGBUS in the training. One who
    cuts the file off still causes that, and nothing here can help it: see docs/security.md. A forked child gets private
    memory in place of the file.
    """

    words: memoryview  # of 8-byte words; to be fetched anew for each use: a fork replaces it
    bytes: memoryview  # of the whole board
    path: Path | None

    def __init__(self) -> None:
        self.problems: dict[str, int] = {}
        self._places = blob_places()
        self._private_memory()

    @classmethod
    def create(cls, path: Path, identity: Mapping[str, Any], *, start_ticks: int = 0) -> BoardWriter:
        """A writer of a new board at `path` (0600, appears whole). Raises OSError, ENOSPC for a full disk included."""
        writer = cls()
        writer.open(path, identity, start_ticks=start_ticks)
        return writer

    def open(self, path: Path, identity: Mapping[str, Any], *, start_ticks: int = 0) -> None:
        """Write to a new file at `path` from now on. What was written before is lost. Raises OSError."""
        temporary = path.with_name(f".{path.name}.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, SIZE)
            self._begin(mapped(descriptor, SIZE), start_ticks)
            self.write("identity", identity)
            temporary.rename(path)
        except BaseException:
            self._private_memory()
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        # Not MADV_DONTFORK: the child's kernel would give the addresses away, and the child's Python would unmap, with
        # our mapping, whatever lies there by then. Loader workers died of it.
        self.path = path

    @property
    def real(self) -> bool:
        """Whether a file stands behind this writer."""
        return self.path is not None

    def forget(self) -> None:
        """Write to private memory from now on: in a forked child, and after the probe is removed."""
        self._private_memory()

    def _private_memory(self) -> None:
        self.path = None
        self._begin(memoryview(mmap.mmap(-1, SIZE)), 0)

    def _begin(self, view: memoryview, start_ticks: int) -> None:
        words, self.bytes = view[: WORDS * 8].cast("q"), view
        self._table: dict[str, int] = {}
        self._table_used = 0
        self.table_full = False
        self._waiting: dict[str, Any] = {}
        self._writing = threading.Lock()
        self._call_numbers = itertools.count()
        self._threads: dict[int, int] = {}
        words[W_VERSION], words[W_SIZE], words[W_PID], words[W_START_TICKS] = VERSION, SIZE, os.getpid(), start_ticks
        words[W_ANCHOR_NS], words[W_PID_NAMESPACE] = steady_clock.ANCHOR_NS, procfs.pid_namespace()
        words[W_MAGIC] = MAGIC
        for slot in range(GROUP_SLOTS):
            at = GROUPS_AT + slot * SLOT_WORDS
            words[at + G_ISSUED] = words[at + G_COMPLETED] = -1
        self.words = words  # last: hooks in other threads read this attribute once for each body

    # ------------------------------------------------------------ variable parts

    def write(self, name: str, value: Any) -> None:
        """Replace blob `name` by `value` as JSON. Raises ValueError where it does not fit.

        Two threads at once do not wait for each other: the second leaves the work to the first.
        """
        self._waiting[name] = value
        self._write_waiting()

    def _write_waiting(self) -> None:
        while self._waiting and self._writing.acquire(blocking=False):
            try:
                self._put(*self._waiting.popitem())
            finally:
                self._writing.release()

    def _put(self, name: str, value: Any) -> None:
        data = json.dumps(value, separators=(",", ":"), default=str).encode()
        word, start, capacity = self._places[name]
        if len(data) > capacity:
            raise ValueError(f"{name} takes {len(data)} bytes on the board, {capacity} are there")
        words = self.words
        half = 0 if words[word] == 2 else 1  # 0 says that nothing has been written; then 1 or 2
        at = start + half * capacity
        self.bytes[at : at + len(data)] = data
        words[word + 1 + 2 * half] = len(data)
        words[word + 2 + 2 * half] = zlib.crc32(data)
        words[word] = half + 1

    def intern(self, value: Any) -> int:
        """The number of a line of the table that says `value`; -1 if the table is full, or another thread is at it."""
        text = json.dumps(value, separators=(",", ":"))
        number = self._table.get(text)
        if number is not None:
            return number
        if not self._writing.acquire(blocking=False):
            return -1
        try:
            return self._append(text)
        finally:
            self._writing.release()
            self._write_waiting()  # what others, or we, wanted to write meanwhile

    def _append(self, text: str) -> int:
        line = text.encode() + b"\n"
        used = self._table_used
        if used + len(line) > TABLE_BYTES:
            if not self.table_full:
                self.table_full = True
                self.problem("the board's table is full: some call sites and shapes are not recorded")
            return -1
        self.bytes[TABLE_AT + used : TABLE_AT + used + len(line)] = line
        self._table_used = used + len(line)
        number = self._table[text] = len(self._table)
        self.words[W_TABLE_USED] = self._table_used
        return number

    @property
    def table_free(self) -> int:
        """Bytes that the table has left."""
        return TABLE_BYTES - self._table_used

    def problem(self, text: str) -> None:
        """Note what the probe could not do, in words; said again, it is only counted."""
        self.problems[text] = count = self.problems.get(text, 0) + 1
        if count & (count - 1):
            return  # written at 1, 2, 4, 8, ... so that a hook that fails always does not cost a write each time
        lines = [f"{text[:300]} ({count} times)" if count > 1 else text[:300] for text, count in self.problems.items()]
        while len(json.dumps(lines)) > BLOBS["problems"]:
            lines.pop()
        self.write("problems", lines)

    # ------------------------------------------------------------ calls

    def call(
        self, group: int, seq: int, op: int, shapes: int, numel: int, peer: int, tag: int, site: int, step: int, at: int
    ) -> int:
        """Append a call of this thread to the ring, before it is issued. Returns its number."""
        words = self.words
        number = next(self._call_numbers)
        ident = threading.get_ident()
        entry = CALLS_AT + number % CALLS * CALL_WORDS
        words[entry] = 0
        words[entry + C_GROUP], words[entry + C_SEQ], words[entry + C_OP] = group, seq, op
        words[entry + C_SHAPES], words[entry + C_NUMEL], words[entry + C_PEER] = shapes, numel, peer
        words[entry + C_TAG], words[entry + C_THREAD], words[entry + C_SITE] = tag, ident, site
        words[entry + C_STEP], words[entry + C_AT] = step, at
        words[entry] = number + 1
        words[W_CALLS_WRITTEN] = number + 1
        return number

    def enter(self, number: int, at: int) -> tuple[int, int]:
        """This thread is inside call `number` from now on. Give what is returned to `leave`."""
        ident = threading.get_ident()
        slot = self._threads.get(ident)
        if slot is None:
            slot = self._thread_slot(ident)
        words = self.words
        before = words[slot + T_CALL]
        words[slot + T_ENTERED] = at
        words[slot + T_CALL] = number + 1
        return slot, before

    def leave(self, token: tuple[int, int]) -> None:
        """This thread has returned from the call it entered."""
        self.words[token[0] + T_CALL] = token[1]

    def open_collectives(self, group: int) -> list[int]:
        """The numbers of the collectives of a group that threads are inside."""
        words, found = self.words, []
        for slot in tuple(self._threads.values()):
            number = words[slot + T_CALL] - 1
            entry = CALLS_AT + number % CALLS * CALL_WORDS
            if number >= 0 and words[entry + C_GROUP] == group and words[entry + C_TAG] == NONE:
                found.append(words[entry + C_SEQ])
        return found

    def _thread_slot(self, ident: int) -> int:
        taken = set(self._threads.values())
        places = range(THREADS_AT, THREADS_AT + THREAD_SLOTS * SLOT_WORDS, SLOT_WORDS)
        idle = (place for place in places if self.words[place + T_CALL] == 0)
        slot = next((place for place in places if place not in taken), None) or next(idle, places[-1])
        self._threads = {known: place for known, place in self._threads.items() if place != slot} | {ident: slot}
        self.words[slot + T_CALL] = 0
        self.words[slot + T_NAME] = self.intern(thread_name())
        self.words[slot + T_IDENT] = ident
        return slot
