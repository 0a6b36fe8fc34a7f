"""torch's own dumps, for ranks that cannot tell their collectives themselves: found, asked for, kept, and used.

A rank answers hangwatch from Python. Where Python does not get a turn, or the process is gone, torch's threads may have
written a dump of the same recorder (on a timeout), or write one when they are asked through a pipe file. Whether such a
thread can answer depends on what holds the rank: in a wait on the device, yes; where a C call holds the interpreter
lock, only once it is released, since torch takes the lock to name the Python frames.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hangwatch import recorder
from hangwatch.model import CaptureNote, Collectives, RankEvidence, Reading
from hangwatch_agent.board.recorded import from_dump
from hangwatch_agent.capture.options import CaptureResult
from hangwatch_agent.capture.rank import dump_files
from hangwatch_agent.capture.rank.dump_files import Written
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.dump_defaults import PREFIX

ASK_S = 4.0  # for the answers of all ranks: torch looks at the pipe once a second
POLL_S = 0.1
SILENT_S = 3.0  # since the rank's own thread has run, before it is asked: CUDA's start may keep it from answering us
AGAIN_S = 60.0  # before a rank that did not answer is asked once more
SLACK_S = 2.0  # between the clock of files and ours
SOURCE = "torch's dump"
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True)
class Dump:
    """A dump that fits a rank, its entries, and the rank's collectives as they follow from it."""

    file: Written
    collectives: Collectives


@dataclass
class TorchDumps:
    """The dumps of one job on this machine.

    `folder` is the job's own, `kept_in` the folder beside the reports to which dumps are copied. `environment` is that
    of the user's session, `user` the one that must have written the files.
    """

    folder: Path
    kept_in: Path
    clock: Callable[[], float] = steady_clock.time
    sleep: Callable[[float], object] = time.sleep
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    user: int = -1
    proc: Path = Path("/proc")

    def __post_init__(self) -> None:
        self.user = os.getuid() if self.user < 0 else self.user
        self._asked: dict[int, float] = {}
        self._kept: dict[Path, float] = {}

    def completed(self, taken: CaptureResult) -> CaptureResult:
        """The evidence with the dumps of those ranks that could not tell their collectives. Never raises."""
        wanting = [rank for rank in taken.ranks if wants_dump(rank)]
        if not wanting:
            return taken
        began = self.clock()
        found, notes = self._gathered(wanting)
        ranks = tuple(self._with(rank, found.get(rank.rank)) for rank in taken.ranks)
        told = [self._note(rank, found.get(rank.rank), notes, self.clock() - began) for rank in wanting]
        return replace(taken, ranks=ranks, notes=(*taken.notes, *told))

    def keep_rest(self) -> Path | None:
        """Keep what torch has written into the job's folder and is not kept yet. Returns where, if anything ever was.

        Cheap where there is nothing new: it is asked often, for a signal that ends the job may end its watchdog too.
        """
        for path in self._own_files():
            with contextlib.suppress(OSError):
                rank = recorder.rank_of(path)
                if rank is None or self._kept.get(self._target(rank)) == path.lstat().st_mtime:
                    continue
                found = dump_files.read(path, 0.0, self.user)
                if found is not None:
                    self._keep(found, rank)
        return self.kept_in if self._kept else None

    def _own_files(self) -> list[Path]:
        try:
            return sorted(self.folder.glob(f"{PREFIX}*[0-9]"))
        except OSError:  # it goes with the job
            return []

    def _target(self, rank: int) -> Path:
        return self.kept_in / f"rank_{rank}"

    # ------------------------------------------------------------------------------------------ finding and asking

    def _gathered(self, wanting: Sequence[RankEvidence]) -> tuple[dict[int, Dump], dict[int, str]]:
        """The newest fitting dump of each rank, and why there is none."""
        found: dict[int, Dump] = {}
        notes: dict[int, str] = {}
        awaited: list[RankEvidence] = []
        for rank in wanting:
            dump, notes[rank.rank] = self._newest(rank)
            if dump is not None:
                found[rank.rank] = dump
            if _lives(rank) and (dump is None or dump.file.written_at < _moved_at(rank)):
                if why := self._ask(rank):
                    notes[rank.rank] = why
                else:
                    awaited.append(rank)
        self._await(awaited, found, notes)
        return found, notes

    def _ask(self, rank: RankEvidence) -> str:
        """Ask through the first pipe file that there is. Returns why not; "" where the rank was asked."""
        now, pid = self.clock(), rank.pid or -1
        if rank.process is not None and rank.process.state in "Tt":
            return "the rank is stopped, and can write none"
        if _silence(rank) < SILENT_S:  # torch says on the job's output that it dumps
            return "none was asked for: the rank's own thread runs, and may answer the next time"
        if now - self._asked.get(pid, -AGAIN_S) < AGAIN_S:
            return "it was asked less than a minute ago"
        why = "torch has made no pipe file for it"
        for pipe in dump_files.pipes(rank.rank, self.folder, rank.board_settings, self._cwd(rank)):
            why = dump_files.ask(pipe, self.user)
            if not why:
                self._asked[pid] = now
                return ""
        return why

    def _await(self, awaited: list[RankEvidence], found: dict[int, Dump], notes: dict[int, str]) -> None:
        """Wait for the dumps that were asked for, ASK_S for all of them."""
        until = self.clock() + ASK_S
        while awaited and self.clock() < until:
            self.sleep(POLL_S)
            for rank in list(awaited):
                before, (dump, why) = found.get(rank.rank), self._newest(rank)
                if dump is not None and (before is None or dump.file.written_at > before.file.written_at):
                    found[rank.rank] = dump
                    awaited.remove(rank)
                notes[rank.rank] = why or f"none came within {ASK_S:g} s of asking"

    def _newest(self, rank: RankEvidence) -> tuple[Dump | None, str]:
        """The newest dump that fits the rank; else why those that are there do not."""
        dumps, why = [], ""
        for path in dump_files.places(rank.rank, self.folder, rank.board_settings, self.environment, self._cwd(rank)):
            try:
                file = dump_files.read(path, _started_at(rank) - SLACK_S, self.user)
                if file is not None and rank.reading is not None:
                    dumps.append(Dump(file, fitting(file.content, rank.reading)))
            except FileNotFoundError:
                continue
            except (OSError, recorder.DumpError) as error:
                why = f"{path}: {error.strerror if isinstance(error, OSError) else error}"
        newest = max(dumps, key=lambda dump: dump.file.written_at, default=None)
        return newest, "" if newest is not None else why

    def _cwd(self, rank: RankEvidence) -> Path | None:
        try:
            return Path(os.readlink(self.proc / str(rank.pid) / "cwd")) if _lives(rank) else None
        except OSError:
            return None

    # ------------------------------------------------------------------------------------------ using and keeping

    def _with(self, rank: RankEvidence, dump: Dump | None) -> RankEvidence:
        return rank if dump is None else replace(rank, collectives=dump.collectives)

    def _note(self, rank: RankEvidence, dump: Dump | None, notes: Mapping[int, str], took_s: float) -> CaptureNote:
        if dump is None:
            return CaptureNote(SOURCE, False, notes.get(rank.rank) or "there is none", took_s, rank.rank)
        where = self._keep(dump.file, rank.rank)
        return CaptureNote(SOURCE, True, f"used instead of the rank's own answer; {where}", took_s, rank.rank)

    def _keep(self, file: Written, rank: int) -> str:
        """Copy a dump beside the reports, under a name that `hangwatch analyze` and torch's analyzer read."""
        path = self._target(rank)
        if self._kept.get(path) == file.written_at:
            return f"kept as {path}"
        temporary = path.with_name(f".{path.name}.new")
        try:
            self.kept_in.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as copy:
                copy.write(file.content)
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            return f"it lies in {file.path}, and could not be copied to {path} ({error.strerror})"
        self._kept[path] = file.written_at
        return f"kept as {path}"


