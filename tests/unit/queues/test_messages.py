"""Sends and receives that one end left out, told by the habit of both ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import Certainty, Verdict
from hangwatch.queues import assess
from hangwatch.recorder import QueueReader
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import FILE, START, Call, JobDumps, Step, Sync

STATES, MASK = 4096, 64  # elements of the two tensors that each stage hands on


def _stage(rank: int, without: tuple[str, int] = ("", 0), wrong: int = STATES) -> list[Step]:
    """A stage of three, that in its fifth turn leaves a message out, or sends `wrong` elements of the first tensor."""
    found: list[Step] = []
    for turn in range(7):
        states = wrong if turn == 4 else STATES
        messages = [
            *([Call("recv", 52, STATES, peer=rank - 1), Call("recv", 58, MASK, peer=rank - 1)] if rank else []),
            *([Call("send", 44, states, peer=rank + 1), Call("send", 49, MASK, peer=rank + 1)] if rank < 2 else []),
        ]
        found += [each for each in messages if turn != 4 or (each.name, each.line) != without]
        found.append(Sync())
    return found


@pytest.mark.parametrize(
    ("rank", "op", "line", "said"),
    [(2, "recv", 58, "the receive from rank 1"), (1, "send", 49, "the send to rank 2")],
)
def test_the_end_that_left_its_own_order_is_named_alone(
    rank: int, op: str, line: int, said: str, tmp_path: Path
) -> None:
    programs = {each: _stage(each, (op, line) if each == rank else ("", 0)) for each in range(3)}
    found = verdict(JobDumps(programs), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("point-to-point-deadlock", Certainty.LIKELY, [rank])
    assert f"Rank {rank} left out {said} (train.py:{line})" in found.summary


def test_a_tensor_of_another_size_is_no_message_left_out(tmp_path: Path) -> None:
    programs = {each: _stage(each, wrong=STATES // 2 if each == 1 else STATES) for each in range(3)}
    found = verdict(JobDumps(programs), tmp_path)
    assert (found.cause, blamed(found)) == ("collective-mismatch", [1])


def _halo(rank: int, turns: int, lacking: int | None = None) -> dict[str, Any]:
    """The record of one of three neighbours; in the batch `lacking` rank 2 does not receive from rank 1.

    Rank 1's first message of that turn meets the receive of the next one, so that only its last send stays open.
    """
    entries: list[dict[str, Any]] = []
    for turn in range(1, turns + 1):
        own = {0: ["send 0->1", "recv 0<-1"], 2: ["send 2->1", "recv 2<-1"]}.get(rank)
        names = own or ["send 1->0", "recv 1<-0", "send 1->2", "recv 1<-2"]
        if rank == 2 and turn == lacking:
            names = names[:1]
        done = "scheduled" if (rank, turn) == (1, turns) and lacking else "completed"
        entries += [_operation(len(entries) + at, name, turn, done) for at, name in enumerate([*names, "coalesced"])]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return {"version": "2.10", "pg_config": config, "entries": entries}


def _operation(place: int, name: str, number: int, state: str) -> dict[str, Any]:
    return {
        "record_id": place,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 0,
        "p2p_seq_id": number,
        "profiling_name": f"nccl:{name}",
        "state": state,
        "is_p2p": True,
        "time_created_ns": START + place,
        "frames": [{"filename": FILE, "line": 25, "name": "exchange"}],
    }


def _verdict(records: dict[int, dict[str, Any]]) -> Verdict:
    reader = QueueReader()
    for rank, record in records.items():
        reader.add(rank, record)
    found = assess(reader.queues()).judgement
    assert found is not None
    return found.verdict


def test_what_one_batch_lacked_is_told_where_only_the_last_message_has_no_counterpart() -> None:
    found = _verdict({rank: _halo(rank, 7, lacking=4) for rank in range(3)})
    assert (found.cause, found.certainty, blamed(found)) == ("point-to-point-deadlock", Certainty.LIKELY, [2])
    assert "Rank 2 left the receive from rank 1 out of its batch of sends and receives 4" in found.summary
    assert "with 1 operation instead of the usual 2" in found.summary


def test_a_rank_that_made_a_batch_fewer_left_nothing_out_of_one() -> None:
    records = {rank: _halo(rank, 6 if rank == 2 else 7) for rank in range(3)}
    for entry in records[1]["entries"][-5:]:
        entry["state"] = "scheduled"
    found = _verdict(records)
    assert (found.cause, blamed(found)) == ("undetermined", [2])


def test_the_sends_and_receives_of_a_pair_are_counted_where_one_end_went_on_to_a_collective(tmp_path: Path) -> None:
    last: list[Step] = [Call("barrier", 50, 1), Sync()]
    programs: dict[int, list[Step]] = {
        0: [*[Call("send", 20, 64, peer=1)] * 10, *last],
        1: [*[Call("recv", 30, 64, peer=0)] * 9, *last],
    }
    programs[0].insert(10, Sync())
    found = verdict(JobDumps(programs), tmp_path)
    assert "rank 0 has made 10 sends to rank 1, and rank 1 9 receives from it" in found.evidence
    assert found.fix == "give each send of rank 0 its receive on rank 1, before the next collective"


def _two(rank: int, turns: int, *, swapped: bool = False) -> list[Step]:
    """Rank 0 sends two tensors in each turn; rank 1 may take those of the last one in the other order."""
    found: list[Step] = []
    for turn in range(turns):
        last, name = turn == turns - 1, "recv" if rank else "send"
        one, other = Call(name, 6, 10, peer=1 - rank), Call(name, 7, 20, peer=1 - rank)
        found += [other, one] if swapped and last else [one, other]
        found += [Call("all_reduce", 15, 1)]
    return found


@pytest.mark.parametrize("turns", [3, 4])
def test_two_messages_in_the_other_order_are_swapped_and_none_is_left_out(turns: int, tmp_path: Path) -> None:
    found = verdict(JobDumps({0: _two(0, turns), 1: _two(1, turns, swapped=True)}), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("point-to-point-deadlock", Certainty.LIKELY, [1])
    assert found.summary.startswith("Rank 1 made two messages in another order than before: its receive from rank 0")
    assert "left out" not in found.summary


class Retyped(JobDumps):
    """The first message of the last turn does not complete, since rank 0 gives it another type than before."""

    def document(self, rank: int) -> dict[str, Any]:
        found = super().document(rank)
        last = max(at for at, entry in enumerate(found["entries"]) if entry["frames"][1]["line"] == 6)
        entries = found["entries"][: last + 1]
        entries[last] |= {"state": "started", "time_discovered_completed_ns": None, "retired": False}
        entries[last] |= {"input_dtypes": ["Half"], "output_dtypes": ["Half"]} if rank == 0 else {}
        return found | {"entries": entries, "pg_status": {}}


def test_one_earlier_message_tells_whose_type_is_new(tmp_path: Path) -> None:
    found = verdict(Retyped({rank: _two(rank, 2) for rank in range(2)}), tmp_path)
    assert (found.certainty, blamed(found)) == (Certainty.LIKELY, [0])
    assert "differ in type, float16 against bfloat16" in found.summary
