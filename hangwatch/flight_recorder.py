"""Dumps of torch's flight recorder as evidence: the JSON of `_dump_fr_trace_json`, and the older pickles.

A pickle can run any code when it is read. These are read by an unpickler that knows nothing but plain containers, and
only where the caller has been told to trust the file.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hangwatch.errors import HangwatchError
from hangwatch.records import Collective, Collectives, Frame, GroupHead, RankEvidence

MOST_ENTRIES = 100_000
_DEFAULT_GROUP = "default_pg"


class DumpError(HangwatchError):
    """A file that is no dump of the flight recorder."""


def rank_of(path: Path) -> int | None:
    """The rank in a dump's file name: its last number, as in `nccl_trace_rank_3` or `rank3.json`."""
    numbers = re.findall(r"\d+", path.name)
    return int(numbers[-1]) if numbers else None


def is_pickle(content: bytes) -> bool:
    """Whether a file is a pickle rather than JSON."""
    return content[:1] == b"\x80"


def load(content: bytes, *, trust_pickle: bool = False) -> dict[str, Any]:
    """The document in a dump. Raises DumpError; for a pickle unless `trust_pickle`."""
    try:
        if is_pickle(content):
            if not trust_pickle:
                raise DumpError("it is a pickle, which is not read from strangers; --trust-pickle says it is yours")
            document = _PlainUnpickler(io.BytesIO(content)).load()
        else:
            document = json.loads(content)
    except DumpError:
        raise
    except Exception as error:  # a spoiled pickle raises whatever it likes
        raise DumpError(f"it is cut off or spoiled: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("entries"), list):
        raise DumpError("it is no dump of torch's flight recorder: it has no entries")
    return document


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, text, lists, tuples and dictionaries; nothing by name, so nothing that could be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise DumpError(f"it is a pickle that wants {module}.{name}; a dump of torch's holds plain values only")

    def persistent_load(self, pid: Any) -> Any:
        raise DumpError("it is a pickle with references to elsewhere")


def evidence(documents: Mapping[int, dict[str, Any]], taken_at: float) -> tuple[RankEvidence, ...]:
    """What the dumps of several ranks say together: gloo's dumps do not name the members of a sub-group.

    Raises DumpError where a document has not the shape of a dump.
    """
    try:
        members = _members(documents)
        return tuple(_rank(rank, documents[rank], members, taken_at) for rank in sorted(documents))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DumpError(f"it has not the shape of a dump ({type(error).__name__}: {error})") from error


def world_size(documents: Iterable[dict[str, Any]]) -> int | None:
    """The number of ranks of the default group, where a dump tells."""
    sizes = [
        len(ranks)
        for document in documents
        for name, config in dict(document.get("pg_config") or {}).items()
        if (name in ("", "0") or config.get("desc") == _DEFAULT_GROUP) and (ranks := _ranks(config.get("ranks")))
    ]
    return max(sizes, default=None)


def _rank(rank: int, document: dict[str, Any], members: Mapping[str, tuple[int, ...]], taken_at: float) -> RankEvidence:
    entries = document["entries"][-MOST_ENTRIES:]
    recent = tuple(_collective(entry, rank, members) for entry in entries)
    last = max((call.at for call in recent if call.at is not None), default=taken_at)
    heads = tuple(_heads(document, entries, members))
    return RankEvidence(
        rank, collectives=Collectives(heads, recent, source="flight-recorder"), still_s=max(taken_at - last, 0.0)
    )


def _members(documents: Mapping[int, dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Global ranks by group name: from a configuration that names them, else whoever used the group."""
    users: dict[str, set[int]] = {}
    named: dict[str, tuple[int, ...]] = {}
    everybody = range(max(world_size(documents.values()) or 0, *(rank + 1 for rank in documents)))
    for rank, document in documents.items():
        for entry in document["entries"]:
            name, description = _group(entry)
            users.setdefault(name, set()).update(everybody if description == _DEFAULT_GROUP else {rank})
        for name, config in dict(document.get("pg_config") or {}).items():
            if name and (ranks := _ranks(config.get("ranks"))):
                named[str(name)] = ranks
    return {name: tuple(sorted(ranks)) for name, ranks in users.items()} | named


def _ranks(said: Any) -> tuple[int, ...]:
    """Ranks of a configuration: a list, or a list as text."""
    return tuple(map(int, json.loads(said) if isinstance(said, str) else said)) if said else ()


def _group(entry: Mapping[str, Any]) -> tuple[str, str]:
    name, description = entry["process_group"]
    return str(name), str(description)


def _heads(
    document: Mapping[str, Any], entries: list[dict[str, Any]], members: Mapping[str, tuple[int, ...]]
) -> Iterable[GroupHead]:
    """How far the rank is in each group: from the status if it has one, else from the entries."""
    status = {str(key): value for key, value in dict(document.get("pg_status") or {}).items()}
    last = {(*_group(entry), str(entry["pg_id"])): entry for entry in entries}
    for (name, description, identifier), entry in last.items():
        own = [entry for entry in entries if str(entry["pg_id"]) == identifier and not entry.get("is_p2p")]
        known = status.get(identifier, {})
        counted = int(known.get("last_completed_collective", -1))
        yield GroupHead(
            name=name,
            members=members.get(name, ()),
            description=description,
            backend=str(entry["profiling_name"]).partition(":")[0],
            issued=int(known.get("last_enqueued_collective", own[-1]["collective_seq_id"] if own else -1)),
            completed=max(
                counted, completed_through((int(entry["collective_seq_id"]), _retired(entry)) for entry in own)
            ),
            sent=sum(_operation(entry)[0] == "send" for entry in entries if str(entry["pg_id"]) == identifier),
            received=sum(_operation(entry)[0] == "recv" for entry in entries if str(entry["pg_id"]) == identifier),
        )


def _collective(entry: Mapping[str, Any], rank: int, members: Mapping[str, tuple[int, ...]]) -> Collective:
    operation, peer = _operation(entry)
    name, _ = _group(entry)
    order = members.get(name, ())
    return Collective(
        group=name,
        seq=int(entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"]),
        op=operation,
        sizes=tuple(tuple(map(int, size)) for size in entry["input_sizes"]),
        dtypes=tuple(map(str, entry.get("input_dtypes", ()))),
        retired=_retired(entry),
        peer=order[peer] if peer is not None and peer < len(order) else peer,
        thread_name=str(entry.get("thread_name", "")),
        frames=tuple(
            Frame(str(frame["filename"]), int(frame["line"]), str(frame["name"])) for frame in entry.get("frames", ())
        ),
        at=int(entry["time_created_ns"]) / 1e9,
    )


def completed_through(calls: Iterable[tuple[int, bool]]) -> int:
    """Up to which number all `calls` (numbers, and whether each is completed) are completed; -1 for none.

    The recorder's status has the one that was completed last. Where gloo's threads complete two at a time that may be
    the first of them, and it stays so until a third is completed.
    """
    known = dict(calls)
    pending = [number for number, done in known.items() if not done]
    return (min(pending) - 1 if pending else max(known, default=-1)) or -1


def _retired(entry: Mapping[str, Any]) -> bool:
    """gloo's state stays "scheduled" for ever; NCCL's knows "completed" before the entry is retired."""
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _operation(entry: Mapping[str, Any]) -> tuple[str, int | None]:
    """all_reduce from "gloo:all_reduce"; send and the group rank 1 from "nccl:send 0->1"."""
    words = str(entry["profiling_name"]).rpartition(":")[2].split()
    peer = re.search(r"\d+(?:->|<-)(\d+)", words[1]) if len(words) > 1 else None
    return words[0] if words else "", int(peer[1]) if peer else None
