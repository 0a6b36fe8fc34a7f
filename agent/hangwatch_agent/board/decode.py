"""From the words and the JSON of a board to records. Pure; nothing that is no record gets through."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hangwatch.model import (
    Collective,
    Frame,
    GroupHead,
    GroupMade,
    Identity,
    LoaderFacts,
    PeerCount,
    Phase,
    Progress,
    StepEntry,
    StepTimes,
)
from hangwatch.wire import codec, members
from hangwatch_agent.board import layout as b

T = TypeVar("T")
Line = Callable[[int], Any]
CallPath = Callable[[int], tuple[Frame, ...]]

MOST_PID = 1 << 22  # PID_MAX_LIMIT of the kernel
WORD = 1 << 63
LATEST = 1e11  # seconds since 1970: some thousand years

# What a spoiled or hostile blob may raise on its way to a record.
SPOILED = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError)


@dataclass(frozen=True)
class Slot:
    """A group slot: `head` has no counts; it is this group's since ledger entry `since`, `alive` until destroyed."""

    index: int
    since: int
    alive: bool
    head: GroupHead


def record(kind: type[T], data: Any) -> T:
    """A record from a blob; fields of a newer writer are passed over. Raises WireError."""
    return codec.decode(kind, data, lenient=True)


def seconds(nanoseconds: int) -> float:
    """A duration."""
    return nanoseconds / 1e9 if 0 < nanoseconds < 1 << 62 else 0.0


def moment(nanoseconds: int, anchor_ns: int) -> float:
    """A time of the board's clock in seconds since 1970; 0.0 for none."""
    return seconds(nanoseconds + anchor_ns) if nanoseconds > 0 else 0.0


def identity(data: Any) -> Identity:
    """Whose board it is, within what a system can hold: what follows asks the kernel for the pid, and counts ranks.

    Raises one of SPOILED.
    """
    found = record(Identity, data)
    for name, number, most in (
        ("pid", found.pid, MOST_PID),
        ("rank", found.rank, members.MOST_MEMBERS - 1),
        ("local rank", found.local_rank, members.MOST_MEMBERS - 1),
        ("world size", found.world_size, members.MOST_MEMBERS),
    ):
        if number is not None and not 0 <= number <= most:
            raise ValueError(f"no {name}: {number}"[:60])
    if not found.pid > 0 or not 0 <= found.started_at < LATEST:
        raise ValueError("no process")
    return found


def sane(value: Any) -> Any:
    """The JSON value as it is. Raises ValueError for numbers that no machine word holds, and for what is no number."""
    if isinstance(value, dict):
        for each in value.values():
            sane(each)
    elif isinstance(value, list):
        for each in value:
            sane(each)
    elif isinstance(value, int | float) and not -WORD <= value < WORD:  # NaN is not within any bounds either
        raise ValueError(f"no number of a board: {value!r:.40}")
    return value


def known(word: int) -> int | None:
    return None if word == b.NONE else word


def known_step(word: int) -> int | None:
    """The step of which a board has the number + 1; None for 0."""
    return word - 1 if word > 0 else None


def phase(word: int) -> Phase:
    return Phase(b.PHASES[word]) if 0 <= word < len(b.PHASES) else Phase.START


def progress(words: array[int], newest: StepEntry | None, anchor_ns: int) -> Progress:
    """The counters; epoch, batch and step are those of the newest ledger entry."""
    return Progress(
        epoch=newest.epoch if newest else None,
        batch=newest.batch if newest else None,
        step=newest.step if newest else -1,
        optimizer_steps=words[b.W_OPTIMIZER_STEPS],
        backward_step=known_step(words[b.W_BACKWARD_STEP]),
        accumulated_step=known_step(words[b.W_ACCUMULATED_STEP]),
        forwards=words[b.W_FORWARDS],
        ticks=words[b.W_TICKS],
        draws=words[b.W_DRAWS],
        calls=words[b.W_CALLS],
        completed=words[b.W_COMPLETED],
        at=moment(max(words[b.W_MOVED_AT], words[b.W_PHASE_AT]), anchor_ns),
    )


def times(words: array[int]) -> StepTimes:
    return StepTimes(
        steps=words[b.W_TIMED_STEPS],
        data_s=seconds(words[b.W_DATA_NS]),
        before_sync_s=seconds(words[b.W_BEFORE_SYNC_NS]),
        total_s=seconds(words[b.W_TOTAL_NS]),
        last_s=seconds(words[b.W_LAST_NS]),
        slowest_recent_s=seconds(words[b.W_SLOWEST_NS]),
    )


def slots(data: Any) -> tuple[Slot, ...]:
    """The group slots of the groups blob. Raises one of SPOILED."""
    found = {}
    for index, since, alive, name, ranks, description, backend, *more in data:
        if type(index) is not int or not 0 <= index < b.GROUP_SLOTS or type(since) is not int:
            raise ValueError(f"no group slot: {index!r:.40}")
        timeout_s = _timeout(more[0]) if more else None
        head = GroupHead(str(name), members.parse(ranks), str(description), str(backend), timeout_s=timeout_s)
        found[index] = Slot(index, since, bool(alive), head)
    return tuple(found.values())


def _timeout(data: Any) -> float | None:
    return float(data) if isinstance(data, int | float) and 0 < data < LATEST else None


