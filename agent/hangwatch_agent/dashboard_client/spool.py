"""What is to be sent, on disk first: it survives a dashboard that is away, and a watchdog that is killed.

One folder a watchdog below a common one, held with a lock; folders whose watchdog has gone are sent by the next one.
Bounded: the oldest batches are given up first and counted, incidents and captures last.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MOST_BATCHES = 300  # five minutes
MOST_BYTES = 64 << 20
MOST_MEMORY = 8 << 20
OLDEST_S = 7 * 86_400.0
KINDS = ("batch", "capture", "incident")


@dataclass(frozen=True)
class Item:
    """One thing to send: its kind, and the compressed JSON in `path`, or in `body` where the disk did not take it."""

    path: Path
    kind: str
    number: int
    size: int
    body: bytes | None = None

    def read(self) -> bytes:
        """Raises OSError."""
        return self.path.read_bytes() if self.body is None else self.body


class Spool:
    """A queue of files. What a full disk does not take is kept in memory, as far as a few megabytes go."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.folder = root, root / name
        self.dropped = 0
        self._number = 0
        self._items: list[Item] = []
        self._lock: IO[str] | None = None

    def open(self) -> None:
        """Makes the folder, private, and takes over what dead watchdogs have left. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in sorted(self._orphans(), key=lambda folder: folder.stat().st_mtime):
            self._adopt(left)

    def put(self, kind: str, body: bytes, *, durable: bool = False) -> Item:
        """Adds an item at the end. With `durable` it is on the disk when this returns, if the disk takes it."""
        self._number += 1
        path = self.folder / f"{self._number:012d}.{kind}"
        try:
            _write(path, body, durable)
            item = Item(path, kind, self._number, len(body))
        except OSError:
            item = Item(path, kind, self._number, len(body), body)
        self._items.append(item)
        self._keep_bounds()
        return item

    def first(self) -> Item | None:
        """The oldest item."""
        return self._items[0] if self._items else None

    def done(self, item: Item) -> None:
        """Takes an item out, sent or not to be sent."""
        self._items = [each for each in self._items if each is not item]
        with contextlib.suppress(OSError):
            item.path.unlink()

    def __len__(self) -> int:
        return len(self._items)

    def close(self) -> None:
        """Leaves what is unsent for the next watchdog; an empty folder goes."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if not self._items:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _keep_bounds(self) -> None:
        batches = [item for item in self._items if item.kind == "batch"]
        for item in batches[: max(0, len(batches) - MOST_BATCHES)]:
            self._give_up(item)
        self._keep_bytes(self._items, MOST_BYTES)
        self._keep_bytes([item for item in self._items if item.body is not None], MOST_MEMORY)

    def _keep_bytes(self, items: list[Item], most: int) -> None:
        size = sum(item.size for item in items)
        for item in sorted(items[:-1], key=lambda item: (KINDS.index(item.kind), item.number)):
            if size <= most:
                return
            size -= item.size
            self._give_up(item)

    def _give_up(self, item: Item) -> None:
        self.dropped += 1
        self.done(item)

    def _orphans(self) -> Iterator[Path]:
        for folder in self.root.iterdir():
            lock = folder / "lock"
            if folder == self.folder or not lock.is_file():
                continue
            with lock.open("r+") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue  # its watchdog lives
                yield folder

    def _adopt(self, folder: Path) -> None:
        """Moves what a dead watchdog has left into our own folder, before everything of our own."""
        for path in sorted(folder.iterdir()):
            kind = path.suffix[1:]
            if kind in KINDS and time.time() - path.stat().st_mtime < OLDEST_S:
                self._number += 1
                moved = path.rename(self.folder / f"{self._number:012d}.{kind}")
                self._items.append(Item(moved, kind, self._number, moved.stat().st_size))
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, body: bytes, durable: bool) -> None:
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        file.write(body)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.rename(path)
