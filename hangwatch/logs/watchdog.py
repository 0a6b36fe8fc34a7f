"""Lines of torch's NCCL watchdog: calls that it gave up, and how far each rank was in its groups.

The line's own prefix (`[rank3]:`) is the global rank. "[Rank 1]" is the rank within the group in some versions, so it
counts only where no prefix is there.
"""

from __future__ import annotations

import re
from math import prod

from hangwatch.model import Frame

from .model import UNNUMBERED, Logs, Progress, Raised, Timeout

_PREFIX = re.compile(r"\[rank(\d+)\]:?")
_RANK = re.compile(r"\b[Rr]ank (\d+)\]")
_GAVE_UP = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(\d+), )?OpType=(\w+)"
    r"(?:, NumelIn=(\d+), NumelOut=(\d+)|, TensorShape=\[([\d, ]*)\])?, Timeout\(ms\)=(\d+)\)"
)
_FAR = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d+)(?:, last started (?:NCCL )?work: (-?\d+))?"
    r",? last completed (?:NCCL )?work: (-?\d+)",
    re.IGNORECASE,
)
_AT = re.compile(r"(?:at work(?: sequence id)?|work sequence id): (\d+)")
_GROUP = re.compile(r"\[PG (?:ID \d+ PG GUID )?(\w+)\s*(?:\(([^)]*)\))?\s+Rank (\d+)\]")
_FRAME = re.compile(r"^\s*#\d+ (\S+) from (.+):(\d+)\s*$")
_STUCK = re.compile(r"watchdog got stuck for (\d+) seconds without making progress")
_NO_HEARTBEAT = "Heartbeat monitor timed out!"  # torch 2.2 to 2.6; the sentence above may follow
_BROKE = re.compile(r"watchdog thread terminated with exception: (?:\[Rank \d+\] )?(CUDA error: .*)")
_THROWN = re.compile(r"\s*what\(\): ")
_NO_LOCK = re.compile(r"Could not acquire GIL within (\d+) ms on exit")
_TAKEN_DOWN = "we are taking the entire process down"
_AS_MUCH = ("ALLREDUCE", "BROADCAST", "REDUCE")  # give as many elements as they make
MARKS = ("ProcessGroupNCCL", "WorkNCCL(", "collective operation timeout")


def take(line: str, logs: Logs, rank: int | None) -> bool:
    """Keep what a line says; `rank` is that of the file, where its name tells. False for a line of no use."""
    if "WorkNCCL(" in line and (gave_up := _GAVE_UP.search(line)):
        return _give_up(line, gave_up, logs, rank)
    if "ast enqueued" in line and (far := _FAR.search(line)):
        return _progress(line, far, logs, rank)
    if "CUDA error" in line and (broke := _BROKE.search(line)):
        return _broken(line, broke[1], logs, rank)
    if (stuck := _STUCK.search(line)) or (stuck := _NO_LOCK.search(line)) or _NO_HEARTBEAT in line:
        return _stalled(line, stuck, logs, rank)
    if _TAKEN_DOWN in line and (whose := rank_of(line, rank)) is not None:
        logs.taken_down.add(whose)
        logs.ranks.add(whose)
        return True
    if logs.timeouts and (frame := _FRAME.match(_PREFIX.sub("", line, count=1))):
        logs.timeouts[-1].frames.append(Frame(frame[2], int(frame[3]), frame[1]))
        return True
    return False


def _broken(line: str, error: str, logs: Logs, rank: int | None) -> bool:
    """The watchdog's thread met an error of its own device: that ends the rank, and no other rank has caused it."""
    whose = rank_of(line, rank)
    if whose is None:
        return False
    if rank is None and _THROWN.match(line) and any(each.text == error.strip() for each in logs.raised.values()):
        return True
    logs.ranks.add(whose)
    logs.raised.setdefault(whose, Raised(error.strip(), ended=True))
    return True


def _stalled(line: str, found: re.Match[str] | None, logs: Logs, rank: int | None) -> bool:
    """torch's monitor found the watchdog's own thread stuck, or did not get the interpreter lock."""
    whose = rank_of(line, rank)
    if whose is None:
        return False
    logs.ranks.add(whose)
    said = "torch found its watchdog thread stuck"
    if found is not None:
        waited = f"torch did not get the interpreter lock within {found[1]} ms"
        said = f"{said} for {found[1]} s" if found.re is _STUCK else waited
    told = dict.fromkeys((*logs.stalls.get(whose, ()), said))
    logs.stalls[whose] = [one for one in told if not any(two.startswith(f"{one} ") for two in told)]
    return True


def rank_of(line: str, rank: int | None) -> int | None:
    """The rank that a line is about: its prefix, else the file's, else the one that the text names."""
    if prefix := _PREFIX.search(line):
        return int(prefix[1])
    if rank is not None:
        return rank
    said = _RANK.search(line)
    return int(said[1]) if said else None


def _give_up(line: str, found: re.Match[str], logs: Logs, rank: int | None) -> bool:
    whose = rank_of(line, rank)
    if whose is None:
        return False
    number = int(found[1] or UNNUMBERED)
    if any((known.rank, known.number) == (whose, number) for known in logs.timeouts):
        return True  # the same is said again when the process ends
    if (
        rank is None
        and _THROWN.match(line)
        and any((each.number, each.op) == (number, found[2]) for each in logs.timeouts)
    ):
        return True  # there without the job's rank: "[Rank 1]" counts within the group
    logs.ranks.add(whose)
    given, made = (None if part is None else int(part) for part in (found[3], found[4]))
    if found[5] is not None:  # torch 2.0 and before, of the first output alone
        made = prod(map(int, re.findall(r"\d+", found[5])))
        given = made if found[2] in _AS_MUCH else None
    logs.timeouts.append(Timeout(whose, number, found[2], given, made, int(found[6]) / 1000))
    return True


def _progress(line: str, found: re.Match[str], logs: Logs, rank: int | None) -> bool:
    whose = rank_of(line, rank)
    if whose is None:
        return False
    logs.ranks.add(whose)
    group = _GROUP.search(line)
    at = _AT.search(line)
    logs.progress.append(
        Progress(
            whose,
            group[1] if group else "0",
            (group[2] or "") if group else "",
            int(found[1]),
            int(found[3]),
            int(found[2] or -1),
            int(at[1]) if at else None,
            int(group[3]) if group else None,
        )
    )
    return True
