"""Why a process could not be looked into, and what the user can do about it, in words."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC

CAP_SYS_PTRACE = 19


def explain(pid: int, code: int, errors: str, proc: Path = PROC) -> str:
    """A failed py-spy run in one sentence, from its exit code and what it wrote to stderr."""
    stat = procfs.stat_of(pid, proc)
    if stat is None:
        return "the process is gone"
    if stat.state == "Z":
        return "the process is a zombie: it has no stacks any more"
    lowered = errors.lower()
    if "permission" in lowered or "not permitted" in lowered:
        return f"no right to trace it: {missing_right(pid, proc)}"
    if "python version" in lowered or "find a python" in lowered:
        return "not a Python process, or one that py-spy does not know"
    if code < 0:
        return f"py-spy was ended by signal {-code} (out of memory, or its limit)"
    first = next((line for line in errors.splitlines() if line.startswith("Error")), errors.strip()[:200])
    return first or f"py-spy exited with code {code}"


def missing_right(pid: int, proc: Path = PROC) -> str:
    """What keeps this process from tracing `pid`, and what to do. Source: ptrace(2), "access mode checking"."""
    owner, us = _owner(pid, proc), os.geteuid()
    if owner is not None and owner != us and us != 0:
        return f"it belongs to user {_user(owner)}, we run as {_user(us)}; run hangwatch as the same user, or as root"
    scope = yama_scope(proc)
    if scope >= 3:
        return "kernel.yama.ptrace_scope is 3: no process may trace until the machine is restarted without it"
    if not has_ptrace_capability(proc):
        if scope == 2:
            return "kernel.yama.ptrace_scope is 2; sysctl -w kernel.yama.ptrace_scope=1, or give us CAP_SYS_PTRACE"
        if scope == 1:
            return (
                "kernel.yama.ptrace_scope is 1 and it has not named us as its tracer;"
                " sysctl -w kernel.yama.ptrace_scope=0, or start the job with `hangwatch run`"
            )
        return "CAP_SYS_PTRACE is missing; in a container start it with --cap-add SYS_PTRACE"
    return "the kernel refused it, although CAP_SYS_PTRACE is there (another user namespace, seccomp or a debugger)"


def yama_scope(proc: Path = PROC) -> int:
    """kernel.yama.ptrace_scope; 0 where the kernel has no Yama."""
    try:
        return int(procfs.read_text(proc / "sys/kernel/yama/ptrace_scope"))
    except (OSError, ValueError):
        return 0


def has_ptrace_capability(proc: Path = PROC) -> bool:
    """Whether this process has CAP_SYS_PTRACE in effect."""
    try:
        lines = dict(
            line.split(":\t", 1) for line in procfs.read_text(proc / "self/status").splitlines() if ":\t" in line
        )
        return bool(int(lines["CapEff"], 16) >> CAP_SYS_PTRACE & 1)
    except (OSError, ValueError, KeyError):
        return False


def _owner(pid: int, proc: Path) -> int | None:
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
