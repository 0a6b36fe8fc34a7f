"""The text of a status command, as NCCL 2.24 to 2.28 writes it: outliers are listed, the rest is counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangwatch.model import NcclCommunicator, NcclLaunched

Process = tuple[int, str]  # pid, and the node's address

_VERSION = re.compile(r"^NCCL version (\S+)", re.MULTILINE)
# group, ..., ranks per communicator, ..., status
_ROW = re.compile(r"^ *(\d+) +\d+ +\d+ +\d+(?:-\d+)? +(\d+) +\d+ +([A-Z][A-Z,]*)")
_SECTION = re.compile(r"^#(\d+)-\d+ \(([0-9a-f]+)\) (INCOMPLETE|ERROR|MISMATCH)")
_KIND = re.compile(r"^  Communicator ranks have different (.+?) (?:operation )?counts?$")
_MANY = re.compile(r"^  (\d+) ranks (?:have launched up to operation (\d+)|(have not launched any operations))")
_ONE = re.compile(r"^  Rank (\d+) (?:has launched up to operation (\d+)|(has not launched any operations))")
_REPORTED = re.compile(r"^  Rank (\d+) reported (.+?) --")
_MANY_REPORTED = re.compile(r"^  \d+ ranks reported (.+)$")
_STATUS = re.compile(r"^  Rank (\d+) has status (\w+)")
_MANY_STATUS = re.compile(r"^  \d+ ranks have status (\w+)")
_RANK = re.compile(r"^  Rank (\d+) ")
_MISSING = re.compile(r"^  The missing ranks?: ([\d, ]+)$")  # as 2.24 lists them, without their processes
_PROCESS = re.compile(r"managed by process (\d+) on node (\S+)")
_SET_UP = "INIT"
_LISTED = 1 << 16
_DEAD = re.compile(r"^  Process (\d+) on node (\S+)")


@dataclass
class _Section:
    """The lines of one communicator, as they come: what a line is about stands in lines before it."""

    id: str
    size: int
    launched: list[list[int | str | list[int]]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    title: str = ""
    op: str = ""
    error: str = ""
    status: str = ""
    states: dict[str, list[int]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        if (process := _PROCESS.search(line)) and (rank := _RANK.match(line)):
            self.processes[int(rank[1])] = (int(process[1]), process[2])
        if kind := _KIND.match(line):
            self.op = kind[1]
        elif status := _STATUS.match(line):
            self.states.setdefault(status[2], []).append(int(status[1]))
        elif status := _MANY_STATUS.match(line):
            self.status = status[1]
        elif many := _MANY.match(line):
            self._many(int(many[2] or 0), int(many[1]))
        elif one := _ONE.match(line):
            self._many(int(one[2] or 0), 1)
            self._listed(int(one[1]))
        elif reported := _REPORTED.match(line):
            self.errors[int(reported[1])] = reported[2].lower()
        elif reported := _MANY_REPORTED.match(line):
            self.error = reported[1].lower()
        elif absent := _MISSING.match(line):
            self.missing += map(int, re.findall(r"\d+", absent[1]))
        elif rank := _RANK.match(line):
            self._rank(int(rank[1]))

    def _many(self, count: int, number: int) -> None:
        if self.op:
            self.launched.append([self.op, count, number, []])

    def _rank(self, rank: int) -> None:
        if self.title == "INCOMPLETE":
            self.missing.append(rank)
        elif self.title == "ERROR" and self.error:
            self.errors[rank] = self.error
        elif self.op:
            self._listed(rank)
        elif self.status:
            self.states.setdefault(self.status, []).append(rank)

    def _listed(self, rank: int) -> None:
        listed = self.launched[-1][3] if self.launched else None
        if isinstance(listed, list):
            listed.append(rank)

    def found(self) -> NcclCommunicator:
        return NcclCommunicator(
            self.id,
            self.size,
            launched=tuple(_launched(self.launched)),
            missing=tuple(sorted(set(self.missing))),
            errors=dict(sorted(self.errors.items())),
            initialising=tuple(sorted(self.states.get(_SET_UP, ()))),
            aborted=tuple(sorted(self.states.get("ABORT", ()))),
        )


def _launched(rows: list[list[int | str | list[int]]]) -> Iterator[NcclLaunched]:
    for op, count, number, ranks in rows:
        if isinstance(count, int) and isinstance(number, int) and isinstance(ranks, list):
            yield NcclLaunched(str(op), count, number, tuple(sorted(ranks)))


def read(said: str) -> tuple[str, list[tuple[NcclCommunicator, dict[int, Process]]], list[str]]:
    """(version, the communicators of which something is listed with the processes of their ranks, dead processes)."""
    version = _VERSION.search(said)
    sizes: dict[str, int] = {}
    sections: dict[str, _Section] = {}
    setting_up: dict[str, NcclCommunicator] = {}  # by group; of those that have a section, that tells more
    dead: list[str] = []
    current: _Section | None = None
    in_dead = False
    for line in said.splitlines():
        if not line.strip():
            in_dead = False
        if row := _ROW.match(line):
            sizes[row[1]] = int(row[2])
            if row[3] == _SET_UP:
                setting_up[row[1]] = _whole(row[1], sizes[row[1]])
        elif head := _SECTION.match(line):
            setting_up.pop(head[1], None)
            current = sections.setdefault(head[2], _Section(head[2], sizes.get(head[1], 0)))
            current.title, current.op, current.error, current.status = head[3], "", "", ""
        elif line == "DEAD":
            current, in_dead = None, True
        elif in_dead and (process := _DEAD.match(line)):
            dead.append(f"process {process[1]} on node {process[2]}")
        elif current is not None:
            current.take(line)
    found = [(each.found(), each.processes) for each in sections.values()]
    return version[1] if version else "", [*found, *((each, {}) for each in setting_up.values())], dead


def _whole(group: str, size: int) -> NcclCommunicator:
    """A communicator of which the table says that all ranks still set it up."""
    return NcclCommunicator(f"group {group}", size, initialising=tuple(range(min(size, _LISTED))))


def gpus(said: str) -> int:
    """How many GPUs the job has, by the answer's summary; 0 where it does not tell."""
    lines = iter(said.splitlines())
    for line in lines:
        if line.startswith("(total)") and line.endswith("(total)"):
            numbers = next(lines, "").split()
            return int(numbers[-1]) if numbers and all(map(str.isdecimal, numbers)) else 0
    return 0
