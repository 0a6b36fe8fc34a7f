"""What a test needs from the machine. Without it the test skips, but fails in CI (CI=true)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from hangwatch.gallery.standin.library import COMPILERS

POSTGRES_BINARIES = Path("/usr/lib/postgresql")  # Debian keeps initdb and friends out of PATH


def program(name: str) -> Path:
    """The path of a program, e.g. `program("chromium-headless-shell")`, `program("ip")`, `program("initdb")`."""
    found = shutil.which(name) or next((str(path) for path in POSTGRES_BINARIES.glob(f"*/bin/{name}")), None)
    return Path(found) if found else _missing(f"needs the program {name}: make apt")


def compiler() -> None:
    """A C compiler, for the stand-in of NCCL."""
    program(next((name for name in COMPILERS if shutil.which(name)), COMPILERS[0]))


def root() -> None:
    """The right to make network namespaces, stop foreign processes and the like."""
    if os.geteuid() != 0:
        _missing("needs root")


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"{reason} (CI is set, so this is no reason to skip)")
    pytest.skip(reason)
