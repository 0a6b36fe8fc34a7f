"""Files of evidence, whatever they are, put together to one snapshot a job: reports, boards, flight-recorder dumps.

A file that cannot be used is named with the reason, and the others are used all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hangwatch import flight_recorder
from hangwatch.errors import HangwatchError
from hangwatch.records import CaptureNote, Incident, Job, RankEvidence, Reading, Snapshot
from hangwatch.report import files, snapshot_of, words

BOARD_MAGIC = b"HANGWTCH"
LARGEST = 512 << 20
MOST_RANKS = 1_000_000
SILENT_S = 5.0  # a board that fell silent so much before the others ended before them


@dataclass
class Pile:
    """What the files hold, by kind, and what is wrong with the others."""

    incidents: list[tuple[Path, Incident]] = field(default_factory=list)
    boards: list[tuple[Path, Reading]] = field(default_factory=list)
    dumps: dict[int, tuple[Path, dict[str, Any]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def sort_out(paths: Iterable[Path], *, trust_pickle: bool = False) -> Pile:
    """Read every file; a folder stands for the files in it that are of use."""
    pile = Pile()
    for path, asked_for in _expanded(paths):
        try:
            _put(pile, path, trust_pickle)
        except HangwatchError as error:
            if asked_for or not isinstance(error, _UnknownError):
                pile.problems.append(f"left out {path}: {error}")
        except OSError as error:
            pile.problems.append(f"left out {path}: {(error.strerror or str(error)).lower()}")
    return pile


class _UnknownError(HangwatchError):
    """A file of no kind that is of use here."""


def _expanded(paths: Iterable[Path]) -> Iterable[tuple[Path, bool]]:
    for path in paths:
        if path.is_dir():
            yield from ((inner, False) for inner in sorted(path.iterdir()) if inner.is_file())
        elif path.suffix == ".html" and path.with_suffix(".json").exists():
            yield path.with_suffix(".json"), True
        else:
            yield path, True


def _put(pile: Pile, path: Path, trust_pickle: bool) -> None:
    if path.stat().st_size > LARGEST:
        raise _UnknownError(f"larger than {LARGEST >> 20} MiB")
    content = path.read_bytes()
    if content.startswith(BOARD_MAGIC):
        pile.boards.append((path, _board(path)))
    elif flight_recorder.is_pickle(content):
        _put_dump(pile, path, flight_recorder.load(content, trust_pickle=trust_pickle))
    elif content.startswith(b"<"):
        raise _UnknownError("a page to look at; the .json of the same name is what to give")
    elif b'"hangwatch.incident/' in content:
        pile.incidents.append((path, files.parse(content, "it")))
    elif b'"entries"' in content:
        _put_dump(pile, path, flight_recorder.load(content))
    elif path.suffix == ".json" and not content.rstrip().endswith(b"}"):
        raise files.ReportError("cut off before anything of use")
    else:
        raise _UnknownError("neither an incident report, nor a board, nor a flight-recorder dump")


def _board(path: Path) -> Reading:
    from hangwatch_agent.board import BoardError, read_board

    try:
        return read_board(path)
    except BoardError as error:
        raise files.ReportError(str(error)) from error


def _put_dump(pile: Pile, path: Path, document: dict[str, Any]) -> None:
    rank = flight_recorder.rank_of(path)
    if rank is None:
        raise files.ReportError("a dump says its rank by a number at the end of its name, as in trace_rank_3")
    flight_recorder.evidence({rank: document}, 0.0)  # the shape is looked at now, while the file can be named
    if rank in pile.dumps:
        raise files.ReportError(f"{pile.dumps[rank][0]} is a dump of rank {rank} too; that one is used")
    pile.dumps[rank] = (path, document)


def snapshots(pile: Pile) -> list[Snapshot]:
    """One snapshot a job. Dumps do not say their job: they belong to the one that the other files tell of."""
    reports: dict[str, list[Incident]] = {}
    for _, incident in pile.incidents:
        reports.setdefault(incident.job.id, []).append(incident)
    found = {job: snapshot_of(incidents) for job, incidents in reports.items()}
    boards: dict[str, list[tuple[Path, Reading]]] = {}
    for path, reading in pile.boards:
        boards.setdefault(_job_of(reading, found), []).append((path, reading))
    for job, readings in boards.items():
        of_boards = _of_boards(job, readings, pile.problems)
        found[job] = _joined(found[job], of_boards) if job in found else of_boards
    if pile.dumps:
        of_dumps = _of_dumps(pile)
        if len(found) == 1:
            return [_joined(next(iter(found.values())), of_dumps)]
        found[""] = of_dumps
    return list(found.values())


def nowhere(snapshot: Snapshot) -> str:
    """Which ranks none of the files tells of, in words; "" where all are there."""
    missing = set(range(min(snapshot.job.world_size or 0, MOST_RANKS))) - {rank.rank for rank in snapshot.ranks}
    if not missing:
        return ""
    return f"none of the files tells of {words.ranks(missing)}; if they ran, give the files of their nodes too"


def _job_of(reading: Reading, known: dict[str, Snapshot]) -> str:
    """The job of a board: by name, or the only one there is, which may go by another name on another node."""
    job = reading.identity.job
    return next(iter(known)) if len(known) == 1 and job not in known else job


def _of_boards(job: str, found: Sequence[tuple[Path, Reading]], problems: list[str]) -> Snapshot:
    """The boards of ranks that are gone, as of the moment when the last of them was alive."""
    newest: dict[int, tuple[Path, Reading]] = {}
    for path, reading in sorted(found, key=lambda pair: -pair[1].identity.started_at):
        rank = reading.identity.rank
        if rank is None:
            problems.append(f"left out {path}: it does not say its rank")
        elif rank in newest:
            problems.append(f"left out {path}: {newest[rank][0]} is a newer board of rank {rank}")
        else:
            newest[rank] = (path, reading)
    readings = [reading for _, reading in newest.values()]
    ended = max((_alive_at(reading) for reading in readings), default=0.0)
    sizes = [reading.identity.world_size for reading in readings if reading.identity.world_size]
    started = min((reading.identity.started_at for reading in readings), default=0.0)
    return Snapshot(
        job=Job(job, job, max(sizes, default=None), started_at=started),
        taken_at=ended,
        ranks=tuple(_of_board(path, reading, ended) for _, (path, reading) in sorted(newest.items())),
        notes=tuple(_silences(readings, ended)),
        last_progress_at=max((reading.progress.at for reading in readings), default=0.0),
        sampled_twice=False,
    )


def _alive_at(reading: Reading) -> float:
    return max(reading.ticker_at, reading.progress.at, reading.phase_at)


def _of_board(path: Path, reading: Reading, ended: float) -> RankEvidence:
    """A rank as its board tells of it. Whether its process died first or was ended afterwards, nobody can say."""
    from hangwatch_agent.capture.collectives import left_behind

    identity = reading.identity
    return RankEvidence(
        rank=identity.rank if identity.rank is not None else -1,
        host=identity.host,
        pid=identity.pid,
        reading=replace(reading, taken_at=_alive_at(reading)),
        collectives=left_behind(path, identity.pid, reading),
        still_s=max(ended - reading.progress.at, 0.0),
    )


def _silences(readings: Iterable[Reading], ended: float) -> Iterable[CaptureNote]:
    for reading in readings:
        if (silent := ended - _alive_at(reading)) > SILENT_S:
            said = f"its board fell silent {silent:.0f} s before the last one: it ended first, or its interpreter stood"
            yield CaptureNote("process", False, said, rank=reading.identity.rank)


def _of_dumps(pile: Pile) -> Snapshot:
    documents = {rank: document for rank, (_, document) in pile.dumps.items()}
    taken_at = max(path.stat().st_mtime for path, _ in pile.dumps.values())
    ranks = flight_recorder.evidence(documents, taken_at)
    size = flight_recorder.world_size(documents.values())
    missing = set(range(size or 0)) - set(documents)
    if missing:
        pile.problems.append(f"no dump of {words.ranks(missing)}: what they did is not known")
    return Snapshot(
        job=Job("dumps", "flight-recorder dumps", size),
        taken_at=taken_at,
        # A rank without a dump has not "never come": it is a rank of which nothing is known.
        ranks=tuple(sorted((*ranks, *map(RankEvidence, missing)), key=lambda rank: rank.rank)),
        last_progress_at=taken_at - min((rank.still_s for rank in ranks), default=0.0),
        sampled_twice=False,
    )


def _joined(first: Snapshot, second: Snapshot) -> Snapshot:
    """`first` with what `second` knows besides: further ranks, boards of ranks, complete lists of collectives."""
    known = {rank.rank: rank for rank in first.ranks}
    for rank in second.ranks:
        known[rank.rank] = _completed(known[rank.rank], rank) if rank.rank in known else rank
    size = first.job.world_size if first.job.world_size is not None else second.job.world_size
    return replace(
        first,
        job=replace(first.job, world_size=size),
        ranks=tuple(known[rank] for rank in sorted(known)),
        notes=(*first.notes, *second.notes),
        sampled_twice=first.sampled_twice and len(known) == len(first.ranks),
    )


def _completed(rank: RankEvidence, more: RankEvidence) -> RankEvidence:
    if rank.reading is None and more.reading is not None:
        rank = replace(rank, reading=more.reading, host=rank.host or more.host, pid=rank.pid or more.pid)
    better = more.collectives.source == "flight-recorder" and rank.collectives.source != "flight-recorder"
    return replace(rank, collectives=more.collectives) if better and more.collectives.heads else rank


def kinds(pile: Pile) -> str:
    """2 reports, 4 boards"""
    counts = {"report": len(pile.incidents), "board": len(pile.boards), "dump": len(pile.dumps)}
    return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count)
