"""The folder in which the watchdogs of one job exchange evidence when there is no dashboard: `nodes-JOB` in the report
directory.

    0003.question              a node asks all others for their evidence; made with O_EXCL, so that one node leads
    0003.part-HOST-PID.json    a node's evidence: an incident report like any other, which `hangwatch analyze` reads
    0003.outcome.json          what came of it, and the name of the incident that was written, if one was

Numbers only grow, so what an earlier run of the same job has left cannot be taken for an answer. How old a file is, is
said by the file server's clock, which all nodes share; those of the nodes may differ.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hangwatch.errors import HangwatchError
from hangwatch.model import Incident
from hangwatch.report import files
from hangwatch.wire import codec
from hangwatch.wire.clocks import shifted

LARGEST = 256 << 20
TOLERATED_S = 2.0  # between the clocks of two nodes: writing a part takes some time too
_NAME = re.compile(r"(\d{4,12})\.(question|outcome\.json|part-([\w.-]+)\.json)")


@dataclass(frozen=True)
class Outcome:
    """What came of a question: the name of the incident's JSON file in the report directory, "" for none."""

    node: str
    file: str = ""


@dataclass(frozen=True)
class Question:
    """The newest question, and what there is to it. `node` is the one that asked, "" while it is being written."""

    number: int
    node: str
    age_s: float
    parts: tuple[str, ...] = ()  # the nodes that have answered
    outcome: Outcome | None = None
    outcome_age_s: float = 0.0


class SharedFolder:
    """One node's place in the meeting. Every method raises OSError where the folder cannot be used.

    Args:
        path: the folder; it is made at the first access, and removed by the node that leaves it empty.
        node: this node's name in the folder, unique to this watchdog.
        clock: gives this node's time, in seconds since 1970.
    """

    def __init__(self, path: Path, node: str, *, clock: Callable[[], float]) -> None:
        self.path, self.node, self._clock = path, re.sub(r"[^\w.-]", "_", node)[:100], clock
        self._ahead_s = 0.0  # this node's clock minus the file server's
        self._owner = -1
        self._own: set[Path] = set()
        self._made_parent = False

    def look(self) -> Question | None:
        """The newest question, None where no node has ever asked."""
        try:
            return self._look()
        except FileNotFoundError:  # another node was tidying up
            return self._look()

    def _look(self) -> Question | None:
        self._make()
        now = self._server_time()
        found = self._files()
        number = max((number for number, kind, _ in found if kind == "question"), default=0)
        if not number:
            return None
        known = {kind: changed for of, kind, changed in found if of == number}
        asked_at = known["question"]
        parts = [kind[5:-5] for kind, changed in known.items() if kind.startswith("part-") and changed >= asked_at]
        outcome = self._outcome(number) if "outcome.json" in known else None
        return Question(
            number=number,
            node=self._text(self._place(number, "question")).strip(),
            age_s=max(0.0, now - asked_at),
            parts=tuple(sorted(parts)),
            outcome=outcome,
            outcome_age_s=max(0.0, now - known.get("outcome.json", now)),
        )

    def ask(self, number: int) -> bool:
        """Puts the question of this number. False if another node was faster."""
        path = self._place(number, "question")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            file.write(self.node)
        self._own.add(path)
        return True

    def give(self, number: int, evidence: Incident) -> None:
        """Answers a question with this node's evidence. `updated_at` must be the time of writing."""
        path = self._place(number, f"part-{self.node}.json")
        _write(path, codec.dumps(evidence) + "\n")
        self._own.add(path)

    def take(self, number: int, node: str) -> Incident | None:
        """A node's answer with its times on our clock; None where it cannot be used."""
        path = self._place(number, f"part-{node}.json")
        try:
            part = files.parse(self._text(path).encode(), str(path))
        except files.ReportError:
            return None
        theirs_s = part.updated_at - path.stat().st_mtime
        apart_s = theirs_s - self._ahead_s
        return shifted(part, apart_s) if abs(apart_s) > TOLERATED_S else part

    def close(self, number: int, outcome: Outcome) -> None:
        """Says what came of our question. The evidence goes: it is in the incident, or was worth none."""
        path = self._place(number, "outcome.json")
        _write(path, codec.dumps(outcome) + "\n")
        self._own.add(path)
        for old, kind, _ in self._files():
            if old < number or (old == number and kind.startswith("part-")):
                self._remove(self._place(old, kind))

    def leave(self, *, tidy: bool) -> None:
        """Removes what this node has left, with `tidy`; and the folders that it made, if no other node uses them."""
        if tidy:
            for path in tuple(self._own):
                self._remove(path)
        for folder in (self.path, self.path.parent)[: 1 + self._made_parent]:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _make(self) -> None:
        if self.path.is_dir():
            return
        self._made_parent = self._made_parent or not self.path.parent.exists()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _server_time(self) -> float:
        """The file server's time. The file that is made for it also makes a network file system look at the folder
        anew, where it would show an old list for half a minute."""
        probe = self.path / f".look-{self.node}"
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.utime(descriptor)
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
            self._remove(probe)
        self._owner, self._ahead_s = found.st_uid, self._clock() - found.st_mtime
        return found.st_mtime

    def _files(self) -> list[tuple[int, str, float]]:
        """(number, kind, time of change) of every file of ours here. Other users' files are none of ours."""
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                name = _NAME.fullmatch(entry.name)
                facts = entry.stat(follow_symlinks=False) if name else None
                if name and facts and stat.S_ISREG(facts.st_mode) and facts.st_uid == self._owner:
                    found.append((int(name[1]), name[2], facts.st_mtime))
        return found

    def _outcome(self, number: int) -> Outcome | None:
        try:
            return codec.loads(Outcome, self._text(self._place(number, "outcome.json")), lenient=True)
        except codec.WireError:
            return None

    def _text(self, path: Path) -> str:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise OSError(f"{path} is larger than {LARGEST >> 20} MiB")
        return content.decode(errors="replace")

    def _place(self, number: int, kind: str) -> Path:
        return self.path / f"{number:04d}.{kind}"

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # another node has tidied up
            path.unlink()
        self._own.discard(path)


def _write(path: Path, text: str) -> None:
    try:
        files.write_text(path, text)
    except HangwatchError as error:
        raise OSError(str(error)) from error
