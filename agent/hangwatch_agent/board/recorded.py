"""The calls of torch's flight recorder as records, joined with what only the board knows."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hangwatch.model import Collective, Collectives, Frame, GroupHead, Reading
from hangwatch.ranks.flight_recorder import AUTOGRAD, by_autograd, completed_through
from hangwatch.stacks.frames import ENGINE
from hangwatch_agent.board.collectives import NOT_RECORDED, from_board, last_calls

if TYPE_CHECKING:
    from hangwatch_agent.rank.group import Group


OPS = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_to_all_single": "all_to_all",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
}


NOT_USERS = ("hangwatch_agent",)


def collective(entry: dict[str, Any], by_name: dict[str, Group]) -> Collective:
    """An entry of the flight recorder as a record, without what only the board knows (step, peer, tag)."""
    name = str(entry["process_group"][0])
    group = by_name.get(name)
    number = int(entry["collective_seq_id"])
    op = str(entry.get("profiling_name", "")).rpartition(":")[2]
    frames = [
        Frame(str(frame["filename"]), int(frame["line"]), str(frame["name"]))
        for frame in entry.get("frames") or ()
        if not any(ours in str(frame["filename"]) for ours in NOT_USERS)
    ]
    thread_id, thread_name = _thread(entry)
    return Collective(
        group=name,
        seq=group.collective_number(number) if group else number,
        op=OPS.get(op, op),
        sizes=tuple(tuple(int(n) for n in size) for size in entry.get("input_sizes") or ()),
        dtypes=tuple(dict.fromkeys(str(dtype) for dtype in entry.get("input_dtypes") or ())),
        retired=_completed(entry),
        thread_id=thread_id,
        thread_name=thread_name,
        frames=tuple(frames),
        at=entry["time_created_ns"] / 1e9,
        output_sizes=tuple(tuple(int(n) for n in size) for size in entry.get("output_sizes") or ()),
        started=True if entry.get("state") == "started" or entry.get("time_discovered_started_ns") else None,
    )


def _completed(entry: dict[str, Any]) -> bool | None:
    """Whether a call is over. NCCL's entries tell it by the events on the device: one that its watchdog gave up is
    retired too. gloo's have no such events, and are retired when they are over.
    """
    if entry.get("state") == "completed":
        return True
    if str(entry.get("profiling_name", "")).startswith("nccl:") and "state" in entry:
        return False
    return bool(entry["retired"]) if "retired" in entry else None


def _thread(entry: dict[str, Any]) -> tuple[int | None, str]:
    """The thread that issued a call, under the name that Python has for it: the recorder has the system's ("python").

    Autograd's own threads issue for a thread that waits in backward meanwhile, and which that is is not recorded: no
    identity then, for it would look like a second one that communicates, and the name alone.
    """
    text, name = str(entry.get("thread_id") or ""), str(entry.get("thread_name") or "")
    if name.startswith(AUTOGRAD):
        return None, name
    ident = int(text) if text.isdigit() else None
    known = next((each.name for each in threading.enumerate() if ident is not None and each.ident == ident), None)
    return ident, known or name


def is_counted(entry: Mapping[str, Any]) -> bool:
    """NCCL records sends and receives too, under the number of the collective before them; the board knows them all."""
    return not entry.get("is_p2p")


def calls_of(entries: Iterable[dict[str, Any]], by_name: dict[str, Group], reading: Reading) -> list[Collective]:
    """The entries as records. Autograd's own threads issue for the thread that called backward: its path leads there.

    What Python code issues there, such as FSDP's hooks, has frames of its own on the board, and they alone are known of
    a rank that does not answer: so they stay as they are.
    """
    on_board, found = {(call.group, call.seq) for call in reading.calls}, []
    for entry in filter(is_counted, entries):
        call = collective(entry, by_name)
        if by_autograd(call) and not call.frames and (call.group, call.seq) not in on_board:
            call = replace(call, frames=reading.backward)
        found.append(call)
    return found


def from_dump(reading: Reading, entries: Iterable[dict[str, Any]]) -> Collectives:
    """What a dump of the rank's recorder has, with what only the board knows.

    The board of a rank that does not answer may be behind its recorder. Raises KeyError, TypeError or ValueError where
    the entries are none.
    """
    recorded = calls_of(entries, {}, reading)
    last: dict[str, int] = {}
    for call in recorded:
        last[call.group] = max(last.get(call.group, -1), call.seq)
    heads = tuple(replace(head, issued=max(head.issued, last.get(head.name, -1))) for head in reading.heads)
    return joined(replace(reading, heads=heads), recorded)


def joined(reading: Reading, recorded: Sequence[Collective]) -> Collectives:
    """The calls of a recorder, oldest first, with what the board adds; the board alone where there are none.

    One that the rank is still in is not over: NCCL's recorder has it before it is launched, and calls it completed,
    since an event that is not recorded yet counts as done.
    """
    if not recorded:
        return from_board(reading)
    inside = {(call.group, call.seq) for call in reading.open_calls if call.op not in NOT_RECORDED}
    recorded = [replace(each, retired=False) if (each.group, each.seq) in inside else each for each in recorded]
    on_board = {(call.group, call.seq): call for call in reading.calls if call.op not in NOT_RECORDED}
    calls = [_joined(each, on_board) for each in recorded]
    calls += [call for call in reading.calls if call.op in NOT_RECORDED]
    calls.sort(key=lambda call: call.at or 0.0)
    return Collectives(_caught_up(reading.heads, recorded), last_calls(calls), reading.open_calls, "flight-recorder")


def _caught_up(heads: Iterable[GroupHead], recorded: Iterable[Collective]) -> tuple[GroupHead, ...]:
    """The recorder's status, from which the heads on the board are made, may be one behind its entries.

    Where NCCL has sent messages in the group, too, it does not tell how many collectives are completed.
    """
    calls: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for call in recorded:
        if call.op not in NOT_RECORDED:
            calls[call.group].append((call.seq, call.retired is not False))
    through = {name: completed_through(own) for name, own in calls.items()}
    return tuple(
        replace(head, completed=max(_by_status(head, through), min(through.get(head.name, -1), head.issued)))
        for head in heads
    )


def _by_status(head: GroupHead, through: Mapping[str, int]) -> int:
    messages = head.sent or head.received
    return -1 if messages and head.name in through and head.uses_nccl else head.completed


def _joined(recorded: Collective, on_board: dict[tuple[str, int], Collective]) -> Collective:
    """The recorder knows frames and completion; the board the user's name of the op, the other end, and the step."""
    seen = on_board.get((recorded.group, recorded.seq))
    if seen is None:
        return recorded
    in_backward = any(frame.function == ENGINE for frame in seen.frames)  # the board alone leads to the user's line
    return replace(
        recorded,
        op=seen.op,
        peer=seen.peer,
        thread_id=seen.thread_id,
        thread_name=seen.thread_name,
        frames=seen.frames if in_backward or not recorded.frames else recorded.frames,
        step=seen.step,
    )
