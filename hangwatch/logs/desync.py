"""torch's desync report (TORCH_NCCL_DESYNC_DEBUG, the default before 2.1): which ranks were behind, by what each rank
had put into the store when its device started and finished a call. It numbers the ranks of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hangwatch import words
from hangwatch.model import Verdict

from .model import Desync, Logs, Reached

MARKS = ("Timeout at collective: ", "lagging ranks that caused this timeout", "ranks that caused the desync")
_AT = re.compile(r"- \[(\d{1,9})\] Timeout at collective: (\w+), #(\d{1,18})")
_NEVER = re.compile(r"ranks \[([\d, ]+)\] are the lagging ranks that caused this timeout")
_WITHIN = re.compile(r"\[([\d, ]+)\] joined but didn't finish collective #(\d{1,18})")
_BEHIND = re.compile(r"\[([\d, ]+)\] finished collective #(\d{1,18}), but didn't join collective")
_HEAD = re.compile(r"^\s*#(\d{1,18}) (started|finished) ranks:\s*$")
_ROW = re.compile(r"^\s*\[([\d, ]+)\] (started|finished) (\w+)\s*$")
_PREFIX = re.compile(r"^\[rank(\d{1,9})\]:")
_GROUP = re.compile(r"\[PG (?:ID \d+ PG GUID )?(\w+)\s*(?:\(([^)]*)\))?\s+Rank \d+\]")
_DEFAULT = ("0", "default_pg")
_MESSAGES = ("send", "recv", "coalesced")


class Lines:
    """Takes the lines of one log, one after another: a report has many, and the one before it tells whose it is."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank  # that of the file, where its name tells
        self._before = ""
        self._report: Desync | None = None
        self._row: tuple[int, bool] | None = None  # the number that the next lines of the snapshot are about

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        told = self._told(line, logs) if " collective" in line else self._snapshot(line)
        self._row = self._row if told else None
        self._before = line
        return told

    def _told(self, line: str, logs: Logs) -> bool:
        if at := _AT.search(line):
            self._report = Desync(_group_of(self._before), int(at[1]), self._whose())
            self._report.reached[int(at[1])] = Reached(int(at[3]), finished=False, op=at[2].lower())
            logs.desyncs.append(self._report)
        elif never := _NEVER.search(line):
            self._current(logs).never.update(_numbers(never[1]))
        elif within := _WITHIN.search(line):
            self._note(_numbers(within[1]), Reached(int(within[2]), finished=False), logs)
        elif behind := _BEHIND.search(line):
            self._note(_numbers(behind[1]), Reached(int(behind[2]), finished=True), logs)
        else:
            return False
        return True

    def _whose(self) -> int | None:
        prefix = _PREFIX.match(self._before)
        return int(prefix[1]) if prefix else self._rank

    def _current(self, logs: Logs) -> Desync:
        """The report that a line belongs to, of which an excerpt may hold this line alone."""
        if self._report is None:
            self._report = Desync()
            logs.desyncs.append(self._report)
        return self._report

    def _note(self, ranks: Iterable[int], reached: Reached, logs: Logs) -> None:
        known = self._current(logs).reached
        for rank in ranks:
            known[rank] = reached if rank not in known else further(known[rank], reached)

    def _snapshot(self, line: str) -> bool:
        """`#511 started ranks:` and the rows behind it: of all ranks, with the names of the calls."""
        if self._report is None or " " not in line:
            return False
        if head := _HEAD.match(line):
            self._row, self._report.whole = (int(head[1]), head[2] == "finished"), True
            return True
        row = _ROW.match(line) if self._row is not None else None
        if row is None or self._row is None:
            return False
        for rank in _numbers(row[1]):
            self._report.reached[rank] = Reached(*self._row, op=row[3].lower())
        return True


def further(one: Reached, other: Reached) -> Reached:
    """The later of two states of a rank; of the same state the one that names the call."""
    return max(one, other, key=lambda each: (each.number, each.finished, each.op))


def _numbers(listed: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", listed)]


def _group_of(line: str) -> str:
    """The group that the line before a report names; "" where it names none."""
    found = _GROUP.search(line)
    if found is None:
        return ""
    return _DEFAULT[0] if found[1] == _DEFAULT[0] or found[2] in _DEFAULT else found[2] or found[1]


def of_job(logs: Logs) -> list[Desync]:
    """The reports that number the ranks of the job."""
    other = any(far.group != _DEFAULT[0] and far.description not in _DEFAULT for far in logs.progress)
    return [each for each in logs.desyncs if _numbers_the_job(each, logs, other=other)]


def _numbers_the_job(report: Desync, logs: Logs, *, other: bool) -> bool:
    """Its group is the default one: by its name, or no line is of another group and its numbers fit the job's."""
    if report.group:
        return report.group == _DEFAULT[0]
    fits = report.rank is None or report.rank == report.place
    known = {*logs.ranks, *(each.rank for each in logs.desyncs if each.rank is not None)}
    larger = max((each.size for each in logs.communicators.values()), default=0)
    size = len(report.reached) if report.whole else 0
    return not other and fits and (not size or size > max(known, default=0)) and (not size or size >= larger)


def messages(report: Desync) -> bool:
    """Sends and receives are among the calls: their numbers count a rank's own, and compare with no other's."""
    return any(each.op in _MESSAGES for each in report.reached.values())


def behind(report: Desync) -> dict[int, str]:
    """The ranks that the others wait for, and how far each came, in words."""
    if messages(report):
        return {}
    if report.never:
        return dict.fromkeys(report.never, "started no collective")
    ended = {rank: each.number for rank, each in report.reached.items() if each.finished}
    lowest = min((each.number for each in report.reached.values()), default=0)
    waits = any(not each.finished and each.number == lowest for each in report.reached.values())
    if waits:  # those that have finished a call are no reason for ranks that stand in the same one
        return {}
    return {rank: _came(number) for rank, number in ended.items() if number == lowest}


def _came(number: int) -> str:
    return f"finished collective {number} and did not start {number + 1}"


def _lagging(logs: Logs) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for report in of_job(logs):
        for rank, said in behind(report).items():
            found.setdefault(said, set()).add(rank)
    return found


def lagging(logs: Logs) -> set[int]:
    """The ranks that reports name as behind, where their numbers are those of the job."""
    return {rank for late in _lagging(logs).values() for rank in late}


def ranks(logs: Logs) -> set[int]:
    """The ranks of the job that reports name."""
    return {rank for report in of_job(logs) for rank in (*report.reached, *report.never)}


def named(verdict: Verdict, logs: Logs) -> Verdict:
    """A verdict on ranks of which no other record is left, where the report tells how far they came."""
    late = lagging(logs)
    blamed = {each.rank for each in verdict.culprits}
    if not late or blamed != late or verdict.cause != "undetermined":
        return verdict
    told = words.listed(f"{words.ranks(sorted(those))} {said}" for said, those in _lagging(logs).items())
    who, wait = words.ranks(sorted(late)), words.verb(len(verdict.victims), "waits", "wait")
    waiting = f"; {words.ranks(verdict.victims)} {wait} for that" if verdict.victims else ""
    return replace(
        verdict,
        summary=f"By torch's desync report {told}{waiting}.",
        fix=f"find out what {who} did after that: look at the stack or the last output of {who}",
        details=(),
    )


def evidence(logs: Logs) -> Iterator[str]:
    """Its sentences."""
    for said, late in _lagging(logs).items():
        yield f"torch's desync report: {words.ranks(sorted(late))} {said}"
