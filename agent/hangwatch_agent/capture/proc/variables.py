"""What the environment gives the program of a rank, as digests: they can be compared, and hold no values."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hangwatch_agent.capture.proc.process import is_setting
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC
from hangwatch_agent.shared.redact import is_secret_name

_DIGITS = 8


def digests(pid: int, proc: Path = PROC) -> dict[str, str] | None:
    """A digest of each variable that a process was started with; None where that cannot be read.

    Those that concern distributed training are kept as they are elsewhere, and are left out here; so are those that
    hold a secret by their name.
    """
    try:
        environment = procfs.environment(pid, proc)
    except OSError:
        return None
    told = {name: value for name, value in environment.items() if not (is_setting(name) or is_secret_name(name))}
    return {name: _digest(name, value) for name, value in told.items()}


def _digest(name: str, value: str) -> str:
    """Of the name as well, so that equal values of two variables do not look alike."""
    return hashlib.sha256(f"{name}={value}".encode(errors="surrogateescape")).hexdigest()[:_DIGITS]
