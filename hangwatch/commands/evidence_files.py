"""Files of evidence, whatever they are, sorted by what they hold: reports, boards, dumps, logs.

A file that cannot be used is named with the reason, and the others are used all the same.
"""

from __future__ import annotations

import gc
import gzip
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from hangwatch import logs, recorder
from hangwatch.errors import HangwatchError
from hangwatch.model import Incident, Reading
from hangwatch.queues import Assessment, Queues
from hangwatch.report import files, summary

BOARD_MAGIC = b"HANGWTCH"
LARGEST = 512 << 20
SNIFFED = 1 << 16  # bytes by which a log is told
DEEPEST = 4  # folders in folders that are looked into: LOGS/JOB/attempt_0/3/stderr.log
_SUFFIXES = frozenset({".log", ".out", ".err", ".txt", ".json", ".board"})
_LOGS = frozenset({".log", ".out", ".err"})  # a text of such a name is a log, whatever its lines
_TEXTS = frozenset({"", ".txt"})
_NO_LOGS = frozenset({".json", ".html", ".board", ".md", ".py", ".sh", ".yaml", ".yml", ".toml", ".csv"})
_NO_USE = "neither an incident report, nor a board, a flight-recorder dump or a log of use"
_GZIP = ".gz"
_ARCHIVES = frozenset({".tar", ".tgz", ".zip", ".zst", ".xz", ".bz2", ".7z"})
_PACKED_FOLDER = ".tar.gz"
_ATTEMPT = re.compile(r"attempt_\d+")
_OF_A_RANK = re.compile(r"(?:rank[-_]?)?\d{1,4}")
_SHOWN = 4
_OF_LOGS = frozenset({"log", "logs"})
_DUMP = re.compile(r"(rank|trace|nccl|dump|(^|_)fr)\D*\d", re.IGNORECASE)
_OF_DUMPS = frozenset({"", ".json", ".pickle", ".pkl"})
_CACHE = ".cache"  # where torch puts its dumps by itself: ~/.cache/torch
MOST_LISTED = 10_000  # names of a folder in which dumps are looked for


@dataclass
class Pile:
    """What the files hold, by kind, and what is wrong with the others."""

    incidents: list[tuple[Path, Incident]] = field(default_factory=list)
    boards: list[tuple[Path, Reading]] = field(default_factory=list)
    dumps: dict[int, Path] = field(default_factory=dict)
    reader: recorder.QueueReader = field(default_factory=recorder.QueueReader)
    logs: logs.Logs = field(default_factory=logs.Logs)
    problems: list[str] = field(default_factory=list)
    plain: dict[Path, bool] = field(default_factory=dict)  # logs without a line of use, and whether each was named
    passed: list[Path] = field(default_factory=list)  # other texts without a line of use, in folders that were named

    @cached_property
    def queues(self) -> Queues:
        """The queues that the dumps tell of, completed by what the logs say of ranks without one."""
        return logs.completed(self.reader.queues(), self.logs)

    @cached_property
    def assessment(self) -> Assessment:
        """What dumps and logs say by themselves."""
        return logs.assess(self.queues, self.logs)


def sort_out(paths: Iterable[Path]) -> Pile:
    """Read every file; a folder stands for the files in it that are of use."""
    pile, paths = Pile(), list(paths)
    pile.logs.first_ranks = logs.first_ranks(paths)
    with _no_collection():
        for path in paths:
            if path.is_dir():
                _take_folder(pile, path)
            elif path.suffix == ".html" and path.with_suffix(".json").exists():
                _take(pile, path.with_suffix(".json"))
            else:
                _take(pile, path)
    return pile


def _take(pile: Pile, path: Path, asked_for: bool = True) -> bool:
    """Read one file. False where it is of no use; one that was not asked for by name is passed over then."""
    try:
        _put(pile, path)
    except _PlainLogError as error:
        suffix = _without_gzip(path).suffix
        if suffix in _LOGS or (asked_for and suffix not in _NO_LOGS):
            pile.plain[path] = asked_for
        elif asked_for:
            pile.problems.append(f"left out {path}: {error}")
        elif suffix in _TEXTS:
            pile.passed.append(path)
        return False
    except HangwatchError as error:
        if asked_for or not isinstance(error, _UnknownError):
            pile.problems.append(f"left out {path}: {error}")
        return False
    except OSError as error:
        pile.problems.append(f"left out {path}: {(error.strerror or str(error)).lower()}")
        return False
    return True


