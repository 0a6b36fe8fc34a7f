"""Dumps of torch's flight recorder, also spoiled and hostile ones."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model import Frame, GroupHead, Snapshot
from hangwatch.queues import Assessment, Queues, assess, snapshot
from hangwatch.queues.model import COMPLETED, RETIRED, SCHEDULED, STARTED
from hangwatch.ranks import flight_recorder
from hangwatch.recorder import DumpError, QueueReader, documents, is_pickle, rank_of
from tests.dumps import Job, Op, alike, loop

# As torch 2.13 writes it for gloo; times and thread ids shortened.
ENTRY: dict[str, Any] = {
    "frames": [
        {"name": "all_reduce", "filename": "/venv/torch/distributed/distributed_c10d.py", "line": 3245},
        {"name": "step", "filename": "/home/mia/train.py", "line": 16},
    ],
    "record_id": 0,
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "thread_name": "python",
    "thread_id": "140270727940992",
    "collective_seq_id": 1,
    "p2p_seq_id": 0,
    "op_id": 1,
    "profiling_name": "gloo:all_reduce",
    "time_created_ns": 1_000_000_000_000,
    "input_sizes": [[10, 2]],
    "input_dtypes": ["Float"],
    "output_sizes": [[10, 2]],
    "output_dtypes": ["Float"],
    "state": "scheduled",
    "retired": True,
    "timeout_ms": 1800000,
    "is_p2p": False,
}


def _entry(**changes: Any) -> dict[str, Any]:
    return deepcopy(ENTRY) | changes


def _dump(*entries: dict[str, Any], ranks: str = "[0, 1, 2]", status: dict[str, Any] | None = None) -> dict[str, Any]:
    config = {"": {"name": "", "desc": "", "ranks": ranks}}
    return {"version": "2.10", "pg_config": config, "pg_status": status or {}, "entries": list(entries)}


def _read(dumps: dict[int, dict[str, Any]]) -> Queues:
    reader = QueueReader()
    for rank, document in dumps.items():
        reader.add(rank, document)
    return reader.queues()


def _only(content: bytes) -> dict[str, Any]:
    ((_, document),) = documents(content)
    return document


def test_a_gloo_dump() -> None:
    # GIVEN a rank that has completed one all_reduce and waits in the second
    waiting = _entry(collective_seq_id=2, retired=False, time_created_ns=1_002_000_000_000)
    status = {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 1}
    # WHEN the dump is read
    queues = _read({1: _dump(_entry(), waiting, status={"0": status})})
    # THEN its queue is that of the rank, and "scheduled" is no state of a device
    (group,) = queues.communicators
    lane = group.lanes[1]
    assert (group.name, group.members, group.title) == ("0", (0, 1, 2), "the default group")
    assert (lane.enqueued, lane.completed, list(lane.states)) == (2, 1, [COMPLETED | RETIRED, SCHEDULED])
    call = queues.call(lane, 0)
    assert (call.op, call.backend, call.inputs, call.outputs) == ("all_reduce", "gloo", ((10, 2),), ((10, 2),))
    assert call.where == Frame("/home/mia/train.py", 16, "step")
    assert queues.calls == [call]  # calls that are alike are kept once
    # AND the evidence is as of the last moment that the dump itself tells of
    found = snapshot(queues)
    assert (found.taken_at, found.job.world_size) == (1002.0, 3)
    assert found.ranks[1].collectives.heads == (GroupHead("0", (0, 1, 2), "default_pg", "gloo", 2, 1),)
    assert [(call.seq, call.retired) for call in found.ranks[1].collectives.recent] == [(1, True), (2, False)]


def test_an_nccl_dump_with_point_to_point() -> None:
    shared = {"pg_id": 1, "process_group": ("8", "pipeline"), "retired": False}
    send = _entry(**shared, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=3)
    receive = send | {"profiling_name": "nccl:recv 0<-1", "p2p_seq_id": 4}
    done = _entry(**shared, profiling_name="nccl:_all_gather_base", state="completed")
    dump = _dump(done, send, receive)
    dump["pg_config"] = {
        "0": {"desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "8": {"desc": "pipeline", "ranks": [1, 3]},
    }
    del dump["pg_status"]
    queues = _read({1: dump})
    found = snapshot(queues)
    assert found.job.world_size == 4
    assert (
        GroupHead("8", (1, 3), "pipeline", "nccl", issued=1, completed=1, sent=1, received=1)
        in found.ranks[1].collectives.heads
    )
    said = [(call.op, call.seq, call.peer, call.retired) for call in found.ranks[1].collectives.recent]
    assert said == [("_all_gather_base", 1, None, True), ("send", 3, 3, False), ("recv", 4, 3, False)]


@pytest.mark.parametrize(
    ("backend", "state", "retired", "expected"),
    [
        ("gloo", "scheduled", False, SCHEDULED),
        ("gloo", "scheduled", True, COMPLETED | RETIRED),
        ("nccl", "scheduled", True, SCHEDULED | RETIRED),  # given up, not completed
        ("nccl", "started", False, STARTED),
        ("nccl", "completed", True, COMPLETED | RETIRED),
        ("xccl", "completed", False, COMPLETED),
    ],
)
def test_what_a_state_means(backend: str, state: str, retired: bool, expected: int) -> None:
    queues = _read({0: _dump(_entry(profiling_name=f"{backend}:all_reduce", state=state, retired=retired))})
    assert list(queues.communicators[0].lanes[0].states) == [expected]
    assert queues.timed == (state == "started")


def test_members_of_a_sub_group_that_gloo_does_not_name_are_the_ranks_that_used_it() -> None:
    own = _entry(pg_id=1, process_group=("1", "undefined"))
    queues = _read({0: _dump(_entry(), own, ranks="[]"), 2: _dump(_entry(), own, ranks="[]")})
    assert {group.name: group.members for group in queues.communicators} == {"0": (0, 1, 2), "1": (0, 2)}


def test_groups_of_one_name_and_other_members_are_told_apart() -> None:
    config = {rank: {"1": {"desc": "sub_pg", "ranks": f"[{rank}]"}} for rank in (0, 1)}
    own = _entry(pg_id=1, process_group=("1", "sub_pg"))
    queues = _read({rank: {"entries": [own], "pg_config": config[rank]} for rank in (0, 1)})
    assert [group.members for group in queues.communicators] == [(0,), (1,)]


def test_entries_of_few_keys_with_counts_as_text() -> None:
    small = {
        "profiling_name": "nccl:all_reduce",
        "process_group": ("0", "default"),
        "collective_seq_id": "7",
        "state": "completed",
    }
    queues = _read({0: {"entries": [small]}})
    assert queues.communicators[0].lanes[0].enqueued == 7


@pytest.mark.parametrize("document", [{"pg_config": {}}, {"entries": []}, {"pg_status": {}, "version": "2.10"}])
def test_a_rank_that_has_issued_nothing(document: dict[str, Any]) -> None:
    found = assess(_read({0: _only(json.dumps(document).encode())}))
    assert found.judgement is None


def test_a_rank_that_has_issued_nothing_is_awaited() -> None:
    # GIVEN a rank whose dump has no entries, while the other waits in the first collective
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    waits = _entry(profiling_name="nccl:all_reduce", retired=False)
    found = assess(_read({0: {"entries": [waits], "pg_config": config}, 1: {"pg_config": config}}))
    assert found.judgement is not None
    assert [each.rank for each in found.judgement.verdict.culprits] == [1]


def test_the_status_tells_what_the_ring_has_lost() -> None:
    # GIVEN a ring that no longer holds any call of the small group, and its status
    status = {"last_enqueued_collective": 40, "last_started_collective": -1, "last_completed_collective": 40}
    dump = _dump(_entry(record_id=900, state="completed"), status={"1": status})
    dump["pg_config"]["tp"] = {"desc": "tp", "ranks": "[0, 1]"}
    other = _entry(pg_id=1, process_group=("tp", "tp"), collective_seq_id=41, profiling_name="nccl:all_reduce")
    waits = _dump(other | {"retired": False})
    waits["pg_config"] = dump["pg_config"]
    lanes = next(group for group in _read({0: dump, 1: waits}).communicators if group.name == "tp").lanes
    assert (lanes[0].known, lanes[0].enqueued, lanes[0].completed) == (True, 40, 40)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("comm_lib_trace_rank_7", 7),
        ("fr_3.json", 3),
        ("job7-rank2.json", 2),
        ("rank_2_of_64.json", 2),
        ("dump.json", None),
    ],
)
def test_the_rank_is_in_the_name(name: str, rank: int | None) -> None:
    assert rank_of(Path("/tmp/run5") / name) == rank


def test_json_and_pickles_are_read() -> None:
    dump = _dump(_entry())
    assert _only(json.dumps(dump).encode())["entries"][0]["op_id"] == 1
    assert _only(pickle.dumps(dump)) == dump
    assert is_pickle(pickle.dumps(dump))


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/hangwatch-was-here",)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_can_call_nothing(protocol: int) -> None:
    with pytest.raises(DumpError, match=r"wants posix.system"):
        _only(pickle.dumps({"entries": [_Bomb()]}, protocol))
    assert not Path("/tmp/hangwatch-was-here").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"a": 3}', b"[" * 100_000, b"\x80", b"\x80\x05K."])
def test_what_is_no_dump_is_refused(content: bytes) -> None:
    with pytest.raises(DumpError):
        _only(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(sorted(ENTRY)), JSON)
def test_entries_of_another_shape_are_an_error_and_no_crash(name: str, value: Any) -> None:
    with contextlib.suppress(DumpError):
        assert isinstance(assess(_read({0: _dump(_entry(**{name: value})), 1: _dump(_entry())})), Assessment)


@given(st.dictionaries(st.sampled_from(["pg_config", "pg_status", "entries", "nccl_comm_state", "version"]), JSON))
def test_documents_of_another_shape_are_an_error_and_no_crash(changes: dict[str, Any]) -> None:
    with contextlib.suppress(DumpError):
        queues = _read({0: _dump(_entry()) | changes, 1: _dump(_entry())})
        assert isinstance(assess(queues), Assessment)
        assert isinstance(snapshot(queues), Snapshot)


def test_a_hostile_list_of_ranks_is_refused() -> None:
    with pytest.raises(DumpError, match="more ranks than any job has"):
        _read({0: {"pg_config": {"0": {"ranks": "[0-99999999999]"}}}})


@pytest.mark.parametrize(
    ("calls", "through"),
    [((), -1), (((1, True), (2, True)), 2), (((1, True), (2, False), (3, True)), 1), (((1, False), (2, True)), -1)],
)
def test_all_is_completed_up_to_the_first_that_is_not(calls: tuple[tuple[int, bool], ...], through: int) -> None:
    assert flight_recorder.completed_through(calls) == through


def _coalesced(record: int, number: int, *sizes: int, end: str = "coalesced") -> list[dict[str, Any]]:
    made = {"collective_seq_id": number, "state": "completed", "retired": True, "process_group": ("", "default_pg")}
    parts = [
        _entry(**made, profiling_name="nccl:all_reduce", input_sizes=[[size]], output_sizes=[[size]]) for size in sizes
    ]
    parts.append(_entry(**made, profiling_name=f"nccl:{end}", input_sizes=[], output_sizes=[]))
    return [{**part, "record_id": record + place} for place, part in enumerate(parts)]


@pytest.mark.parametrize("end", ["coalesced", "ALLGATHER_coalesced"])
def test_what_the_ring_has_left_of_coalesced_calls_does_not_count_as_all_of_them(end: str) -> None:
    """The end of a coalesced call has a name of its own where the user made one call of uneven parts."""
    whole = [entry for record in (0, 3, 6) for entry in _coalesced(record, record // 3 + 1, 8, 16, end=end)]
    for lost in range(1, 6):
        dumps = {0: _dump(*whole), 1: _dump(*whole[lost:]), 2: _dump(*whole)}
        queues = _read(dumps)
        assert assess(queues).judgement is None, lost
        (group,) = queues.communicators
        assert group.lanes[1].numbers[0] == (2 if lost < 3 else 3)  # of the oldest it is not known


ENDED_NS = 1_700_000_000_000_005_000


def _completed(started_ns: int) -> dict[str, Any]:
    """A call that has ended at `ENDED_NS`, and of which that start is told; 0 for none."""
    times = {"time_discovered_started_ns": started_ns or None, "time_discovered_completed_ns": ENDED_NS}
    return _entry(profiling_name="nccl:all_reduce", state="completed", **times)


def _next(**changes: Any) -> dict[str, Any]:
    given = {"state": "scheduled", "retired": False} | changes
    return _entry(profiling_name="nccl:all_reduce", collective_seq_id=2, record_id=1, **given)


def test_a_start_that_is_told_with_the_end_is_no_start_event() -> None:
    """What retires a call without events fills in both times with one."""
    alike = _read({rank: _dump(_completed(ENDED_NS), _next()) for rank in range(3)})
    assert not alike.timed
    starts = (ENDED_NS - 1, ENDED_NS, 0)
    apart = _read({rank: _dump(_completed(start), _next()) for rank, start in enumerate(starts)})
    assert apart.timed
    assert apart.untimed == {1, 2}


def test_starts_that_a_timed_rank_tells_with_the_end_too_are_start_events_of_the_others() -> None:
    """One look discovers both where a call is short: only what has begun and not ended shows that a rank has events."""
    done, begun = _completed(ENDED_NS), _next(state="started", time_discovered_started_ns=ENDED_NS + 1)
    queues = _read({0: _dump(done, begun), 1: _dump(done, _next()), 2: _dump(done, begun)})
    assert queues.timed
    assert queues.untimed == set()


def test_a_call_is_read_once_also_where_each_entry_has_frames_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's pickles share the objects of frames, which JSON and other writers do not."""
    reads: list[str] = []
    read = QueueReader._call

    def counted(self: QueueReader, entry: Mapping[str, Any]) -> int:
        reads.append(entry["profiling_name"])
        return read(self, entry)

    monkeypatch.setattr(QueueReader, "_call", counted)
    reader = QueueReader()
    for rank, document in Job(3, alike(3, loop(20, Op("all_reduce", 20, 64)))).documents().items():
        reader.add(rank, json.loads(json.dumps(document)))  # each entry with objects of its own
    assert [len(lane) for _, lane in reader.queues().lanes()] == [20] * 3
    assert len(reads) == 1
