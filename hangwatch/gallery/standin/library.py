"""device.c, compiled with the system's C compiler when it is first needed, and loaded."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("device.c")
COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """The path of a C compiler, None where there is none."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def load() -> ctypes.CDLL:
    """The compiled library. It lies in the user's cache folder, where py-spy finds the names of its functions.

    Raises:
        OSError: There is no compiler, or it failed.
    """
    source = SOURCE.read_bytes()
    path = _folder() / f"device-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if not path.exists():
        _compile(path)
    return ctypes.CDLL(str(path))


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "hangwatch" / "standin"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _compile(path: Path) -> None:
    """Into another file first: several ranks may be at it at once, and the first one's library stays.

    A library that a rank has loaded is not replaced: py-spy reads the names of its functions from the file.
    """
    program = compiler()
    if program is None:
        raise OSError(f"the stand-in of NCCL needs a C compiler ({', '.join(COMPILERS)}) on PATH")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        options = ["-shared", "-fPIC", "-O1", "-g", "-pthread", "-o", str(made), str(SOURCE)]
        done = subprocess.run([program, *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            raise OSError(f"{program} cannot compile {SOURCE}")
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
