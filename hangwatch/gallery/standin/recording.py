"""What torch's NCCL flight recorder would say, where torch says it: a function and a request handler of one name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from .communicator import Call, Communicator
from .pairs import Pair

# c10's names.
DTYPES = {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "uint8": "Byte"}


def timed() -> bool:
    """Start events are recorded only where the user asks for them."""
    return os.environ.get("TORCH_NCCL_ENABLE_TIMING") == "1"


def answer(communicators: Iterable[Communicator], request: Any, response: Any) -> None:
    """The handler `dump_nccl_trace_json`. Parameters: includecollectives, "false" for the status alone."""
    text = dump(communicators, entries=request.get_param("includecollectives") != "false")
    response.set_content(text, "application/json")
    response.set_status(200)


def dump(communicators: Iterable[Communicator], *, entries: bool) -> str:
    found = list(communicators)
    document: dict[str, Any] = {
        "version": "2.10",
        "pg_status": {str(each.number): _status(each, found) for each in found if not isinstance(each, Pair)},
    }
    if entries:
        calls = [(each, call) for each in found for call in list(each.entries)]
        calls.sort(key=lambda entry: entry[1].created_ns)
        document["entries"] = [_entry(number, each, call) for number, (each, call) in enumerate(calls)]
    return json.dumps(document)


def _status(group: Communicator, all_of_them: Iterable[Communicator]) -> dict[str, int]:
    """The numbers of the last calls of a group. Those of its pairs count among them, as with torch."""
    own = [each for each in all_of_them if each is group or (isinstance(each, Pair) and each.group is group)]
    calls = [call for each in own for call in list(each.entries)]
    return {
        "last_enqueued_collective": _last((call.created_ns, call.number) for call in calls),
        "last_started_collective": _last((call.started_ns, call.number) for call in calls) if timed() else -1,
        "last_completed_collective": _last((call.completed_ns, call.number) for call in calls),
    }


def _last(times: Iterable[tuple[int | None, int]]) -> int:
    """The number with the latest time; -1 where none has one."""
    return max(((at, number) for at, number in times if at is not None), default=(0, -1))[1]


def _entry(number: int, communicator: Communicator, call: Call) -> dict[str, Any]:
    done = call.completed_ns is not None
    begun = timed() and call.started_ns is not None
    return {
        "record_id": number,
        "pg_id": (communicator.group if isinstance(communicator, Pair) else communicator).number,
        "process_group": [communicator.name, _description(communicator)],
        "collective_seq_id": 0 if call.peers else call.number,
        "p2p_seq_id": call.number if call.peers else 0,
        "op_id": call.number,
        "profiling_name": f"nccl:{call.op}{_ends(call)}",
        "time_created_ns": call.created_ns,
        "input_sizes": [list(each.sizes) for each in call.inputs],
        "input_dtypes": [DTYPES.get(each.dtype, each.dtype) for each in call.inputs],
        "output_sizes": [list(each.sizes) for each in call.outputs],
        "output_dtypes": [DTYPES.get(each.dtype, each.dtype) for each in call.outputs],
        "state": "completed" if done else "started" if begun else "scheduled",
        "time_discovered_started_ns": call.started_ns if begun else None,
        "time_discovered_completed_ns": call.completed_ns,
        "retired": done,
        "timeout_ms": int(communicator.timeout_s * 1000),
        "is_p2p": call.peers is not None,
        "thread_id": str(call.thread),
        "thread_name": call.thread_name,
    }


def _description(communicator: Communicator) -> str:
    return communicator.group.description if isinstance(communicator, Pair) else communicator.description


def _ends(call: Call) -> str:
    """The direction, as torch writes it: send 0->1, and recv 1<-0."""
    if call.peers is None:
        return ""
    source, target = call.peers
    return f" {source}->{target}" if call.op == "send" else f" {target}<-{source}"