def wants_dump(rank: RankEvidence) -> bool:
    """Whether a rank uses NCCL and has not told its collectives itself, or is gone: torch may have written more."""
    heads = rank.collectives.heads
    return any(head.uses_nccl for head in heads) and (rank.collectives.source == "board" or not _lives(rank))


def fitting(content: bytes, reading: Reading) -> Collectives:
    """A rank's collectives by a dump. Raises DumpError where it is no dump, or that of another rank or job."""
    (_, document), *more = recorder.documents(content)
    if more:
        raise recorder.DumpError("it holds dumps of several ranks")
    entries = document.get("entries") or []
    try:
        if why := _another(document, entries, reading):
            raise recorder.DumpError(f"it is of another job: {why}")
        if why := _outdated(entries, reading):
            raise recorder.DumpError(f"it is older than the rank's last calls: {why}")
        return from_dump(reading, entries)
    except MALFORMED as error:
        raise recorder.DumpError(f"it has not the shape of a dump ({type(error).__name__}: {error})") from error


def _another(document: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], reading: Reading) -> str:
    """Why a dump cannot be this rank's; "" where it can. Default places are common to all jobs of a user."""
    times = [int(entry.get("time_created_ns") or 0) / 1e9 for entry in entries]
    if times and min(times) < reading.identity.started_at - SLACK_S:
        return "it records calls from before the rank was started"
    said = _size_of_default_group(document)
    size = next((len(head.members) for head in reading.heads if head.name == "0" and head.members), said)
    return "" if said is None or said == size else f"its default group has {said} ranks"


def _outdated(entries: Sequence[Mapping[str, Any]], reading: Reading) -> str:
    """What the rank had completed before the dump ends; "" where that is not so."""
    last: dict[str, int] = {}
    for entry in entries:
        if not entry.get("is_p2p"):
            name = str(entry["process_group"][0])
            last[name] = max(last.get(name, -1), int(entry["collective_seq_id"]))
    for head in reading.heads:
        if head.name in last and last[head.name] < head.completed:
            return f"it ends with number {last[head.name]} of group {head.name}, and the rank is beyond that"
        if not entries and head.completed > 0:
            return "it records none, and the rank has made some"
    return ""


def _size_of_default_group(document: Mapping[str, Any]) -> int | None:
    config = document.get("pg_config") or {}
    said = (config.get("0") or {}).get("ranks")
    if isinstance(said, str):
        said = None if "-" in said else re.findall(r"\d+", said)  # a list of ranks as text; ranges are not counted
    return len(said) if said else None


def _lives(rank: RankEvidence) -> bool:
    return rank.process is not None and rank.process.state not in "XZ"


def _silence(rank: RankEvidence) -> float:
    """For how long the rank's own thread has not run, in seconds."""
    return rank.reading.taken_at - rank.reading.ticker_at if rank.reading is not None else 0.0


def _started_at(rank: RankEvidence) -> float:
    return rank.reading.identity.started_at if rank.reading is not None else 0.0


def _moved_at(rank: RankEvidence) -> float:
    return rank.reading.progress.at if rank.reading is not None else 0.0
