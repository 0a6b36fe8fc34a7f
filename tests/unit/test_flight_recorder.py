"""Dumps of torch's flight recorder, also spoiled and hostile ones."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch import flight_recorder
from hangwatch.flight_recorder import DumpError, evidence, load, rank_of
from hangwatch.records import Collective, Frame, GroupHead

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


def test_a_gloo_dump() -> None:
    # GIVEN a rank that has completed one all_reduce and waits in the second
    waiting = _entry(collective_seq_id=2, retired=False, time_created_ns=1_002_000_000_000)
    status = {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 1}
    # WHEN the dump is read, ten seconds later
    (rank,) = evidence({1: _dump(_entry(), waiting, status={"0": status})}, 1012.0)
    # THEN its groups and calls are those of the rank
    assert rank.rank == 1
    assert rank.still_s == 10.0
    assert rank.collectives.source == "flight-recorder"
    assert rank.collectives.heads == (GroupHead("0", (0, 1, 2), "default_pg", "gloo", 2, 1),)
    first, second = rank.collectives.recent
    assert first == Collective(
        group="0",
        seq=1,
        op="all_reduce",
        sizes=((10, 2),),
        dtypes=("Float",),
        retired=True,
        thread_name="python",
        frames=(
            Frame("/venv/torch/distributed/distributed_c10d.py", 3245, "all_reduce"),
            Frame("/home/mia/train.py", 16, "step"),
        ),
        at=1000.0,
    )
    assert (second.seq, second.retired) == (2, False)


def test_an_nccl_dump_with_point_to_point() -> None:
    group = ("8", "pipeline")
    send = _entry(
        pg_id=1, process_group=group, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=3, retired=False
    )
    receive = send | {"profiling_name": "nccl:recv 0<-1", "p2p_seq_id": 4}
    done = _entry(
        pg_id=1, process_group=group, profiling_name="nccl:_all_gather_base", state="completed", retired=False
    )
    dump = _dump(done, send, receive)
    dump["pg_config"] = {
        "0": {"desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "8": {"desc": "pipeline", "ranks": [1, 3]},
    }
    del dump["pg_status"]
    (rank,) = evidence({1: dump}, 1000.0)
    (head,) = rank.collectives.heads
    assert head == GroupHead("8", (1, 3), "pipeline", "nccl", issued=1, completed=1, sent=1, received=1)
    said = [(call.op, call.seq, call.peer, call.retired) for call in rank.collectives.recent]
    assert said == [("_all_gather_base", 1, None, True), ("send", 3, 3, False), ("recv", 4, 3, False)]
    assert flight_recorder.world_size([dump]) == 4


def test_members_of_a_sub_group_that_gloo_does_not_name_are_those_who_used_it() -> None:
    own = _entry(pg_id=1, process_group=("1", "undefined"))
    ranks = evidence({0: _dump(_entry(), own, ranks="[]"), 2: _dump(_entry(), own, ranks="[]")}, 1000.0)
    assert [head.members for head in ranks[0].collectives.heads] == [(0, 1, 2), (0, 2)]
    assert ranks[0].collectives.heads == ranks[1].collectives.heads


def test_a_rank_that_has_issued_nothing() -> None:
    (rank,) = evidence({0: _dump()}, 5.0)
    assert rank.collectives.heads == ()
    assert rank.still_s == 0.0


@pytest.mark.parametrize(
    ("name", "rank"),
    [("nccl_trace_rank_12", 12), ("fr_3.json", 3), ("job7-rank2.json", 2), ("dump.json", None)],
)
def test_the_rank_is_the_last_number_of_the_name(name: str, rank: int | None) -> None:
    assert rank_of(Path("/tmp/run5") / name) == rank


def test_json_and_trusted_pickles_are_read() -> None:
    dump = _dump(_entry())
    assert load(json.dumps(dump).encode())["entries"][0]["op_id"] == 1
    assert load(pickle.dumps(dump), trust_pickle=True) == dump


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/hangwatch-was-here",)


def test_a_pickle_can_call_nothing() -> None:
    with pytest.raises(DumpError, match="it is a pickle, which is not read from strangers"):
        load(pickle.dumps(_dump()))
    with pytest.raises(DumpError, match=r"wants posix\.system"):
        load(pickle.dumps(_Bomb()), trust_pickle=True)
    assert not Path("/tmp/hangwatch-was-here").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"entries": 3}', b"[" * 100_000, b"\x80", b"\x80\x05K."]
)
def test_what_is_no_dump_is_refused(content: bytes) -> None:
    with pytest.raises(DumpError):
        load(content, trust_pickle=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(sorted(ENTRY)), JSON)
def test_entries_of_another_shape_are_an_error_and_no_crash(name: str, value: Any) -> None:
    with contextlib.suppress(DumpError):
        evidence({0: _dump(_entry(**{name: value}))}, 1.0)


@given(st.dictionaries(st.sampled_from(["pg_config", "pg_status", "entries"]), JSON))
def test_documents_of_another_shape_are_an_error_and_no_crash(changes: dict[str, Any]) -> None:
    document = _dump(_entry()) | changes
    if isinstance(document["entries"], list):
        with contextlib.suppress(DumpError):
            evidence({0: document}, 1.0)


@pytest.mark.parametrize(
    ("calls", "through"),
    [((), -1), (((1, True), (2, True)), 2), (((1, True), (2, False), (3, True)), 1), (((1, False), (2, True)), -1)],
)
def test_all_is_completed_up_to_the_first_that_is_not(calls: tuple[tuple[int, bool], ...], through: int) -> None:
    assert flight_recorder.completed_through(calls) == through
