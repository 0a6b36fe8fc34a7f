"""Every host waits for its device: what the devices' queues show of why none of them goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.processes.standstill import STANDS_S, all_hosts_wait, circle, standstill
from hangwatch.judge import Case, diagnose
from hangwatch.model import (
    Certainty,
    Collective,
    Collectives,
    Frame,
    GroupHead,
    Job,
    ProcessFacts,
    RankEvidence,
    Snapshot,
    Status,
    ThreadStack,
)
from hangwatch.ranks.device_waits import COPIES_S
from tests.unit.simulator import SCRIPT

SPINS = Frame("libcudart.so.12", 0, "cudaStreamSynchronize", native=True)
ITEM = (Frame(SCRIPT, 16, "main"), Frame(SCRIPT, 99, "<module>"))
BARRIER = (Frame("/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 5356, "barrier"), *ITEM)


def call(number: int, at: float, group: str = "0", **parts: object) -> Collective:
    known = Collective(group, number, "all_reduce", ((64,),), ("Float",), retired=False, at=at, frames=ITEM)
    return replace(known, **parts)  # type: ignore[arg-type]


def host(
    rank: int, *calls: Collective, still_s: float = 9.0, native: bool = True, python: tuple[Frame, ...] = ITEM
) -> RankEvidence:
    """A rank whose host spins, with the calls in its queues; all that came before is complete."""
    done = tuple(
        replace(each, seq=each.seq - 1, retired=True, at=0.5, started=each.started) for each in calls if each.seq > 1
    )
    heads = tuple(
        GroupHead(name, (0, 1), backend="nccl", issued=each.seq, completed=each.seq - 1)
        for name, each in {each.group: each for each in calls}.items()
    )
    stacks = (ThreadStack(1, "MainThread", ((SPINS,) if native else ()) + python, main=True),)
    process = ProcessFacts(100 + rank, "R", cpu_delta_s=1.0, io_delta_bytes=0)
    recent = Collectives(heads, (*done, *calls), source="flight-recorder")
    return RankEvidence(
        rank, pid=100 + rank, stacks=stacks, earlier_stacks=stacks, process=process, collectives=recent,
        still_s=still_s, patience_s=120.0,
    )  # fmt: skip


def job(*ranks: RankEvidence) -> Snapshot:
    return Snapshot(Job("j", "j", len(ranks)), 100.0, tuple(ranks), sampled_twice=True)


def barrier(number: int, at: float) -> Collective:
    return call(number, at, op="barrier", sizes=(), dtypes=(), frames=BARRIER)


def test_calls_that_do_not_fit_are_reported_at_once_and_never_as_proven() -> None:
    snapshot = job(host(0, call(5, 1.0)), host(1, barrier(5, 1.0), python=BARRIER))
    judgement = diagnose(snapshot)
    assert (judgement.status, judgement.verdict.hang) == (Status.HUNG, Certainty.LIKELY)
    assert "the calls paired as number 5 of group 0 do not fit" in judgement.verdict.argument[0]
    assert judgement.verdict.argument[1] == "every host waits for its device, and no counter has moved for 9.0 s"


@pytest.mark.parametrize(
    "other",
    [
        host(1, barrier(5, 1.0), python=BARRIER, still_s=STANDS_S / 2),
        host(1, barrier(5, 1.0), native=False),
        replace(host(1, barrier(5, 1.0), python=BARRIER), moved=True),
        replace(host(1, barrier(5, 1.0), python=BARRIER), earlier_stacks=()),
    ],
    ids=["not for long", "a host that may compute", "one that moves", "a stack that was seen once"],
)
def test_as_long_as_one_host_may_go_on_nothing_stands(other: RankEvidence) -> None:
    snapshot = job(host(0, call(5, 1.0)), other)
    if other.stacks[0].frames[0] is not SPINS:  # its Python frames are those of rank 0, where a native frame spins
        other = replace(other, stacks=(ThreadStack(1, "MainThread", ITEM[1:], main=True),), earlier_stacks=())
        snapshot = job(snapshot.ranks[0], other)
    assert not all_hosts_wait(Case(snapshot))
    assert diagnose(snapshot).status is Status.WAITING


def test_calls_that_fit_are_given_patience() -> None:
    """A long kernel in front of them looks just like that."""
    snapshot = job(host(0, call(5, 1.0)), host(1, call(5, 1.0)))
    assert all_hosts_wait(Case(snapshot))
    assert standstill(Case(snapshot)) == ""
    judgement = diagnose(snapshot)
    assert (judgement.status, judgement.verdict.cause) == (Status.WAITING, "undetermined")
    assert "completed on none" in judgement.verdict.summary


@pytest.mark.parametrize(("still_s", "status"), [(130.0, Status.WAITING), (700.0, Status.HUNG)])
def test_devices_that_no_rank_waits_for_may_compute_for_long(still_s: float, status: Status) -> None:
    """Replayed graphs and long kernels move no counter, and no collective is outstanding: nothing shows a hang."""
    nothing = Collectives(source="flight-recorder")
    assert diagnose(job(*(replace(host(n, still_s=still_s), collectives=nothing) for n in (0, 1)))).status is status


def test_groups_that_were_enqueued_in_opposite_orders_hold_each_other() -> None:
    mine = (call(2, 1.0, "1"), call(1, 2.0, "2"))
    theirs = (call(1, 1.0, "2"), call(2, 2.0, "1"))
    judgement = diagnose(job(host(0, *mine), host(1, *theirs)))
    assert (judgement.status, judgement.verdict.cause) == (Status.HUNG, "group-order-cycle")
    assert [who.rank for who in judgement.verdict.culprits] == [0, 1]
    assert "rank 0 waits for rank 1 in all_reduce 2 of group 1" in judgement.verdict.summary


def test_a_circle_may_be_where_a_call_that_is_no_longer_recorded_was_left_out() -> None:
    mine = (call(5, 1.0, "1"), call(3, 2.0, "2"))
    theirs = (call(3, 1.0, "2"), call(5, 2.0, "1"))
    judgement = diagnose(job(host(0, *mine), host(1, *theirs)))
    assert (judgement.status, judgement.verdict.cause) == (Status.HUNG, "undetermined")
    assert not judgement.verdict.culprits


def test_one_order_is_no_circle() -> None:
    both = (call(5, 1.0, "1"), call(3, 2.0, "2"))
    snapshot = job(host(0, *both), host(1, *both))
    assert circle(Case(snapshot)) == ()
    assert diagnose(snapshot).verdict.cause != "group-order-cycle"


def _held(*before: Collective) -> RankEvidence:
    """Rank 1, whose device has started its earlier calls and not the last one."""
    found = host(1, call(5, 1.0))
    earlier = tuple(replace(each, started=True) if each.retired else each for each in found.collectives.recent)
    return replace(found, collectives=replace(found.collectives, recent=(*before, *earlier)))


def test_a_device_that_may_wait_for_a_message_is_not_called_stalled() -> None:
    message = Collective("0", 0, "recv", ((64,),), ("Float",), peer=0, at=0.7, frames=ITEM)
    judgement = diagnose(job(host(0, call(5, 1.0, started=True)), _held(message)))
    assert judgement.verdict.cause == "undetermined"
    assert not judgement.verdict.culprits


def test_a_device_that_has_not_started_what_the_others_have_is_named() -> None:
    judgement = diagnose(job(host(0, call(5, 1.0, started=True)), _held()))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("device-stall", Certainty.LIKELY)
    assert [who.rank for who in judgement.verdict.culprits] == [1]
    assert judgement.status is Status.WAITING  # a kernel may take long: patience decides


def test_what_all_have_started_is_not_held_by_one_device() -> None:
    ranks = [host(number, call(5, 1.0, started=True)) for number in range(2)]
    assert [who.rank for who in diagnose(job(*ranks)).verdict.culprits] == []


LAUNCHES = Frame("libcuda.so.1", 0, "cuLaunchKernel", native=True)


def _with_native(found: RankEvidence, native: Frame) -> RankEvidence:
    stacks = (ThreadStack(1, "MainThread", (native, *found.stacks[0].frames), main=True),)
    return replace(found, stacks=stacks, earlier_stacks=stacks)


def test_a_launch_behind_a_call_that_is_not_done_is_a_wait() -> None:
    """A kernel that is loaded at its first launch waits for what the device does, and that for the other ranks."""
    mean = (Frame(SCRIPT, 84, "main"), ITEM[-1])
    odd = _with_native(host(1, call(5, 1.0, op="all_gather", frames=mean), native=False, python=mean), LAUNCHES)
    soon, later = (
        job(host(0, call(5, 1.0)), replace(odd, still_s=still_s)) for still_s in (COPIES_S - 1, COPIES_S + 1)
    )
    assert all_hosts_wait(Case(soon))
    assert [diagnose(each).status for each in (soon, later)] == [Status.WAITING, Status.HUNG]


def test_a_launch_with_nothing_in_front_of_it_is_work() -> None:
    busy = host(1, call(5, 1.0), native=False, python=(Frame(SCRIPT, 84, "main"), ITEM[-1]))
    (head,) = busy.collectives.heads
    idle = replace(busy, collectives=replace(busy.collectives, heads=(replace(head, completed=5),)))
    case = Case(job(host(0, call(6, 1.0)), _with_native(idle, LAUNCHES)))
    assert case.works(case.ranks[1])
    assert not all_hosts_wait(case)


@pytest.mark.parametrize(
    ("function", "certain"),
    [
        ("cuStreamSynchronize", True),
        ("cuMemcpyDtoHAsync_v2", False),
        ("cuMemcpyHtoDAsync_v2", False),
        ("cuLaunchKernel", False),
    ],
)
def test_a_launch_or_a_copy_proves_no_wait(function: str, certain: bool) -> None:
    """It may take a moment only, or the time of many copies, and the host goes on behind it."""
    python = (Frame(SCRIPT, 84, "main"), ITEM[-1])
    rank = host(0, call(5, 1.0, "1", frames=python), native=False, python=python)
    case = Case(job(_with_native(rank, replace(LAUNCHES, function=function)), host(1, call(4, 1.0, "1"))))
    assert case.blocked[0].certain is certain


def test_a_copy_with_nothing_in_front_of_it_is_work_where_another_rank_waits_for_its_device() -> None:
    """GIVEN both on one line WHEN nothing of rank 1 is outstanding THEN it computes, or copies."""
    busy = host(1, call(5, 1.0), native=False)
    (head,) = busy.collectives.heads
    idle = replace(busy, collectives=replace(busy.collectives, heads=(replace(head, completed=5),)))
    case = Case(job(host(0, call(6, 1.0), native=False), _with_native(idle, LAUNCHES)))
    assert case.works(case.ranks[1])
