"""What is a fact of all ranks together, and where nothing can be on its way to any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.case import Case
from hangwatch.judge.patience import held
from hangwatch.judge.waiting_together import nothing_is_on_its_way
from hangwatch.model import Collective, Collectives, GroupHead, RankEvidence, ThreadStack
from tests.unit.job import C10D, IN_BACKWARD, IN_BARRIER, IN_CODE, frames, rank, snapshot

IN_BROADCAST = frames((C10D, 2900, "broadcast"))
IN_MONITORED_BARRIER = frames((C10D, 5450, "monitored_barrier"))
WAITING = rank(1, IN_BACKWARD, issued=11, completed=10)

# ------------------------------------------------------------------------------------------ mispaired calls


def in_broadcast(number: int, root: int, row: tuple[int, ...] | None = None, **parts: Any) -> RankEvidence:
    """`row`: the members of the group, which is the default one where they are not given."""
    group = "0" if row is None else str(row[0] + 1)
    call = Collective(group, 11, "broadcast", ((4,),), ("float32",), peer=root, frames=IN_BROADCAST, at=1.0)
    found = rank(number, IN_BROADCAST, issued=11, completed=10, **parts)
    if row is not None:
        heads = (GroupHead(group, row, "", "gloo", 11, 10),)
        reading = replace(found.reading, heads=heads) if found.reading is not None else None
        found = replace(found, reading=reading, collectives=Collectives(heads))
    return replace(found, collectives=replace(found.collectives, recent=(call,), open_calls=(call,)))


def test_calls_that_differ_under_one_number_are_a_fact_where_all_ranks_wait() -> None:
    says = "waits in a call that is paired with another one"
    assert held(snapshot(in_broadcast(0, 1), in_broadcast(1, 0))) == {0: says, 1: says}
    assert held(snapshot(in_broadcast(0, 1), in_broadcast(1, 1))) == {}


def test_calls_that_differ_in_each_row_of_a_grid_are_a_fact_for_all_its_ranks() -> None:
    first, second = (0, 1), (2, 3)
    ranks = [
        in_broadcast(0, 1, first),
        in_broadcast(1, 0, first),
        in_broadcast(2, 3, second),
        in_broadcast(3, 2, second),
    ]
    assert held(snapshot(*ranks)).keys() == {0, 1, 2, 3}


def test_calls_that_differ_are_no_fact_while_a_rank_moves() -> None:
    assert held(snapshot(in_broadcast(0, 1), in_broadcast(1, 0, evidence={"moved": True}))) == {}


# ------------------------------------------------------------------------------------------ all wait for each other


def test_a_root_among_ranks_that_all_wait_is_given_less_time() -> None:
    """Rank 0 waits for rank 1 in a barrier that this has not made: it is in a broadcast, as its root."""
    says = "waits for ranks all of which wait, too"
    assert held(snapshot(rank(0, IN_BARRIER, issued=12, completed=11), in_broadcast(1, 1))) == {0: says, 1: says}


@pytest.mark.parametrize("sign", ["moves", "elsewhere", "thread"])
def test_what_may_still_come_is_given_its_time(sign: str) -> None:
    """A counter moves, the other rank is on another machine, or a thread of it may communicate."""
    uploads = ThreadStack(7, "uploader", IN_CODE)
    changes: dict[str, dict[str, Any]] = {
        "moves": {"evidence": {"moved": True}},
        "elsewhere": {},
        "thread": {"threads": (uploads,)},
    }
    waits, root = rank(0, IN_BARRIER, issued=12, completed=11), in_broadcast(1, 1, **changes[sign])
    root = replace(root, host="node-b") if sign == "elsewhere" else root
    assert held(snapshot(waits, root)) == {}


@pytest.mark.parametrize("sign", ["nothing", "moves", "elsewhere", "thread", "computes", "raises", "one is not seen"])
def test_nothing_is_on_its_way_where_all_ranks_of_a_machine_wait_in_calls(sign: str) -> None:
    """monitored_barrier raises by itself, and the program may go on."""
    changes: dict[str, dict[str, Any]] = {
        "moves": {"evidence": {"moved": True}},
        "thread": {"threads": (ThreadStack(7, "uploader", IN_CODE),)},
        "computes": {"facts": {"cpu_delta_s": 0.9}},
    }
    root = in_broadcast(1, 1, **changes.get(sign, {}))
    root = replace(root, host="node-b") if sign == "elsewhere" else root
    waits = IN_MONITORED_BARRIER if sign == "raises" else IN_BARRIER
    seen = snapshot(rank(0, waits, issued=12, completed=11), root, world_size=3 if sign == "one is not seen" else 2)
    assert nothing_is_on_its_way(Case(seen)) is (sign == "nothing")


# ------------------------------------------------------------------------------------------ meetings

RAY = "/venv/lib/python3.11/site-packages/ray"
IN_REPORT = frames(
    (f"{RAY}/_private/worker.py", 1007, "get_objects"),
    (f"{RAY}/train/v2/_internal/execution/context.py", 254, "TrainContext._sync_checkpoint_dir_name_across_ranks"),
)


@pytest.mark.parametrize("sign", ["at its lock", "in its call", "runs", "moved between the samples"])
def test_a_thread_that_waits_itself_brings_nothing(sign: str) -> None:
    """GIVEN a barrier that rank 1 has not made WHEN a thread of rank 1 waits at `with lock:`, or in a collective."""
    calls = frames((C10D, 2900, "all_reduce"))
    thread = ThreadStack(7, "telemetry", calls if sign == "in its call" else IN_CODE)
    if sign in ("at its lock", "moved between the samples"):
        thread = replace(thread, entering=("comm_lock",))
    root = in_broadcast(1, 1, threads=(thread,))
    if sign == "moved between the samples":
        before = replace(thread, frames=(replace(IN_CODE[0], line=51), *IN_CODE[1:]))
        root = replace(root, earlier_stacks=(*root.earlier_stacks[:-1], before))
    seen = snapshot(rank(0, IN_BARRIER, issued=12, completed=11), root)
    assert nothing_is_on_its_way(Case(seen)) is (sign in ("at its lock", "in its call"))


def in_report() -> RankEvidence:
    return rank(0, IN_REPORT, issued=10, completed=10)


def test_a_rank_that_waits_for_all_workers_while_another_one_waits_for_it_is_a_fact() -> None:
    other = rank(1, frames((C10D, 2900, "all_reduce")), issued=11, completed=10)
    said = held(snapshot(in_report(), other, world_size=2))
    assert said == {0: "waits for all workers, others of which wait in collectives"}


@pytest.mark.parametrize(
    "others",
    [(rank(1, IN_REPORT, issued=10, completed=10),), (rank(1, IN_CODE, issued=10, completed=10),), (WAITING,), ()],
    ids=["all have come", "one may come", "its backward may compute", "one is not seen"],
)
def test_workers_that_may_come_hold_nobody_in_a_meeting(others: tuple[RankEvidence, ...]) -> None:
    assert held(snapshot(in_report(), *others, world_size=2)) == {}


def test_no_proof_rests_on_a_meeting_for_its_answer_may_be_on_the_way() -> None:
    case = Case(snapshot(in_report(), WAITING, world_size=2))
    assert (case.blocked[0].op, case.blocked[0].certain, case.blocked[0].need) == ("report", False, None)