def _take_folder(pile: Pile, folder: Path, deeper: int = DEEPEST) -> None:
    """Read the files of a folder; where none is of use, those of the folders in it, as nodes and launchers leave them.

    Beside what is of use, those of torchrun's attempts, of single ranks and of logs belong to it, and beside logs those
    with dumps. What lies deeper is of use by its name too: a folder may hold checkpoints and data.
    """
    inside = sorted(folder.iterdir())
    files = [path for path in inside if path.is_file() and _is_looked_into(path, deeper)]
    known = len(pile.dumps)
    of_use = [_take(pile, path, asked_for=False) for path in files]
    if not deeper:
        return
    folders = [path for path in inside if path.is_dir() and (path.name == _CACHE or not path.name.startswith("."))]
    if any(of_use):
        elsewhere = len(pile.dumps) == known  # beside dumps, others are of another time
        folders = [path for path in folders if _of_launcher(path) or (elsewhere and _holds_dumps(path, deeper - 1))]
    for path in _last_attempts(folders):
        _take_folder(pile, path, deeper - 1)


def _of_launcher(folder: Path) -> bool:
    """Whether a folder is one of those that torchrun makes for an attempt, or for the output of one rank.

    Or its folder of logs, in which each job has one: LOGS/JOB/attempt_0.
    """
    if _ATTEMPT.fullmatch(folder.name) or _OF_A_RANK.fullmatch(folder.name) or folder.name in _OF_LOGS:
        return True
    return any(folder.glob("attempt_*")) or any(folder.glob("*/attempt_*"))


def _holds_dumps(folder: Path, deeper: int) -> bool:
    """A flight-recorder dump lies in it, or in a folder in it: by its name, which nothing else has."""
    inside = list(islice(folder.iterdir(), MOST_LISTED))
    if any(_DUMP.search(path.name) and path.suffix in _OF_DUMPS and path.is_file() for path in inside):
        return True
    return deeper > 0 and any(_holds_dumps(path, deeper - 1) for path in inside if path.is_dir())


def _is_looked_into(path: Path, deeper: int) -> bool:
    """Any file of the folder that was named; one that lies deeper, or is packed, by its name."""
    return (deeper == DEEPEST and path.suffix != _GZIP) or _may_be_evidence(path)


def _may_be_evidence(path: Path) -> bool:
    return _without_gzip(path).suffix in _SUFFIXES or recorder.rank_of(path) is not None


def _without_gzip(path: Path) -> Path:
    """The name that a gzipped file had before."""
    return path.with_suffix("") if path.suffix == _GZIP else path


def _last_attempts(folders: list[Path]) -> list[Path]:
    """Without the folders of attempts that torchrun followed by another one."""
    attempts = [path for path in folders if _ATTEMPT.fullmatch(path.name)]
    last = max(attempts, key=lambda path: int(path.name.rpartition("_")[2]), default=None)
    return [path for path in folders if path not in attempts or path == last]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Dumps are large trees without circles; looking for circles in them costs more than reading them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _UnknownError(HangwatchError):
    """A file of no kind that is of use here."""


class _PlainLogError(_UnknownError):
    """A text that may be a log, without a line of use."""


def _put(pile: Pile, path: Path) -> None:
    if path.suffix in _ARCHIVES or path.name.endswith(_PACKED_FOLDER):
        raise _UnknownError("an archive: unpack it, and give the folder")
    if path.suffix != _GZIP:
        _put_plain(pile, path, path)
        return
    with tempfile.TemporaryDirectory(prefix="hangwatch-") as folder:
        plain = Path(folder) / path.stem
        if not _unpack(path, plain):
            pile.problems.append(f"{path} is cut off or spoiled: read as far as it goes")
        _put_plain(pile, path, plain)


