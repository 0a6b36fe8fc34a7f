"""hangwatch doctor: each check where all is well, and where it is not."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangwatch.commands import checks, doctor_loader, main
from hangwatch.commands.checks import Check
from hangwatch.doctor.loader import LoaderReport, Walk
from hangwatch.doctor.loader.checks import all_checks
from hangwatch.model import CaptureNote, GpuFacts
from hangwatch.settings import Settings
from hangwatch_agent.capture.stacks import py_spy, refusal

Usage = namedtuple("Usage", "total used free")


def _interpreter(path: Path, answer: str, code: int = 0) -> str:
    """A stand-in of an interpreter, which says something and ends."""
    path.write_text(f"#!/bin/sh\n{answer}\nexit {code}\n")
    path.chmod(0o700)
    return str(path)


def test_torch_is_asked_in_its_own_process(tmp_path: Path) -> None:
    python = _interpreter(tmp_path / "python", """echo noise; echo 'hangwatch ["2.13.0", true, true, false, true]'""")
    assert list(checks.torch({}, python)) == [
        Check("torch", "ok", "torch 2.13.0, no CUDA device"),
        Check("flight recorder", "ok", "on"),
    ]


def test_torch_that_is_missing_broken_or_slow(tmp_path: Path) -> None:
    (check,) = checks.torch({}, _interpreter(tmp_path / "a", "echo 'No module named torch' >&2", 1))
    assert (check.state, check.found) == ("missing", "No module named torch")
    (check,) = checks.torch({}, _interpreter(tmp_path / "b", "", 139))
    assert check.found == "the interpreter ended with code 139"
    (check,) = checks.torch({}, _interpreter(tmp_path / "c", "exec sleep 5"), timeout_s=0.2)
    assert check.found == "importing torch took longer than 0 s"
    bare = """echo 'hangwatch ["2.1", false, false, false, false]'"""
    (check,) = checks.torch({}, _interpreter(tmp_path / "d", bare))
    assert (check.state, check.found) == ("missing", "torch 2.1 without torch.distributed")


@pytest.mark.parametrize("variable", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_a_flight_recorder_that_is_off_or_absent(variable: str) -> None:
    check = checks.flight_recorder(True, {variable: "0"})
    assert (check.state, check.found) == ("degraded", f"switched off by {variable}=0")
    assert checks.flight_recorder(True, {variable: "100"}).state == "ok"
    assert checks.flight_recorder(False, {}).state == "degraded"
    silent = checks.flight_recorder(True, {}, records=False)
    assert (silent.state, silent.advice) == ("degraded", "a newer torch does (2.13)")


def test_stacks_are_tried_for_real() -> None:
    found = list(checks.stacks())
    assert [check.name for check in found] == ["stacks of ranks", "stacks of others", "tracing rights"]
    assert {check.state for check in found} <= {"ok", "degraded"}


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "find_py_spy", lambda: None)
    (check,) = checks.stacks()
    assert (check.state, check.advice) == ("degraded", "pip install py-spy")


def test_a_refusal_says_what_is_lost_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "dump", lambda pid: py_spy.Dump(pid, failure="no right to trace it"))
    ranks, others, _ = checks.stacks()
    assert (ranks.state, ranks.found, ranks.advice) == (
        "degraded",
        "ranks: faulthandler has to do",
        "no right to trace it",
    )
    assert others.found == "loader workers and launchers have no stacks in reports"


@pytest.mark.parametrize(
    ("scope", "capable", "state", "advice"),
    [
        (0, False, "ok", ""),
        (1, True, "ok", ""),
        (1, False, "degraded", "ptrace_scope=0"),
        (2, False, "degraded", "--cap-add SYS_PTRACE"),
        (3, True, "degraded", "until the machine restarts"),
    ],
)
def test_the_kernels_rule(scope: int, capable: bool, state: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal, "yama_scope", lambda: scope)
    monkeypatch.setattr(refusal, "has_ptrace_capability", lambda: capable)
    check = checks.yama()
    assert check.state == state
    assert advice in check.advice
    assert f"ptrace_scope is {scope}" in check.found


def test_the_folder_for_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(run_dir=str(tmp_path / "run"))
    assert checks.run_dir(settings).state == "ok"
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100, 99, 1))
    check = checks.run_dir(settings)
    assert (check.state, check.found) == ("missing", f"{tmp_path} has 1 B free")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert checks.run_dir(settings).found == f"{tmp_path} is not writable"


def test_a_folder_for_boards_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    check = checks.run_dir(Settings(run_dir=str(tmp_path)))
    assert check.found == f"{tmp_path} belongs to another user"


def test_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(8 << 30, 0, 8 << 30))
    assert checks.shared_memory(tmp_path) == Check("shared memory", "ok", f"{tmp_path}: 8.0 GiB free of 8.0 GiB")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(64 << 20, 0, 64 << 20))
    assert "--shm-size" in checks.shared_memory(tmp_path).advice
    assert checks.shared_memory(tmp_path / "none").state == "degraded"


def test_the_report_directory(tmp_path: Path) -> None:
    check = checks.report_dir(Settings(report_dir=str(tmp_path / "a" / "b")))
    assert (check.state, list(tmp_path.iterdir())) == ("ok", [])
    (tmp_path / "file").write_text("")
    check = checks.report_dir(Settings(report_dir=str(tmp_path / "file")))
    assert check.state == "missing"
    assert "not a directory" in check.found


def test_gpus() -> None:
    gpu = GpuFacts(0, "GPU-1", "NVIDIA H200")
    assert checks.gpus(lambda: ((gpu, gpu), CaptureNote("gpu", True))) == Check("GPUs", "ok", "2: NVIDIA H200")
    assert checks.gpus(lambda: ((), CaptureNote("gpu", False, "no NVIDIA GPU or driver"))).state == "unused"
    assert checks.gpus(lambda: ((), CaptureNote("gpu", False, "driver mismatch"))).state == "degraded"
    assert checks.gpus().state in ("ok", "unused", "degraded")


class _Dashboard(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *ignored: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Dashboard) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_the_dashboard(address: str) -> None:
    assert checks.dashboard(Settings(dashboard=f"{address}/"), 60.0).found == f"{address}/ answers (200)"
    assert "answers 404 Not Found" in checks.dashboard(Settings(dashboard=f"{address}/elsewhere"), 60.0).found
    assert checks.dashboard(Settings()).state == "unused"
    assert "is no address" in checks.dashboard(Settings(dashboard="monitor:8470")).found
    refused = checks.dashboard(Settings(dashboard="http://127.0.0.1:1"))
    assert (refused.state, "Connection refused" in refused.found) == ("degraded", True)


def test_python_elsewhere() -> None:
    assert checks.python((3, 12, 1), "darwin").state == "degraded"
    assert checks.python((3, 12, 1), "linux") == Check("python", "ok", "Python 3.12.1 on linux")


@pytest.mark.parametrize(
    ("states", "code", "said"),
    [
        (["ok", "unused"], 0, "hangwatch has all that it can use here"),
        (["ok", "degraded"], 0, "hangwatch works here, with less to show; see ! above (1)"),
        (["degraded", "missing"], 1, "1 thing that hangwatch cannot do without"),
    ],
)
def test_the_table_and_the_exit_code(
    states: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Check(f"check {state}", state, "found [red]this[/red]\x1b", "do that") for state in states]
    monkeypatch.setattr(checks, "all_of_them", lambda settings: iter(found))
    assert main(["doctor"]) == code
    out = capsys.readouterr().out
    assert said in out
    assert "found [red]this[/red]\\x1b" in out
    assert out.count("do that") == len(states)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("none.py:make_loader", "there is no file none.py"),
        ("train.py", "train.py is not FILE.py:NAME or MODULE:NAME, as in train.py:make_loader"),
        (":make_loader", ":make_loader is not FILE.py:NAME or MODULE:NAME, as in train.py:make_loader"),
    ],
)
def test_a_loader_that_cannot_be_there_needs_no_walk(
    target: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)  # a walk would need it
    assert main(["doctor", "loader", target]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"hangwatch: {said}\n")


def test_a_loader_that_was_not_made_has_no_table_of_walks(capsys: pytest.CaptureFixture[str]) -> None:
    walks = (Walk(0, 0, "rank", problem="train.py has no make_loader"),)
    doctor_loader.show(LoaderReport("train.py:make_loader", tuple(all_checks(walks)), walks, 6.0))
    out = capsys.readouterr().out
    assert "train.py has no make_loader" in out
    assert "batches/s" not in out


def test_all_of_it_on_this_machine() -> None:
    done = subprocess.run([sys.executable, "-m", "hangwatch", "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    for name in ("torch", "py-spy", "boards", "shared memory", "reports", "GPUs", "dashboard"):
        assert name in done.stdout
