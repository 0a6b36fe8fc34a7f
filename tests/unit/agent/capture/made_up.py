"""A /proc made of files, for processes that cannot be had: other machines, other kernels, other containers."""

from __future__ import annotations

from pathlib import Path


def process(
    proc: Path,
    pid: int,
    *,
    parent: int = 1,
    name: str = "python",
    state: str = "S",
    command: str = "python train.py",
    environment: dict[str, str] | None = None,
    group: int | None = None,
    session: int | None = None,
    ticks: int = 100,
    exit_status: int = 0,
) -> Path:
    """Makes the folder of a process, and returns it."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "task" / str(pid)).mkdir(parents=True)
    fields = [state, parent, pid if group is None else group, pid if session is None else session, *[0] * 7]
    fields += [12, 8, 0, 0, 20, 0, 1, 0, ticks, 4096, 256, *[0] * 27, exit_status]
    line = f"{pid} ({name}) " + " ".join(map(str, fields))
    (folder / "stat").write_text(line)
    (folder / "task" / str(pid) / "stat").write_text(line)
    (folder / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    (folder / "environ").write_text("".join(f"{key}={value}\0" for key, value in (environment or {}).items()))
    return folder
