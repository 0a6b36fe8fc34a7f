"""What mpirun says of the end of a process, and the native stack that stands before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs.mpirun import plain_name
from hangwatch.model import Verdict
from tests.unit.logs.lines import gave_up, judged
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


def non_zero(name: str, code: int, program: str = "mpirun") -> str:
    rule = "-" * 74
    return (
        f"{rule}\n{program} detected that one or more processes exited with non-zero status, thus causing\n"
        f"the job to be terminated. The first process to do so was:\n\n  Process name: {name}\n"
        f"  Exit code:    {code}\n{rule}"
    )


@pytest.mark.parametrize("name", ["[[21331,1],13]", "[prterun-gpu-n1-1234@1,13]"])
def test_the_first_process_that_ended_with_an_error(name: str, tmp_path: Path) -> None:
    found = told(tmp_path, non_zero(name, 1))
    assert [each.rank for each in found.culprits] == [13]
    assert found.summary == "Rank 13 failed with exit code 1."
    assert found.evidence == ("mpirun saw it fail first",)
    # AND an exit code of a shell tells the signal
    assert told(tmp_path, non_zero(name, 137)).summary == "Rank 13 died by signal 9."


def test_its_traceback_tells_more(tmp_path: Path) -> None:
    found = told(tmp_path, f"{trace(None, 'ValueError: bad shape')}\n{non_zero('[prterun-n1-7@1,2]', 1, 'prterun')}")
    assert [each.rank for each in found.culprits] == [2]
    assert "ValueError: bad shape" in found.summary


def test_a_process_that_its_watchdog_ended_is_no_cause(tmp_path: Path) -> None:
    found = told(tmp_path, f"{gave_up(2, 7)}\n{gave_up(3, 7)}\n{non_zero('[[7,1],2]', 134)}")
    assert 2 not in [each.rank for each in found.culprits]
    assert 2 in found.victims


def test_processes_of_another_job_or_launchers_have_numbers_that_are_no_ranks(tmp_path: Path) -> None:
    for text in (
        non_zero("[[7,2],1]", 1),
        f"W1121 10:20:30.000 4011 torch/distributed/run.py:766] {'*' * 41}\n{non_zero('[[7,1],1]', 1)}",
    ):
        found = judged(tmp_path, text).judgement
        assert found is None or not found.verdict.culprits


def test_the_words_of_open_mpi_5_for_a_rank_that_ends_all_others(tmp_path: Path) -> None:
    said = "MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD\n  Proc: [[5,1],5]\n  Errorcode: 2"
    found = told(tmp_path, said)
    assert ([each.rank for each in found.culprits], found.summary) == ([5], "Rank 5 failed with exit code 2.")


def due_to(rank: int, how: str, program: str = "prterun", *, broken: bool = False) -> str:
    rule, node = "-" * 74, "\nnode n1" if broken else " node n1"
    return (
        f"{rule}\n{program} has exited due to process rank {rank} with PID 4411 on{node} {how}. This may have\n"
        f"caused other processes in the application to be\nterminated by signals sent by {program}.\n{rule}"
    )


@pytest.mark.parametrize("broken", [True, False])
@pytest.mark.parametrize("how", ['calling\n"abort"', 'calling "abort"'])
def test_the_rank_for_which_all_others_were_ended(how: str, broken: bool, tmp_path: Path) -> None:
    found = told(tmp_path, due_to(7, how, broken=broken))
    assert [(each.rank, each.host, each.pid) for each in found.culprits] == [(7, "n1", 4411)]
    assert found.summary == "Rank 7 ended all others: it called MPI_Abort."
    # AND its exception tells why, or its exit code is known already
    raised = told(tmp_path, f"{trace(None, 'ValueError: bad shape')}\n{due_to(7, how)}")
    assert ("ValueError: bad shape" in raised.summary, [each.rank for each in raised.culprits]) == (True, [7])
    coded = told(tmp_path, f"{ABORT}\n{due_to(5, how)}")
    assert (coded.summary, coded.culprits[0].host) == ("Rank 5 failed with exit code 1.", "n1")


def test_a_process_that_left_without_finalize_called_no_abort(tmp_path: Path) -> None:
    """Programs that use no MPI are not told of so, and others may have been ended by then."""
    for how in ("exiting improperly", 'exiting without calling "finalize"', 'exiting without calling\n"finalize"'):
        for broken in (True, False):
            assert judged(tmp_path, due_to(7, how, "mpirun", broken=broken)).judgement is None
