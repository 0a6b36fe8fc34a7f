"""torchrun's own words: its table of failures, and the error files that it has its processes write."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from hangwatch.model import Frame
from hangwatch.stacks.frames import origin

from . import tracebacks
from .model import Failure, Logs, Reaped

MARKS = (
    "torch.distributed.elastic",
    "torch/distributed/elastic",
    "Root Cause (first observed failure)",
    "ChildFailedError",
)
_ROOT = "Root Cause (first observed failure)"
_WRITTEN_BY = re.compile(r"[IWE]\d{4} [\d:.]+ +(\d+) ")
_GROUP_SUCCEEDED = "worker group successfully finished"
_GROUP_FAILED = "Worker group FAILED"
_FIELD = re.compile(r"^\s*(?:\[[^\]]*\]:?)?\s*(time|host|rank|exitcode|error_file|traceback)\s+: (.*)$")
_RANK = re.compile(r"(\d+)")
_EXIT = re.compile(r"(-?\d+) \(pid: (\d+)\)")
_ASKED = re.compile(r"Received (?:Signals\.)?(\w+) death signal, shutting down workers")
_REAPED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_OF_LAUNCHER = re.compile(
    r"^\[default\d+\]:|[WIE]\d{4} [\d:.]+ +\d+ torch/distributed/(?:elastic|run)|\[launch\.py:\d+|ChildFailedError"
    r"|torch\.multiprocessing\.spawn\.Process"
    r"|(?:(?:WARNING|ERROR|INFO):|\] )torch\.distributed\.(?:run|elastic)"
)


def is_of_launcher(line: str) -> bool:
    """Whether torchrun or another launcher that starts several ranks has written a line, or labelled it."""
    may_be = "distributed" in line or "multiprocessing.spawn" in line or "launch.py:" in line or "[default" in line
    return may_be and _OF_LAUNCHER.search(line) is not None


class Table:
    """Takes the lines of torchrun's table of failures, one after another."""

    def __init__(self) -> None:
        self._root = False
        self._known: dict[str, str] = {}
        self._rank: int | None = None
        self._succeeded: set[str] = set()  # agents all of whose processes have ended as they should

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if _ROOT in line:
            self._root = True
            return True
        if _GROUP_SUCCEEDED in line:
            self._succeeded.add(_agent(line))
            return False
        if _GROUP_FAILED in line:
            logs.group_failed = True
            return True
        if "failed (exitcode" in line and (reaped := _REAPED.search(line)):
            logs.reaped[f"torchrun {reaped[3]}"] = Reaped(int(reaped[2]), int(reaped[3]), int(reaped[1]))
            return True
        if "death signal" in line and (asked := _ASKED.search(line)):
            name = f"signal {asked[1]}" if asked[1].isdecimal() else asked[1]
            if _agent(line) in self._succeeded:
                return False
            logs.ended_by[f"torchrun was told to end ({name})"] = None
            return True
        if self._rank is not None and (place := _PLACE.search(line)):
            known = logs.failures[self._rank]
            own = Frame(place[1], int(place[2]), place[3])
            logs.failures[self._rank] = replace(known, where=_further_in(known.where, own))
            return True
        found = _FIELD.match(line)
        if found is None:
            return self._text(line, logs)
        name, said = found[1], found[2].strip()
        if name == "time":
            self._known, self._rank = {}, None
        self._known[name] = said
        if name == "traceback":
            self._keep(logs)
        return True

    def _text(self, line: str, logs: Logs) -> bool:
        """Further lines of a traceback, of several the first one: its last line is the error."""
        said = line.strip()
        if self._rank is None or not said or said.startswith(("=", "-", "[")):
            self._rank = None
            return False
        logs.failures[self._rank] = replace(logs.failures[self._rank], text=said)
        return True

    def _keep(self, logs: Logs) -> None:
        rank = _RANK.match(self._known.get("rank", ""))
        exit_code = _EXIT.match(self._known.get("exitcode", ""))
        if rank is None:
            return
        self._rank = int(rank[1])
        logs.ranks.add(self._rank)
        text = self._known["traceback"]
        logs.failures[self._rank] = Failure(
            self._rank,
            self._known.get("host", ""),
            int(exit_code[2]) if exit_code else None,
            int(exit_code[1]) if exit_code else None,
            "" if text.startswith("To enable traceback") else text,
            first=self._root,
            at=self._known.get("time", ""),
        )
        if self._root:
            self._root = False


def _agent(line: str) -> str:
    """The number of the process that wrote one of torch's lines: `W1124 10:12:30.1 77 torch/...`."""
    found = _WRITTEN_BY.match(line)
    return found[1] if found is not None else ""


def _further_in(known: Frame | None, place: Frame) -> Frame:
    """The innermost line of the user's of two that come one after another in a traceback; else the last one."""
    return known if known is not None and origin(known.file) == "user" != origin(place.file) else place


def error_file(content: bytes, rank: int | None, logs: Logs) -> bool:
    """Keep what an error file says; its rank stands in the path. False where it is none."""
    try:
        message = json.loads(content)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if isinstance(message, str):
        message = {"message": message, "extraInfo": {}}
    if not isinstance(message, dict):
        return False
    extra = message.get("extraInfo")
    stack, text, where = str(extra.get("py_callstack", "")) if isinstance(extra, dict) else "", None, None
    for file, line, function in _PLACE.findall(stack):
        where = _further_in(where, Frame(file, int(line), function))
    if (first := tracebacks.of_chain(stack)) is not None and first.then:
        text, where = first.text, first.where
    text = text or str(message.get("message", ""))
    if rank is None:
        told = "it has written an error file, whose path does not tell its rank"
        logs.reaped[f"error file {len(logs.reaped)}"] = Reaped(
            -1, None, None, text, where, "A process of this job", told
        )
        return True
    logs.failures[rank] = replace(logs.failures.get(rank, Failure(rank)), text=text, where=where)
    logs.ranks.add(rank)
    return True
