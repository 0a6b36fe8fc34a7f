"""A program sees faulthandler as it would without hangwatch. In processes of its own: pytest has enabled it here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = """
import faulthandler, os, signal, sys
from pathlib import Path
from hangwatch_agent.rank.fault_traces import FaultTraces
traces = FaultTraces(Path(sys.argv[1]))
before = faulthandler.enable, faulthandler.disable, faulthandler.is_enabled
if sys.argv[2] == "watched":
    traces.install()
"""
USES = {
    "asks": "print(faulthandler.is_enabled())",
    "disables": "print(faulthandler.disable(), faulthandler.is_enabled())",
    "enables": "faulthandler.enable(); print([faulthandler.is_enabled(), *(faulthandler.disable() for _ in 'ab')])",
    "enables if need be": "faulthandler.is_enabled() or faulthandler.enable()\nos.kill(os.getpid(), signal.SIGSEGV)",
}


def play(folder: Path, use: str, manner: str, *options: str) -> tuple[int, str, str]:
    command = [sys.executable, *options, "-c", INSTALL + use, str(folder), manner]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, re.sub("0x[0-9a-f]+", "", done.stderr)  # the thread's address


@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_program_that_uses_faulthandler_itself(tmp_path: Path, use: str, options: tuple[str, ...]) -> None:
    assert play(tmp_path, use, "watched", *options) == play(tmp_path, use, "plain", *options)


def test_a_crash_of_a_program_that_does_not_is_traced_beside_the_board(tmp_path: Path) -> None:
    code, _, said = play(tmp_path, "faulthandler.disable()\nos.kill(os.getpid(), signal.SIGSEGV)", "watched")
    assert (code, said) == (-11, "")
    (trace,) = tmp_path.glob("crash-*.txt")
    assert "Segmentation fault" in trace.read_text()


def test_the_very_functions_come_back(tmp_path: Path) -> None:
    use = "traces.remove(); print((faulthandler.enable, faulthandler.disable, faulthandler.is_enabled) == before)"
    assert play(tmp_path, use + "; print(faulthandler.is_enabled())", "watched")[1] == "True\nFalse\n"


OWN_FILES = """
os.closerange(3, 100)
mine = [open(os.path.join(sys.argv[1], "mine-" + number), "wb", buffering=0) for number in "0123"]
traces.{done}()
for file in mine:
    file.write(b"mine")
if {crashes}:
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.parametrize(
    ("done", "crashes"), [("write", False), ("look", True), ("remove", False)], ids=["asked", "crashes", "removed"]
)
def test_a_program_that_closes_all_descriptors_gets_nothing_into_its_own_files(
    tmp_path: Path, done: str, crashes: bool
) -> None:
    code, _, said = play(tmp_path, OWN_FILES.format(done=done, crashes=crashes), "watched")
    assert (code, said) == (-11 if crashes else 0, "")
    assert [file.read_bytes() for file in sorted(tmp_path.glob("mine-*"))] == [b"mine"] * 4
