"""A process group that was destroyed and made again: the ring holds calls of both under one name."""

from __future__ import annotations

from typing import Any

from hangwatch.recorder.reading import QueueReader

from .test_recorder import _entry


def _call(record: int, made: int, number: int, state: str = "completed") -> dict[str, Any]:
    return _entry(
        record_id=record,
        pg_id=made,
        collective_seq_id=number,
        time_created_ns=1_000_000_000 * (record + 1),
        state=state,
    )


def _reader(last: dict[int, list[int]]) -> QueueReader:
    """Ranks with four calls of the former group, and those of the new one, of which the third is open."""
    reader = QueueReader()
    for rank, numbers in last.items():
        former = [_call(number - 1, 0, number) for number in range(1, 5)]
        new = [_call(3 + number, 1, number, "scheduled" if number > 2 else "completed") for number in numbers]
        reader.add(rank, {"version": "2.10", "entries": former + new, "pg_config": {"0": {"ranks": [0, 1, 2]}}})
    return reader


def test_calls_of_the_former_group_are_left_out() -> None:
    queues = _reader({0: [1, 2, 3], 1: [1, 2, 3], 2: [1, 2]}).queues()
    (group,) = queues.communicators
    assert {rank: list(lane.numbers) for rank, lane in group.lanes.items()} == {0: [1, 2, 3], 1: [1, 2, 3], 2: [1, 2]}
    assert [lane.enqueued for lane in group.lanes.values()] == [3, 3, 2]
    assert not any(lane.lost for lane in group.lanes.values())


def test_a_rank_without_a_call_of_the_new_group_is_at_its_beginning() -> None:
    queues = _reader({0: [1], 1: [1], 2: []}).queues()
    (group,) = queues.communicators
    assert len(group.lanes[2]) == 0
    assert list(group.lanes[0].numbers) == [1]


def test_two_groups_of_one_name_whose_numbers_go_on_are_left_as_they_are() -> None:
    reader = QueueReader()
    reader.add(0, {"entries": [_call(0, 0, 1), _call(1, 1, 2), _call(2, 0, 3)], "pg_config": {"0": {"ranks": [0]}}})
    (group,) = reader.queues().communicators
    assert list(group.lanes[0].numbers) == [1, 2, 3]
