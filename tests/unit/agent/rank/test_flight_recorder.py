"""torch's flight recorder and the board's ring, brought to one count."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hangwatch.model import Collective, Frame, GroupHead, Identity, Reading
from hangwatch_agent.board import recorded
from hangwatch_agent.board.collectives import LAST
from hangwatch_agent.rank import collectives_answer, flight_recorder, torch_handlers
from hangwatch_agent.rank.flight_recorder import Recorder
from hangwatch_agent.rank.group import Group

ME = Identity(rank=0, world_size=2, local_rank=0, host="a", pid=1, started_at=0.0, job="j")


class Pg:
    """A torch ProcessGroup, as far as we ask it."""

    group_name = "0"
    group_desc = "default_pg"
    issued: int | None = 0

    def _get_sequence_number_for_group(self) -> int:
        if self.issued is None:
            raise RuntimeError("no sequence numbers")
        return self.issued


@pytest.fixture
def pg() -> Pg:
    return Pg()


@pytest.fixture
def group(pg: Pg) -> Group:
    group = Group(0, pg, (0, 1), "gloo")
    group.records = {"gloo": 0}
    return group


class Recorded(Recorder):
    """A recorder with these entries."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        super().__init__()
        self._entries = entries

    def entries(self, backends: set[str], *, frames: bool = True) -> Any:
        return iter(self._entries)


def entry(number: int, op: str = "gloo:all_reduce", *, retired: bool = True, pg_id: int = 0) -> dict[str, Any]:
    return {
        "process_group": ("0", "default_pg"), "pg_id": pg_id, "collective_seq_id": number, "profiling_name": op,
        "input_sizes": [[4, 2]], "input_dtypes": ["Float"], "retired": retired, "time_created_ns": number * 10**9,
        "frames": [{"filename": "/site/hangwatch_agent/rank/hooks/collectives.py", "line": 1, "name": "issuing"},
                   {"filename": "train.py", "line": 7, "name": "main"}],
        "thread_id": "123", "thread_name": "python3", "is_p2p": False,
    }  # fmt: skip


def status(completed: int, enqueued: int = -1) -> dict[str, dict[str, Any]]:
    return {"gloo": {"0": {"last_completed_collective": completed, "last_enqueued_collective": enqueued}}}


def test_a_groups_count_is_without_point_to_point(pg: Pg, group: Group) -> None:
    pg.issued, group.uncounted = 20, 4
    assert group.count() == 16


def test_a_backend_without_sequence_numbers(pg: Pg, group: Group) -> None:
    pg.issued, group.issued = None, 3
    assert group.count() == 3
    assert not group.countable


def test_a_group_that_is_being_made_is_asked_again(pg: Pg, group: Group) -> None:
    pg.issued = None
    assert (group.count(), group.refused, group.countable) == (0, True, True)
    pg.issued = 7
    assert (group.count(), group.refused) == (7, False)


class Backend:
    def __init__(self, name: str, number: int) -> None:
        self.name, self._get_sequence_number_for_group = (lambda: name), (lambda: number)


@pytest.mark.parametrize(("others", "count"), [({}, 7), ({"cuda": Backend("nccl", 3)}, 0)])
def test_where_torch_asks_no_backend_the_only_one_is_asked(pg: Pg, others: dict[str, Backend], count: int) -> None:
    """As it is for "cpu:gloo" once torch.distributed.checkpoint has been imported."""
    backends = {"cpu": Backend("gloo", 7), **others}
    pg.issued = None
    vars(pg).update(name=lambda: "undefined", _device_types=list(backends), _get_backend=backends.__getitem__)
    group = Group(0, pg, (0, 1), "cpu:gloo")
    group.count()
    assert group.count() == count


def test_a_group_that_is_gone_keeps_its_count(group: Group, pg: Pg) -> None:
    pg.issued = 5
    group.count()
    del pg
    assert group.count() == 5


def test_completed_is_in_the_same_count_as_issued(group: Group) -> None:
    group.point_to_point.extend([15, 16, 17])
    group.uncounted = 3
    assert flight_recorder.completed(group, status(14)) == 14  # the point-to-point calls came after it
    assert flight_recorder.completed(group, status(18)) == 15
    assert flight_recorder.completed(group, status(-1)) is None
    assert flight_recorder.completed(group, {}) is None
    assert flight_recorder.enqueued(group, status(0, 18)) == 15


def test_nccls_status_has_the_number_of_the_last_call_of_either_kind(group: Group) -> None:
    """GIVEN a group on NCCL, whose sends and receives have numbers of their own"""
    group.records = {"nccl": 0}
    said = {"nccl": status(26, 26)["gloo"]}
    assert (flight_recorder.completed(group, said), flight_recorder.enqueued(group, said)) == (26, 26)
    # WHEN it has sent, its status tells nothing of collectives, but that something was completed
    group.sent = 1
    assert (flight_recorder.completed(group, said), flight_recorder.enqueued(group, said)) == (None, -1)
    for number in (26, 27, 3, 3):
        found = flight_recorder.latest(group, {"nccl": status(number)["gloo"]})
        group.notice(found, mixed=flight_recorder.is_mixed(group))
    assert group.messages_done == 3


