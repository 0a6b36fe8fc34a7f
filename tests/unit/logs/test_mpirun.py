"""What mpirun says of the end of a process, and the native stack that stands before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs.mpirun import plain_name
from hangwatch.model import Verdict
from tests.unit.logs.lines import judged
from tests.unit.logs.test_own_words import trace

CRASH = """\
[n1:04411] *** Process received signal ***
[n1:04411] Signal: Segmentation fault (11)
[n1:04411] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f]
[n1:04411] [ 1] /w/build/libsampler.so(_ZN7sampler4nextEv+0x44)[0x7e]
[n1:04411] [ 2] /usr/bin/python3.11(+0x11)[0x7d]
mpirun noticed that process rank 3 with PID 4411 on node n1 exited on signal 11 (Segmentation fault)."""
ABORT = "MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD\nwith errorcode 1."


def told(tmp_path: Path, text: str) -> Verdict:
    found = judged(tmp_path, text).judgement
    assert found is not None
    return found.verdict


def test_the_native_frame_of_a_crash_is_told(tmp_path: Path) -> None:
    found = told(tmp_path, CRASH)
    assert found.summary == "Rank 3 died by signal 11: in sampler::next of libsampler.so."
    assert found.evidence == ("mpirun saw it fail first",)


def test_a_rank_that_ends_all_others_is_the_one_that_failed(tmp_path: Path) -> None:
    found = told(tmp_path, f"{trace(None, 'ValueError: bad shape')}\n{ABORT}")
    assert [each.rank for each in found.culprits] == [5]
    assert "ValueError: bad shape" in found.summary


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("_ZN7sampler4nextEv", "sampler::next"), ("_Z4loopi", "loop"), ("_ZNK1a1bE", "a::b"), ("main", "main")],
)
def test_names_of_native_functions(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


def test_a_name_with_a_length_of_very_many_digits() -> None:
    assert "9" * 5000 not in plain_name("_Z" + "9" * 5000)
