from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangwatch_agent.capture.stacks import refusal
from tests.unit.agent.capture.made_up import process


def machine(proc: Path, scope: int | None, capable: bool) -> Path:
    process(proc, 5)
    (proc / "self").mkdir()
    (proc / "self/status").write_text(f"Name:\tx\nCapEff:\t{1 << 19 if capable else 0:016x}\n")
    if scope is not None:
        (proc / "sys/kernel/yama").mkdir(parents=True)
        (proc / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    return proc


@pytest.mark.parametrize(
    ("scope", "capable", "advice"),
    [
        (None, False, "--cap-add SYS_PTRACE"),
        (0, False, "--cap-add SYS_PTRACE"),
        (1, False, "has not named us as its tracer"),
        (2, False, "ptrace_scope is 2"),
        (3, True, "until the machine is restarted"),
        (0, True, "the kernel refused it"),
    ],
)
def test_what_is_missing_and_what_to_do(tmp_path: Path, scope: int | None, capable: bool, advice: str) -> None:
    proc = machine(tmp_path, scope, capable)
    assert advice in refusal.missing_right(5, proc)
    assert advice in refusal.explain(5, 1, "Error: Permission denied (os error 13)", proc)


def test_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = machine(tmp_path, None, False)
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    assert "as the same user, or as root" in refusal.missing_right(5, proc)
    assert "we run as 4000000" in refusal.missing_right(5, proc)


def test_unreadable_rights(tmp_path: Path) -> None:
    assert not refusal.has_ptrace_capability(tmp_path)
    assert refusal.yama_scope(tmp_path) == 0
