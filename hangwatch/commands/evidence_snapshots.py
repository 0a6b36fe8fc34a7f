"""What files of evidence hold, put together to one snapshot a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hangwatch.commands.evidence_files import Pile
from hangwatch.commands.evidence_stacks import with_stacks
from hangwatch.model import CaptureNote, Incident, Job, RankEvidence, Reading, Snapshot, every_rank
from hangwatch.queues import not_told, snapshot
from hangwatch.report import snapshot_of, words

SILENT_S = 5.0  # a board that fell silent so much before the others ended before them


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
    if pile.dumps or pile.logs:
        of_dumps = with_stacks(_of_dumps(pile), pile)
        if len(found) == 1:
            return [_joined(next(iter(found.values())), of_dumps)]
        found[""] = of_dumps
    return list(found.values())


def nowhere(snapshot: Snapshot) -> str:
    """Which ranks none of the files tells of, in words; "" where all are there."""
    missing = set(every_rank(snapshot.job.world_size)) - {rank.rank for rank in snapshot.ranks}
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
    """A rank as its board tells of it. Whether its process died first or was ended afterwards is not known."""
    from hangwatch_agent.capture.rank.collectives import left_behind

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
    found = snapshot(pile.queues, "flight-recorder dumps" if pile.dumps else "logs")
    missing = pile.queues.untold()
    if missing and pile.dumps:
        pile.problems.append(not_told(pile.queues, missing))
    return found


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
    better = more.collectives.complete and not rank.collectives.complete
    return replace(rank, collectives=more.collectives) if better and more.collectives.heads else rank
