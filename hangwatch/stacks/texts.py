"""Stacks as people have them written: the text of `py-spy dump`, and what Python's faulthandler writes on demand."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from typing import Any

from hangwatch.model import Frame, ThreadStack

from .frames import name_of

FAULTHANDLER = "(most recent call first):"
_PROCESS = re.compile(r"^Process (\d+): ")
_PY_SPY = re.compile(r'^Thread (0x[0-9a-fA-F]+|\d+) \((idle|active)(\+gil)?\)(?:: "(.*)")?\s*$')
_PY_SPY_FRAME = re.compile(r"^ {4}(\S.*?) \(([^()]+?)(?::(\d+))?\)\s*$")
_THREAD = re.compile(
    r"^(?P<current>Current thread|Thread) (?P<id>0x[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])?(?: \(.*\))? "
    r"\(most recent call first\):"
)
_FRAME = re.compile(r'^\s+File "(.*)", line (\d+|\?\?\?) in (.*\S)')
_BETWEEN = re.compile(r"^\s*$|^Python v\d|^ +(?:Arguments|Locals):|^ {8,}\S+: |^\s+<no Python frame>|^\s+\.\.\.$")
_PYTHONS = (".py", ".pyx", ">")
_MAIN = "MainThread"
# py-spy leaves out where packages are installed.
_PACKAGES = re.compile(
    r"^(?:torch|functorch|torchgen|torchvision|numpy|accelerate|transformers|deepspeed|datasets|lightning|lightning_fabric"
    r"|pytorch_lightning|ray|fsspec|s3fs|botocore|boto3|requests|urllib3|filelock|tqdm|wandb|triton)/"
)


@dataclass
class Dump:
    """The threads of one process at one moment, as far as they are read."""

    pid: int | None = None
    threads: list[_Thread] = field(default_factory=list)

    def stacks(self) -> tuple[ThreadStack, ...]:
        """The main thread first: py-spy lists it first and names it, faulthandler lists it last."""
        main = next((each for each in self.threads if each.name == _MAIN), None)
        main = main or (self.threads[-1] if self.threads else None)
        found = [each.stack(each is main) for each in self.threads]
        return tuple(sorted(found, key=lambda stack: not stack.main))


@dataclass
class _Thread:
    identity: int
    name: str
    source: str
    active: bool | None = None
    owns_gil: bool | None = None
    current: bool = False
    frames: list[Frame] = field(default_factory=list)

    def stack(self, main: bool) -> ThreadStack:
        name = self.name or (_MAIN if main else "")
        frames = tuple(_placed(self.frames)) if self.source == "py-spy" else tuple(self.frames)
        return ThreadStack(self.identity, name, frames, self.owns_gil, self.active, main, self.source)


class Texts:
    """Takes the lines of one process, one after another. `dump` is the last one that was read."""

    def __init__(self) -> None:
        self.dump: Dump | None = None
        self._open: _Thread | None = None
        self._begun = False  # py-spy has named a process, whose threads follow

    def take(self, line: str) -> bool:
        """Whether a line belongs to a dump."""
        if found := _PROCESS.match(line):
            self.dump, self._begun, self._open = Dump(int(found[1])), True, None
        elif thread := _thread(line):
            self._add(thread)
        elif self._open is not None and (frame := _frame(line, self._open)):
            self._open.frames.append(frame)
        elif self._open is None or not _BETWEEN.match(line):
            self._open = None
            return self._begun and bool(_BETWEEN.match(line))
        return True

    def _add(self, thread: _Thread) -> None:
        known = self.dump.threads if self.dump is not None else []
        again = any(each.identity == thread.identity or (each.current and thread.current) for each in known)
        if self.dump is None or again or (self._open is None and not self._begun):
            self.dump = Dump()
        self.dump.threads.append(thread)
        self._open, self._begun = thread, False


def of_json(content: bytes) -> tuple[int | None, tuple[ThreadStack, ...]] | None:
    """The pid and the stacks in what `py-spy dump --json` wrote; None where it is something else."""
    try:
        threads = json.loads(content)
        dump = Dump(threads[0]["pid"], [_of_record(each) for each in threads])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return dump.pid, dump.stacks()


def _of_record(record: dict[str, Any]) -> _Thread:
    identity = record["os_thread_id"] or record["thread_id"]
    main = record["os_thread_id"] == record["pid"]
    name = _MAIN if main else record["thread_name"] or ""
    thread = _Thread(identity, name, "py-spy", record["active"], record["owns_gil"])
    for each in record["frames"]:
        native = each["module"] is not None
        function = each["name"] if native else name_of(each["name"])
        thread.frames.append(Frame(each["filename"], max(each["line"], 0), function, native))
    return thread


def _thread(line: str) -> _Thread | None:
    if found := _PY_SPY.match(line):
        return _Thread(int(found[1], 0), found[4] or "", "py-spy", found[2] == "active", found[3] is not None)
    if found := _THREAD.match(line):
        return _Thread(int(found["id"], 16), found["name"] or "", "faulthandler", current=found["current"] != "Thread")
    return None


def _frame(line: str, thread: _Thread) -> Frame | None:
    if thread.source == "py-spy":
        found = _PY_SPY_FRAME.match(line)
        return _of_py_spy(found[1], found[2], int(found[3] or 0)) if found else None
    found = _FRAME.match(line)
    return Frame(found[1], int(found[2]) if found[2].isdecimal() else 0, found[3]) if found else None


def _of_py_spy(function: str, file: str, line: int) -> Frame:
    native = not file.endswith(_PYTHONS)
    return Frame(file, line, function if native else name_of(function), native)


def _placed(frames: list[Frame]) -> list[Frame]:
    """With the folders that py-spy leaves out, by which the library's and packages' files are told from the user's."""
    main = next((each.file for each in reversed(frames) if each.function == "<module>"), "")
    return [
        Frame(_whole(each.file), each.line, each.function, each.native)
        if each.file != main and not each.native
        else each
        for each in frames
    ]


def _whole(file: str) -> str:
    if file.startswith(("/", "<")):
        return file
    if _PACKAGES.match(file):
        return f"/site-packages/{file}"
    top = file.split("/")[0].removesuffix(".py")
    return f"/lib/python3/{file}" if top in sys.stdlib_module_names else file
