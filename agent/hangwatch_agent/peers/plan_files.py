"""The files in a shared report directory by which nodes show each other what their ranks are going to do.

Each node keeps one file in `plans-JOB` there, `NODE.json` (`Shown`). It is written when the plans change, and touched
while the node lives.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hangwatch.model import HealthWarning, NodeHello
from hangwatch.report import files
from hangwatch.wire import codec

FRESH_S = 9.0  # a file that was touched within belongs to a node that lives. Less than a forecast must stand
# (`CONFIRMED_S`), so that what a killed run has left never makes one
LEFT_S = 600.0  # a file that was not touched for so long is removed by the next node that compares
LARGEST = 8 << 20


@dataclass(frozen=True)
class Told:
    """A forecast that a node has made, and when, by the file server's clock."""

    at: float
    warning: HealthWarning


@dataclass(frozen=True)
class Shown:
    """A node's file: what it is going to do, and what it knows of all nodes."""

    hello: NodeHello
    told: tuple[Told, ...] = ()


class PlanFiles:
    """One node's file, and those of the other nodes of its job.

    Args:
        report_dir: the directory that the nodes share.
        node: this node's name, unique to this watchdog.
        touch: gives a file the file server's time.
    """

    def __init__(self, report_dir: str, node: str, touch: Callable[[Path], None] = os.utime) -> None:
        self._report_dir, self._name = Path(report_dir), f"{_plain(node)}.json"
        self._touch = touch
        self._folder: Path | None = None
        self._written = ""
        self._own: os.stat_result | None = None
        self._known: dict[str, tuple[str, Shown | None]] = {}  # by file: its text, and what that says

    def show(self, own: Shown) -> float:
        """Writes or touches this node's file; the file server's time. Raises OSError or HangwatchError."""
        self._folder = folder = self._report_dir / f"plans-{_plain(own.hello.job.id)}"
        path, text = folder / self._name, codec.dumps(own)
        if text != self._written or not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_text(path, text)
            self._written = text
        self._touch(path)
        self._own = path.stat()
        return self._own.st_mtime

    def of_others(self, job: str) -> tuple[Shown, ...]:
        """What the other living nodes of this job show, once this one does. Removes what was left long ago."""
        folder, own, found = self._folder, self._own, []
        if folder is None or own is None:
            return ()
        for name in os.listdir(folder):
            if name.endswith(".json") and name != self._name:
                with contextlib.suppress(OSError):
                    text, age_s = _read(folder / name, own)
                    if age_s > LEFT_S:
                        (folder / name).unlink()
                    elif age_s <= FRESH_S:
                        found.append(self._parsed(name, text))
        return tuple(each for each in found if each is not None and each.hello.job.id == job)

    def _parsed(self, name: str, text: str) -> Shown | None:
        known = self._known.get(name)
        if known is not None and known[0] == text:
            return known[1]
        try:
            shown: Shown | None = codec.loads(Shown, text, lenient=True)
        except codec.WireError:
            shown = None
        self._known[name] = text, shown
        return shown

    def remove(self) -> None:
        """Removes what this node has shown, and the folder where it was the last."""
        if (folder := self._folder) is not None:
            with contextlib.suppress(OSError):
                (folder / self._name).unlink(missing_ok=True)
                folder.rmdir()


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:100]


def _read(path: Path, own: os.stat_result) -> tuple[str, float]:
    """The text of a file of the same user, and the seconds since it was touched. Raises OSError for other files.

    It is opened before it is looked at, because a network file system then asks its server.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != own.st_uid or facts.st_size > LARGEST:
            raise OSError(f"{path} is none of ours")
        return file.read(LARGEST).decode(errors="replace"), own.st_mtime - facts.st_mtime
