"""What all ranks enqueued and no device completes: calls of two groups at once, and what the records do not hold."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import Verdict
from tests.dump_programs import TURN
from tests.dump_verdicts import blamed, verdict, verdict_on
from tests.dump_world import WORLD, Call, JobDumps, Sync, every

EMA = "ema"
GROUPS: dict[str, tuple[int, ...]] = {EMA: (0, 1)}
FIRST = Call("all_reduce", 44, 4096, asynchronous=True)
SECOND = Call("broadcast", 29, 2048, EMA, asynchronous=True)


def _open(folder: Path, states: dict[int, tuple[str, str]], *, timed: bool = True) -> Verdict:
    """Both hosts enqueue the two calls in one order; `states` are how far the device of each rank is with them."""
    job = JobDumps(every(2, [*TURN * 3, FIRST, SECOND]), GROUPS, timed=timed, broken={WORLD: 13, EMA: 1})
    job.write(folder)
    for rank, (first, second) in states.items():
        path = folder / f"nccl_trace_rank_{rank}"
        document: dict[str, Any] = job.document(rank)
        for entry, state in zip(document["entries"][-2:], (first, second), strict=True):
            entry["state"] = state
            entry["time_discovered_started_ns"] = entry["time_created_ns"] + 9 if state == "started" else None
        path.write_bytes(pickle.dumps(document, protocol=2))
        os.utime(path, ns=(job.written_ns(), job.written_ns()))
    return verdict_on(folder)


def test_devices_that_run_the_calls_of_two_groups_in_different_orders(tmp_path: Path) -> None:
    """The hosts' order is the same, so that no order of calls shows it."""
    found = _open(tmp_path, {0: ("started", "scheduled"), 1: ("scheduled", "started")})
    assert (found.cause, found.certainty, found.culprits, found.victims) == ("group-order-cycle", "likely", (), (0, 1))
    assert "The device of rank 0 has started all_reduce 13 of the default group (train.py:44) and not" in found.summary
    assert "broadcast 1 of group 1 (ema) (train.py:29)" in found.summary


def test_one_device_that_has_started_neither_is_its_own(tmp_path: Path) -> None:
    found = _open(tmp_path, {0: ("started", "started"), 1: ("scheduled", "scheduled")})
    assert (found.cause, found.certainty, blamed(found)) == ("device-stall", "likely", [1])


def test_a_device_that_runs_the_other_call_alone_is_not_said_to_have_a_kernel_of_its_own(tmp_path: Path) -> None:
    found = _open(tmp_path, {0: ("started", "started"), 1: ("scheduled", "started")})
    assert found.certainty == "undetermined"
    assert any(each.cause == "group-order-cycle" for each in found.alternatives)


@pytest.mark.parametrize("timed", [True, False])
def test_a_second_call_that_is_open_is_told(timed: bool, tmp_path: Path) -> None:
    state = "started" if timed else "scheduled"
    found = _open(tmp_path, dict.fromkeys((0, 1), (state, state)), timed=timed)
    assert (found.cause, found.certainty) == ("interconnect-stall", "undetermined")
    assert any(each.cause == "group-order-cycle" for each in found.alternatives)
    assert any(said.startswith("open at the same time: broadcast 1 of group 1 (ema)") for said in found.evidence)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("op", ["broadcast", "reduce", "all_to_all"])
def test_what_the_records_do_not_hold_is_no_proof_that_the_calls_fit(op: str, timed: bool, tmp_path: Path) -> None:
    """Ranks that name different roots, or exchange other numbers of elements with each peer, look the same."""
    job = JobDumps(every(4, [*TURN * 3, Call(op, 44), Sync()]), timed=timed, broken={WORLD: 13})
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, found.culprits) == ("interconnect-stall", "undetermined", ())
    lacking = "split sizes" if op == "all_to_all" else "which rank each of them names as its root"
    said = [each.why_not for each in found.alternatives if each.cause == "collective-mismatch"]
    assert len(said) == 1
    assert lacking in said[0]
    assert (lacking in found.summary) == timed


def test_an_all_reduce_holds_all_that_ranks_must_share(tmp_path: Path) -> None:
    job = JobDumps(every(4, [*TURN * 3, Call("all_reduce", 44), Sync()]), broken={WORLD: 13})
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty) == ("interconnect-stall", "likely")
    assert all(each.cause != "collective-mismatch" for each in found.alternatives)