def test_gloos_status_has_collectives_alone_to_count(group: Group) -> None:
    group.sent = 1
    for number in (1, 2, 3):
        group.notice(flight_recorder.latest(group, status(number)), mixed=flight_recorder.is_mixed(group))
    assert (group.latest, group.messages_done) == (3, 0)


def test_the_recorder_counts_a_monitored_barrier_twice(group: Group) -> None:
    group.barriers = [1, 2]
    assert [group.collective_number(recorded) for recorded in (1, 4, 7, 8)] == [1, 2, 3, 4]


def test_groups_that_were_gone_before_us_are_learnt_from_the_entries(group: Group) -> None:
    flight_recorder.numbers([group], Recorded(entry(1, pg_id=0), entry(1, pg_id=5)))
    assert group.records == {"gloo": 5}
    assert flight_recorder.recorded(group, Recorded(entry(8), entry(9))) == 9


def call(seq: int, op: str = "all_reduce", **facts: Any) -> Collective:
    return Collective("0", seq, op, ((8,),), ("Float",), thread_name="MainThread", at=float(seq), **facts)


def reading(*calls: Collective, completed: int = -1) -> Reading:
    return Reading(ME, 0.0, heads=(GroupHead("0", (0, 1), completed=completed),), calls=calls)


def test_recorder_and_board_are_joined(group: Group) -> None:
    on_board = reading(call(1, "reduce_scatter_tensor", step=4, peer=1), call(1, "send", peer=1))
    found = collectives_answer.gather(on_board, Recorded(entry(1), entry(2, retired=False)), [group], {"gloo"})
    assert found.source == "flight-recorder"
    assert [(each.op, each.step, each.retired) for each in found.recent] == [
        ("reduce_scatter_tensor", 4, True),
        ("send", None, None),
        ("all_reduce", None, False),
    ]
    assert found.recent[0].frames == (Frame("train.py", 7, "main"),)
    assert found.recent[0].sizes == ((4, 2),)


@pytest.mark.parametrize(("open_at", "on_board", "completed"), [(4, 2, 3), (2, 3, 3), (None, 2, 4), (1, -1, -1)])
def test_the_entries_tell_what_the_status_has_passed_over(
    group: Group, open_at: int | None, on_board: int, completed: int
) -> None:
    """gloo's threads complete two calls at a time, and the status has the one that came last, not the higher one."""
    entries = [entry(number, retired=open_at is None or number < open_at) for number in range(1, 5)]
    board = reading(completed=on_board)
    board = replace(board, heads=(replace(board.heads[0], issued=4),))
    (head,) = collectives_answer.gather(board, Recorded(*entries), [group], {"gloo"}).heads
    assert (head.issued, head.completed) == (4, completed)


def test_a_call_that_the_rank_is_still_in_is_not_completed(group: Group) -> None:
    """NCCL's recorder calls it completed before it is launched: an event that is not recorded yet counts as done."""
    entries = [{**entry(number, "nccl:all_reduce"), "state": "completed"} for number in (1, 2)]
    inside = replace(call(2), retired=None)
    board = replace(reading(), heads=(GroupHead("0", (0, 1), backend="nccl", issued=2),), open_calls=(inside,))
    found = collectives_answer.gather(board, Recorded(*entries), [group], {"nccl"})
    assert [each.retired for each in found.recent] == [True, False]
    assert (found.heads[0].issued, found.heads[0].completed) == (2, 1)


@pytest.mark.parametrize(("backend", "completed"), [("nccl", 3), ("gloo", 4)])
def test_where_nccl_sends_the_entries_alone_tell_what_is_completed(group: Group, backend: str, completed: int) -> None:
    entries = [entry(number, f"{backend}:all_reduce", retired=number < 4) for number in range(1, 5)]
    entries = [{**each, "state": "completed" if each["retired"] else "scheduled"} for each in entries]
    head = GroupHead("0", (0, 1), backend=backend, issued=4, completed=4, sent=9)
    board = replace(reading(), heads=(head,))
    (found,) = collectives_answer.gather(board, Recorded(*entries), [group], {backend}).heads
    assert (found.issued, found.completed) == (4, completed)


@pytest.mark.parametrize(("thread", "outer"), [("pt_autograd_0", ["backward"]), ("python", [])])
def test_what_autograds_threads_issue_has_the_path_to_backward(group: Group, thread: str, outer: list[str]) -> None:
    """What Python code calls there, a hook, has the frames that the board has of it."""
    entries = [{**entry(number, "nccl:all_reduce"), "frames": [], "thread_name": thread} for number in (1, 2)]
    hook, user = Frame("fsdp.py", 9, "post_backward"), Frame("t.py", 5, "backward")
    board = replace(reading(call(2, frames=(hook,))), backward=(user,))
    found = collectives_answer.gather(board, Recorded(*entries), [group], {"nccl"}).recent
    assert [[frame.function for frame in each.frames] for each in found] == [outer, ["post_backward"]]


