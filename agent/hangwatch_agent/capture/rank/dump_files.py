"""Where torch writes the dumps of its flight recorder, and how one is asked for: paths, pipes, and careful reading.

Default places, as read in torch's sources: `$XDG_CACHE_HOME/torch/comm_lib_trace_rank_N` today (`~/.cache` without the
variable), `nccl_trace_rank_N` in the same folder or in /tmp in older versions. Other jobs of the user write there too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hangwatch_agent.shared.dump_defaults import PIPE, PLACE, PREFIX

LARGEST = 64 << 20  # bytes; 2,000 entries with their frames are about 1 MB
NAMES = ("comm_lib_trace_rank_", "nccl_trace_rank_")


@dataclass(frozen=True)
class Written:
    """A file as it was found: its bytes, and when it was last written."""

    path: Path
    content: bytes
    written_at: float


def places(
    rank: int, folder: Path, settings: Mapping[str, str], environment: Mapping[str, str], cwd: Path | None = None
) -> list[Path]:
    """The files that may hold the dump of `rank`, the ones that only this job writes first.

    `folder` is the job's own. `settings` are the rank's variables, `environment` those of its user's session. A prefix
    that is relative is relative to the rank's working directory `cwd`.
    """
    given = [settings[name] for name in PLACE if settings.get(name)]
    cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME', '/tmp')}/.cache"
    prefixes = [*given, f"{folder / PREFIX}", *(f"{cache}/torch/{name}" for name in NAMES)]
    prefixes += [f"/tmp/{name}" for name in NAMES]
    found = [_absolute(f"{prefix}{rank}", cwd) for prefix in dict.fromkeys(prefixes)]
    return [path for path in found if path is not None]


def pipes(rank: int, folder: Path, settings: Mapping[str, str], cwd: Path | None = None) -> list[Path]:
    """The pipe files in which torch may wait for a word, the user's own first."""
    prefixes = dict.fromkeys([*filter(None, [settings.get(PIPE)]), f"{folder / PREFIX}"])
    found = [_absolute(f"{prefix}{rank}.pipe", cwd) for prefix in prefixes]
    return [path for path in found if path is not None]


def _absolute(path: str, cwd: Path | None) -> Path | None:
    if path.startswith("/"):
        return Path(path)
    return cwd / path if cwd is not None else None


def read(path: Path, newer_than: float, user: int) -> Written | None:
    """The file, if it is a regular one of `user`, of sane size, written after `newer_than`. Raises OSError.

    In /tmp others may have put what they like under this name: nothing is followed, and nothing is waited for.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        fits = stat.S_ISREG(found.st_mode) and found.st_uid == user and found.st_mtime >= newer_than
        if not fits or found.st_size > LARGEST:
            return None
        return Written(path, file.read(LARGEST), found.st_mtime)


def ask(pipe: Path, user: int) -> str:
    """Write to a pipe file, without waiting for anybody. Returns why that was of no use; "" where it was done."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return _REFUSALS.get(error.errno or 0, f"its pipe file cannot be opened: {error.strerror}")
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != user:
            return f"{pipe} is no pipe of this user"
        os.write(descriptor, b"1\n")
        return ""
    except OSError as error:
        return _REFUSALS.get(error.errno or 0, f"its pipe file cannot be written to: {error.strerror}")
    finally:
        os.close(descriptor)


_REFUSALS = {
    errno.ENOENT: "torch has made no pipe file for it",
    errno.ENXIO: "no process reads its pipe file any more",
    errno.EPIPE: "no process reads its pipe file any more",
    errno.EAGAIN: "its pipe file is full: it was asked before and does not read",
}
