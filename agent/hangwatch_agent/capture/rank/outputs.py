"""The last words of a rank: its log where standard output is a file, torchrun's error file, faulthandler's traces."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hangwatch.ranks.last_words import word_of
from hangwatch_agent.shared.procfs import PROC
from hangwatch_agent.shared.redact import redact_text

LINES = 20
MOST_TELLING = 20  # lines further up that tell of an end
TAIL_BYTES = 64 << 10
LONGEST_LINE = 500
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_OURS = re.compile(r"hangwatch: ")
_OUR_REPORT = re.compile(r"hangwatch: [A-Z]{4,}\b")  # its lines follow, all of them indented
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def of_rank(pid: int, known: Sequence[Path], environment: Mapping[str, str], proc: Path = PROC) -> str:
    """The last lines of a rank's logs, and what torchrun's error file says. Works after the rank's end too.

    Args:
        pid: the rank.
        known: its log files, where they were remembered.
        environment: its distributed settings.
        proc: root of the proc file system.
    """
    files = dict.fromkeys((*log_files(pid, proc), *known, *_elastic_logs(environment)))
    parts = [*(tail(path) for path in files), elastic_error(environment)]
    return "\n".join(part for part in parts if part)


def _elastic_logs(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """torchrun --log-dir puts stdout.log and stderr.log beside the error file."""
    path = environment.get(ERROR_FILE)
    return (Path(path).with_name("stderr.log"), Path(path).with_name("stdout.log")) if path else ()


def log_files(pid: int, proc: Path = PROC) -> tuple[Path, ...]:
    """The regular files behind descriptors 2 and 1, each once. The paths are good after the process's end too."""
    found: dict[Path, None] = {}
    for fd in (2, 1):
        link = proc / str(pid) / "fd" / str(fd)
        try:
            if stat.S_ISREG(link.stat().st_mode):
                found[Path(os.readlink(link))] = None
        except OSError:
            continue
    return tuple(found)


def unreadable(pid: int, proc: Path = PROC) -> str:
    """What standard error of a living process is, where it keeps nothing that can be read: "a pipe", "a terminal"."""
    link = proc / str(pid) / "fd" / "2"
    try:
        mode, target = link.stat().st_mode, os.readlink(link)
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a terminal" if target.startswith(("/dev/pts/", "/dev/tty")) else target


def tail(path: Path, lines: int = LINES) -> str:
    """The last lines of a log, as a terminal would show them without colours; "" if it cannot be read.

    Lines further up that tell of an end come first: ranks share a log, and tracebacks of all of them follow the line
    of the backend that ended the first. Only the last 64 kB are read, progress bars are reduced to their last state,
    and secrets are redacted. What hangwatch itself wrote there, perhaps of an earlier attempt, is no word of a rank.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - TAIL_BYTES, 0))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
    shown = [*_without_ours(line for each in text.split("\n") if (line := _shown(each)).strip())]
    earlier = [line for line in shown[:-lines] if word_of(line) is not None][:MOST_TELLING]
    return redact_text("\n".join([*earlier, *shown[-lines:]]))


def _without_ours(lines: Iterable[str]) -> Iterator[str]:
    report = False
    for line in lines:
        report = bool(_OUR_REPORT.match(line)) or (report and line.startswith("  "))
        if not (report or _OURS.match(line)):
            yield line


def _shown(line: str) -> str:
    overwritten = line.rstrip("\r").rpartition("\r")[2]
    return _CONTROL.sub("", _ANSI.sub("", overwritten)).rstrip()[:LONGEST_LINE]


def elastic_error(environment: Mapping[str, str]) -> str:
    """What a rank under torchrun wrote into its error file before it died; "" where there is none.

    Source: torch/distributed/elastic/multiprocessing/errors, written by `@record` and by torchrun's own workers.
    """
    path = environment.get(ERROR_FILE)
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            content = json.loads(file.read(1 << 20))
        message = content["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    if isinstance(message, dict):
        message = _traceback(message) or message.get("message", "")
    return redact_text(_CONTROL.sub("", str(message))[-4000:])


def _traceback(message: Mapping[str, object]) -> str:
    extra = message.get("extraInfo")
    return str(extra.get("py_callstack") or "") if isinstance(extra, dict) else ""


def crash_trace(run_dir: Path, pid: int) -> str:
    """What faulthandler wrote when a rank crashed (`crash-PID.txt` beside its board); "" where nothing did."""
    return tail(run_dir / f"crash-{pid}.txt", lines=200)