def head(slot: Slot, words: array[int]) -> GroupHead:
    at = b.GROUPS_AT + slot.index * b.SLOT_WORDS
    return replace(
        slot.head,
        issued=words[at + b.G_ISSUED],
        completed=words[at + b.G_COMPLETED],
        sent=words[at + b.G_SENT],
        received=words[at + b.G_RECEIVED],
        peers=_peers(slot.index, words) if words[at + b.G_SENT] or words[at + b.G_RECEIVED] else (),
    )


def _peers(group: int, words: array[int]) -> tuple[PeerCount, ...]:
    starts = range(b.PEERS_AT, b.PEERS_AT + b.PEER_SLOTS * b.PEER_WORDS, b.PEER_WORDS)
    return tuple(
        PeerCount(words[at + b.P_PEER], words[at + b.P_SENT], words[at + b.P_RECEIVED])
        for at in starts
        if words[at + b.P_GROUP] == group + 1
    )


def step_entry(number: int, raw: bytes, groups: tuple[Slot, ...], anchor_ns: int) -> StepEntry:
    """An entry of the step ledger. Groups that did not exist yet, or could not be counted, are left out."""
    words = array("q", raw)
    counted = words[b.S_END] - (b.STEPS_AT + number % b.STEPS * b.STEP_WORDS + b.S_ISSUED)
    issued = {
        slot.head.name: words[b.S_ISSUED + slot.index]
        for slot in groups
        if slot.index < counted and slot.since <= number and words[b.S_ISSUED + slot.index] >= 0
    }
    return StepEntry(
        step=words[b.S_STEP],
        epoch=known(words[b.S_EPOCH]),
        batch=known(words[b.S_BATCH]),
        loader=known(words[b.S_LOADER]),
        at=moment(words[b.S_AT], anchor_ns),
        issued=issued,
        optimizer_steps=words[b.S_OPTIMIZED],
        backward_step=known_step(words[b.S_BACKWARD]),
        accumulated_step=known_step(words[b.S_ACCUMULATED]),
    )


def call(
    raw: bytes, groups: tuple[Slot, ...], line: Line, path: CallPath, thread_name: str, anchor_ns: int
) -> Collective:
    """An entry of the ring of calls; `line` gives a line of the board's table by its number, `path` a call path."""
    words = array("q", raw)
    op = line(words[b.C_OP])
    sizes, dtypes = shapes(line(words[b.C_SHAPES]), words[b.C_NUMEL])
    return Collective(
        group=next((slot.head.name for slot in groups if slot.index == words[b.C_GROUP]), ""),
        seq=words[b.C_SEQ],
        op=op if isinstance(op, str) else "",
        sizes=sizes,
        dtypes=dtypes,
        peer=known(words[b.C_PEER]),
        tag=known(words[b.C_TAG]),
        thread_id=words[b.C_THREAD],
        thread_name=thread_name,
        frames=path(words[b.C_SITE]),
        at=moment(words[b.C_AT], anchor_ns),
        step=known(words[b.C_STEP]),
    )


def shapes(data: Any, elements: int) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Sizes and dtypes of a call; where the table had no room for them, one size with all `elements`."""
    try:
        sizes, dtypes = data
        return tuple(tuple(int(n) for n in size) for size in sizes), tuple(str(dtype) for dtype in dtypes)
    except SPOILED:
        return (((elements,),) if elements > 0 else ()), ()


def frames(data: Any) -> tuple[Frame, ...]:
    """Frames: [[file, line, function], ...], innermost first."""
    try:
        return tuple(Frame(str(file), int(line), str(function)) for file, line, function in data)
    except SPOILED:
        return ()


def call_path(data: Any, line: Line) -> tuple[Frame, ...]:
    """A call path: the numbers of the table's lines that hold its frames, innermost first."""
    try:
        return frames([line(number) for number in data])
    except SPOILED:
        return ()


def thread_ids(data: Any) -> tuple[int, ...]:
    """Raises one of SPOILED."""
    return tuple(int(each) for each in data)


def loader(data: Any, words: array[int]) -> LoaderFacts:
    """A loader of the loaders blob, with what its slot says now. Raises one of SPOILED."""
    facts = record(LoaderFacts, data)
    if not 0 <= facts.index < b.LOADER_SLOTS:
        raise ValueError(f"no loader slot: {facts.index}")
    at = b.LOADERS_AT + facts.index * b.SLOT_WORDS
    flags = words[at + b.L_FLAGS]
    return replace(
        facts,
        epoch=words[at + b.L_EPOCH],
        drawn=words[at + b.L_DRAWN],
        exhausted=bool(flags & b.F_EXHAUSTED),
        left=bool(flags & b.F_LEFT),
        inside_next=words[b.W_PHASE] == b.PHASES.index("data") and words[b.W_LOADER] == facts.index,
        training=bool(flags & b.F_TRAINING),
    )


def group_made(data: Any) -> GroupMade:
    """One call of new_group: [index, "0-3", name, done, [file, line, function] or null]. Raises one of SPOILED."""
    index, ranks, name, done, where = data
    found = frames([where]) if where else ()
    return GroupMade(int(index), members.parse(ranks), str(name), bool(done), found[0] if found else None)
