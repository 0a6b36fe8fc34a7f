"""What mpirun, or prterun, says of its processes, which it names by their ranks: the first that failed, and one that
ended all.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .model import Failure, Logs
from .slurm import of_shell

MARKS = (
    "noticed that process rank ",
    "MPI_ABORT was invoked on rank ",
    "processes exited with non-zero status",
    "has exited due to process rank ",
)
CALLED_ABORT = "it called MPI_Abort"
_ENDED = re.compile(
    r"noticed that process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)", re.IGNORECASE
)
# The line may end before the node, or before "abort".
_DUE_TO = re.compile(r"has exited due to process rank (\d{1,9}) with PID (\d+) on(?: node (\S+))?")
_ON_NODE = re.compile(r"^node (\S+)")
_ABORT = re.compile(r'(?<!without )calling\s*$|(?:^|calling )"abort"')
_ABORTED = re.compile(r"MPI_ABORT was invoked on rank (\d+)")
# A job that a program has started besides has another number than 1, and ranks of its own.
_FIRST = re.compile(r"^\s*Process name: \[(?:\[\d+,1\]|[^\[\]]*@1),(\d{1,9})\](.*)$")
_FIRST_CODE = re.compile(r"^\s*Exit code: +(\d{1,3})\s*$")
_BETWEEN = 6  # lines of that block, in one of which the process is named
_CODE = re.compile(r"^\s*(?:with errorcode|Errorcode:) (-?\d+)")
_NATIVE = re.compile(r"^\[[\w.-]+:0*(\d+)\] \[ *\d+\] (\S+?)\((\w*)(?:\+0x[0-9a-f]+)?\)")
_OF_SYSTEM = re.compile(r"/(?:libc|libpthread|ld-linux|libm|linux-vdso|libpython|libopen-|python\d)[^/]*$")
_INTERRUPT = 2


class Lines:
    """Takes the lines of one log, one after another."""

    def __init__(self) -> None:
        self._aborted: int | None = None
        self._block, self._first = 0, -1  # lines that may follow, and the process that they name
        self._due: Failure | None = None  # for which mpirun has ended all, in a sentence of several lines
        self._native: dict[int, str] = {}  # the innermost frame of each crashed process that is none of the system's

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if line.startswith("[") and (native := _NATIVE.match(line)) and not _OF_SYSTEM.search(native[2]):
            library = native[2].rpartition("/")[2]
            self._native.setdefault(
                int(native[1]), f"in {plain_name(native[3])} of {library}" if native[3] else library
            )
            return False
        if self._aborted is not None and (code := _CODE.match(line)):
            logs.noticed[self._aborted] = Failure(self._aborted, exit_code=int(code[1]), first=True)
            self._aborted = None
            return True
        if self._due is not None or MARKS[3] in line:
            return self._due_to(line, logs)
        if MARKS[2] in line:
            self._block, self._first = _BETWEEN, -1
            return True
        if self._block:
            return self._non_zero(line, logs)
        if "MPI_ABORT" in line and (aborted := _ABORTED.search(line)):
            self._aborted = int(aborted[1])
            return False
        return MARKS[0] in line and self._ended(line, logs)

    def _due_to(self, line: str, logs: Logs) -> bool:
        """A sentence on the process for which all others were ended, over two lines or three: what counts is abort."""
        known, self._due = self._due, None
        if found := _DUE_TO.search(line):
            known = Failure(int(found[1]), found[3] or "", int(found[2]) or None, text=CALLED_ABORT, first=True)
        elif known is not None and not known.host and (node := _ON_NODE.match(line)):
            known = replace(known, host=node[1])
        elif not _ABORT.search(line):
            return False
        if known is None:
            return False
        if not _ABORT.search(line):
            self._due = known if found else None  # nothing more comes behind the node, as "exiting improperly"
        elif (before := logs.noticed.get(known.rank)) is not None and before.exit_code is not None:
            logs.noticed[known.rank] = replace(before, host=known.host, pid=known.pid)
        else:
            logs.noticed[known.rank] = known
        return True

    def _non_zero(self, line: str, logs: Logs) -> bool:
        """The block on the first process that ended with another exit code than 0."""
        self._block -= 1
        if first := _FIRST.match(line):
            self._first, line = int(first[1]), first[2]
        code = _FIRST_CODE.match(line) if self._first >= 0 else None
        if code is None:
            return False
        self._block = 0
        known = logs.noticed.get(self._first)
        if known is None or known.exit_code is None:
            host, pid = (known.host, known.pid) if known is not None else ("", None)
            logs.noticed[self._first] = Failure(self._first, host, pid, of_shell(int(code[1])), first=True)
        return True

    def _ended(self, line: str, logs: Logs) -> bool:
        found = _ENDED.search(line)
        if found is None or int(found[4]) == _INTERRUPT:  # by which a person ends a job
            return False
        rank, pid = int(found[1]), int(found[2])
        failure = Failure(rank, found[3], pid, -int(found[4]), self._native.get(pid, ""), first=True)
        logs.noticed.setdefault(rank, failure)
        return True


def plain_name(symbol: str) -> str:
    """`sampler::next` of `_ZN7sampler4nextEv`; other names stay as they are."""
    if not (found := re.match(r"_ZNK?(?=\d)|_Z(?=\d)", symbol)):
        return symbol
    parts, rest = list[str](), symbol[found.end() :]
    while (length := re.match(r"\d{1,4}", rest)) is not None:
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(parts)