def test_with_the_recorder_off_the_board_has_to_do(group: Group) -> None:
    found = collectives_answer.gather(reading(call(1), call(2), completed=1), Recorded(), [group], {"gloo"})
    assert found.source == "board"
    assert [each.retired for each in found.recent] == [True, False]


def test_the_last_calls_of_each_group_and_all_that_are_not_completed(group: Group) -> None:
    entries = [entry(number, retired=number != 3) for number in range(1, 300)]
    found = collectives_answer.gather(reading(), Recorded(*entries), [group], {"gloo"})
    assert len(found.recent) == LAST + 1
    assert [each.seq for each in found.recent][:2] == [3, 300 - LAST]


def test_names_of_ops_are_those_of_torch_distributed(group: Group) -> None:
    assert recorded.collective(entry(1, "nccl:_all_gather_base"), {"0": group}).op == "all_gather_into_tensor"


def test_frames_are_not_asked_for_where_torch_would_import_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def dump(includeStackTraces: bool) -> bytes:  # noqa: N803 - torch's name
        asked.append(includeStackTraces)
        return pickle.dumps({"entries": []})

    own = Recorder()
    own._trace = {"gloo": dump}
    for torch in (SimpleNamespace(), SimpleNamespace(_inductor=None)):
        monkeypatch.setitem(sys.modules, "torch", torch)
        list(own.entries({"gloo"}))
        list(own.entries({"gloo"}, frames=False))
    assert asked == [False, False, True, False]


# ---------------------------------------------------------------- without harm


def test_entries_of_nccls_recorder_are_asked_for_without_the_interpreter_lock_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The function that holds it while it waits for the recorder's mutex is never called; a status takes no mutex."""
    asked = []

    def ask(name: str, parameters: dict[str, str]) -> str:
        asked.append((name, parameters))
        return '{"entries": [{"collective_seq_id": 1}]}'

    def status(*, includeCollectives: bool = True) -> bytes:  # noqa: N803 - torch's name
        assert not includeCollectives
        return b'{"pg_status": {"0": {}}}'

    module = SimpleNamespace(
        _get_handler_names=lambda: ["dump_nccl_trace_json"], _WorkerServer=object, _dump_nccl_trace_json=status
    )
    monkeypatch.setitem(sys.modules, flight_recorder.C10D, module)
    monkeypatch.setattr(torch_handlers.Handlers, "ask", lambda self, name, parameters: ask(name, parameters))
    found = Recorder(tmp_path)
    assert found.status({"nccl"}) == {"nccl": {"0": {}}}
    assert asked == []
    assert list(found.entries({"nccl"})) == [{"collective_seq_id": 1}]
    assert asked == [("dump_nccl_trace_json", {})]
    module._get_handler_names = list  # an older torch
    assert list(Recorder(tmp_path).entries({"nccl"})) == []
    assert list(Recorder().entries({"nccl"})) == []


ASK_TORCH = """
import sys
from pathlib import Path
from torch._C import _distributed_c10d as c10d
from hangwatch_agent.rank.torch_handlers import Handlers

def answer(request, response):
    response.set_content("asked for " + request.get_param("includecollectives"), "text/plain")
    response.set_status(200)

c10d._register_handler("looks_at_its_parameters", answer)
handlers = Handlers(c10d, Path(sys.argv[1]))
ask = handlers.named("looks_at_its_parameters")
print(ask({"includecollectives": "true"}), ask({"includecollectives": "false"}))
print("pg_status" in handlers.named("fr_trace_json")({}), handlers.named("no_such_handler"))
sys.stdout.flush()
import os; os._exit(0)  # the handler would be destroyed after the interpreter
"""


def test_torchs_handlers_answer_us_and_get_their_parameters(tmp_path: Path) -> None:
    """In a process of its own, for torch's server never goes. The path of its folder is longer than an address."""
    pytest.importorskip("torch")
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ASK_TORCH, str(folder)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines() == ["asked for true asked for false", "True None"], done.stderr


def test_a_call_bears_the_name_that_python_has_for_its_thread(group: Group) -> None:
    """torch's recorder gives the system's name, and autograd's threads issue for the thread that called backward."""
    by_name = {"0": group}
    ours = entry(1) | {"thread_id": str(threading.get_ident()), "thread_name": "pt_main_thread"}
    autograds = entry(2) | {"thread_name": "pt_autograd_0"}
    calls = [recorded.collective(each, by_name) for each in (ours, autograds, entry(3))]
    assert [(call.thread_name, call.thread_id) for call in calls] == [
        (threading.current_thread().name, threading.get_ident()),
        ("pt_autograd_0", None),
        ("python3", 123),
    ]
