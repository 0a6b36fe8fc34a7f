"""Switches torch's flight recorder on, and asks its NCCL backend for dumps: environment variables, set in the rank.

They are set in the call of `init_process_group`, which is before the backend reads them, and not in the environment of
the whole job: torch ends a process whose pipe file cannot be made, so the variables must reach no process for which the
folder is not there (another machine, a container). Only ranks that may use NCCL are asked for dumps. Nothing is set
where the user has set one of the names that torch has for the same thing, nor under names that make this torch warn.

Read in torch's sources, 2.4 to 2.13 (FlightRecorder.hpp, ProcessGroupNCCL.hpp and .cpp):
- The recorder is off by default before 2.9, and was seen off in 2.9.1 on gloo, which it knows since then; in 2.13 it is
  on. In between, its own default is asked for by name. Its old names (TORCH_NCCL_TRACE_*,
  TORCH_NCCL_DEBUG_INFO_TEMP_FILE) make torch warn from 2.8 on; TORCH_NCCL_DEBUG_INFO_PIPE_FILE has no other name.
- The thread that reads the pipe looks at it every second with TORCH_NCCL_DUMP_ON_TIMEOUT, every 8 minutes without; that
  one is on by default from 2.7 on.
- Some versions between 2.8 and 2.12 make the pipe only with TORCH_NCCL_TRACE_BUFFER_SIZE, which they call deprecated:
  there no pipe is made, and dumps come on a timeout only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

PREFIX = "torch-dump-rank-"  # of the dumps in a job's folder; torch appends the rank
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"  # the beginning of the pipe's name; torch appends the rank and ".pipe"
BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PLACE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
ENTRIES = "2000"  # torch's own default where it has one
RENAMED, RECORDING, DUMPING = (2, 8), (2, 13), (2, 7)  # the versions since which it is so
GLOO = (2, 9)  # the first version whose recorder knows gloo


def wanted(version: tuple[int, int], folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to set for torch of `version`; none where the user has turned the recorder off."""
    if any(environment.get(name, "").strip() == "0" for name in BUFFER):
        return {}
    prefix, new = str(folder / PREFIX), version >= RENAMED
    found = recording(version, environment)
    if version < DUMPING and ON_TIMEOUT not in environment:
        found[ON_TIMEOUT] = "1"
    if not any(name in environment for name in PLACE):
        found[PLACE[0] if new else PLACE[1]] = prefix
    if PIPE not in environment:
        found[PIPE] = prefix
    return found


def recording(version: tuple[int, int], environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that switches the recorder on, where this torch or the user does not."""
    if version >= RECORDING or any(name in environment for name in BUFFER):
        return {}
    return {BUFFER[0] if version >= RENAMED else BUFFER[1]: ENTRIES}


def version_of(text: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cu130"; (0, 0) where it is none."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def may_use_nccl(torch: Any, backend: Any) -> bool:
    """Whether a process group of `backend` may use NCCL: it is named, or none is and this torch has it."""
    said = str(backend or "").lower()
    if said and said != "undefined":
        return "nccl" in said
    return bool(getattr(getattr(torch, "version", None), "cuda", None))


class DumpDefaults:
    """The variables of this process, each set once, and taken back on removal unless it was changed since."""

    def __init__(self, enabled: bool, environment: MutableMapping[str, str] = os.environ) -> None:
        self._enabled = enabled
        self._environment = environment
        self._set: dict[str, str] = {}

    def install(self, folder: Path | None, backend: Any) -> None:
        """Set them for a process group of `backend` that is about to be made; `folder` is the job's own.

        Called before each process group: what an earlier call has set, or a parent's, goes where the folder has gone.
        """
        torch = sys.modules.get("torch")
        self._drop_stale()
        if not self._enabled or folder is None or not _usable(folder):
            return
        version = version_of(str(getattr(torch, "__version__", "")))
        found: dict[str, str] = {}
        if may_use_nccl(torch, backend):
            found = wanted(version, folder, self._environment)
        elif version >= GLOO:
            found = recording(version, self._environment)
        self._environment.update(found)
        self._set |= found

    def _drop_stale(self) -> None:
        for name in (PIPE, *PLACE):
            place = Path(self._environment.get(name, ""))
            if place.name == PREFIX and not _usable(place.parent):
                del self._environment[name]
                self._set.pop(name, None)

    def remove(self) -> None:
        """Take back what still stands as it was set."""
        for name, value in self._set.items():
            if self._environment.get(name) == value:
                del self._environment[name]
        self._set = {}


def _usable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