def _unpack(path: Path, plain: Path) -> bool:
    """Whether all of a gzipped file could be unpacked; what comes before a fault is unpacked in any case."""
    left = LARGEST
    with gzip.open(path) as packed, plain.open("wb") as file:
        try:
            while part := packed.read1(1 << 20):
                file.write(part)
                left -= len(part)
                if left < 0:
                    raise _UnknownError(f"larger than {LARGEST >> 20} MiB when unpacked")
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return False
    return True


def _put_plain(pile: Pile, path: Path, plain: Path) -> None:
    """`path` is the name that tells of the rank; `plain` is what is read."""
    with plain.open("rb") as file:
        start = file.read(SNIFFED)
    if logs.is_log(start):
        _put_log(pile, path, plain)
        return
    if plain.stat().st_size > LARGEST:
        raise _UnknownError(f"larger than {LARGEST >> 20} MiB")
    content = plain.read_bytes()
    if not content and not plain.suffix and (rank := recorder.rank_of(path)) is not None:
        pile.reader.spoiled(rank)
        raise files.ReportError("it is empty")
    if content.startswith(BOARD_MAGIC):
        pile.boards.append((path, _board(path)))
    elif content.startswith(b"<"):
        raise _UnknownError("a page to look at; the .json of the same name is what to give")
    elif b'"hangwatch.incident/' in content:
        pile.incidents.append((path, _report(content)))
    elif recorder.is_pickle(content) or any(key in content for key in (b'"entries"', b'"pg_config"', b'"pg_status"')):
        _put_dump(pile, path, content)
    elif plain.suffix == ".json" and not content.rstrip().endswith((b"}", b"]")):
        raise files.ReportError("cut off before anything of use")
    else:
        _put_log(pile, path, plain)


def _put_log(pile: Pile, path: Path, plain: Path) -> None:
    if not logs.read(path, pile.logs, plain):
        raise (_PlainLogError if path in pile.logs.unused else _UnknownError)(_NO_USE)


def _report(content: bytes) -> Incident:
    incident = files.parse(content, "it")
    if summary.is_summary(incident):
        raise files.ReportError("a summary, without the ranks' evidence; `hangwatch report FILE` prints its verdict")
    return incident


def _board(path: Path) -> Reading:
    from hangwatch_agent.board.layout import BoardError
    from hangwatch_agent.board.reader import read_board

    try:
        return read_board(path)
    except BoardError as error:
        raise files.ReportError(str(error)) from error


def _put_dump(pile: Pile, path: Path, content: bytes) -> None:
    named = rank = recorder.rank_of(path)
    try:
        for told, document in recorder.documents(content):
            rank = named if told is None else told
            if rank is None:
                raise files.ReportError("a dump says its rank by a number at the end of its name, as in trace_rank_3")
            _put_document(pile, path, rank, document)
    except recorder.DumpError:
        if rank is not None:
            pile.reader.spoiled(rank)
        raise


def _put_document(pile: Pile, path: Path, rank: int, document: dict[str, Any]) -> None:
    known = pile.dumps.get(rank)
    if not pile.reader.add(rank, document, path.stat().st_mtime_ns):
        raise files.ReportError(f"{known} is a dump of rank {rank} too, and no older one; that one is used")
    if known is not None:
        pile.problems.append(f"left out {known}: {path} is a newer dump of rank {rank}; that one is used")
    pile.dumps[rank] = path


def problems(pile: Pile) -> list[str]:
    """What is wrong with files; a log that was named, and tells nothing, is one where others do."""
    named = (f"left out {path}: {_NO_USE}" for path, named in pile.plain.items() if named)
    others = (*pile.passed, *(path for path, named in pile.plain.items() if not named))
    others = tuple(path for path in others if path not in pile.logs.nameless_in)
    passed = list(dict.fromkeys(path.name for path in others))
    more = f" and {len(passed) - _SHOWN} more" if passed[_SHOWN:] else ""
    told = [f"nothing of a hang or failure is in {', '.join(passed[:_SHOWN])}{more}"] if passed else []
    return [*pile.problems, *named, *told]


def kinds(pile: Pile) -> str:
    """2 reports, 4 boards"""
    counts = {
        "report": len(pile.incidents),
        "board": len(pile.boards),
        "dump": len(pile.dumps),
        "log": len(pile.logs.files),
    }
    return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count)
