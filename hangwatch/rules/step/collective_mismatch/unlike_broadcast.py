"""A broadcast that ended a rank, because it brought a tensor of another size than the root's.

Modules whose parameters or buffers differ between ranks end so where DDP() broadcasts them: it checks the shapes of
parameters, and nobody checks those of buffers.
"""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.last_calls import brought_down, end_sentences, endings_of, last_call
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Collective, Frame, Status
from hangwatch.ranks.last_words import Kind, LastWord
from hangwatch.ranks.ledger import family
from hangwatch.ranks.tensors import elements, width
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

_OF_MODULES = frozenset({"_sync_params_and_buffers", "_sync_module_buffers", "_default_broadcast_coalesced"})
_FIX_OF_MODULE = (
    "make the modules alike on all ranks: a buffer or parameter whose size follows from a rank's own data has another"
    " one there"
)
_FIX = "give the broadcast a tensor of the same size and type on all ranks"


def aborted_in_a_broadcast(case: Case) -> Finding | None:
    """What came is what another rank has brought to the same call, and not what the aborted rank had room for."""
    found = _aborted(case) if brought_down(case) else None
    if found is None:
        return None
    rank, word, frames = found
    peer = next((view.rank for view in case if view.rank != rank and _brought(case, view.rank, word, frames)), None)
    if peer is None:
        return None
    where, of_module = user_frame(frames), any(frame.function in _OF_MODULES for frame in frames)
    what = "the broadcast of a module's parameters and buffers" if of_module else "broadcast"
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"Rank {rank} brought {word.expected:,} bytes to {what}{words.at(where)}, where rank {peer} brought"
        f" {word.received:,}.",
        fix=_FIX_OF_MODULE if of_module else _FIX,
        culprits=(case.ranks[rank].culprit(where),),
        victims=tuple(other for other in case.ranks if other != rank),
        step=case.ranks[rank].step,
        evidence=end_sentences(case),
        status=Status.FAILED,
    )


def _aborted(case: Case) -> tuple[int, LastWord, tuple[Frame, ...]] | None:
    """The only rank that gloo has aborted for the size of a message in a broadcast, its word, and where it stood."""
    words_of = {rank: end.word for rank, end in endings_of(case).items() if end.by_backend}
    if len(words_of) != 1:
        return None
    ((rank, word),) = words_of.items()
    last = last_call(case, case.ranks[rank])
    if word is None or word.kind is not Kind.SIZE_MISMATCH or word.expected is None or last is None:
        return None
    return (rank, word, last.frames) if family(last.name) == "broadcast" or _in_broadcast(last.frames) else None


def _in_broadcast(frames: tuple[Frame, ...]) -> bool:
    return bool(frames) and frames[0].function in _OF_MODULES


def _brought(case: Case, rank: int, word: LastWord, frames: tuple[Frame, ...]) -> bool:
    """A broadcast of that rank from the very same lines brought as many bytes as came."""
    made = (call for call in case.ledger.calls(rank).values() if family(call.op) == "broadcast")
    return any(_bytes(call) == word.received and _lines(call.frames) == _lines(frames) for call in made)


def _lines(frames: tuple[Frame, ...]) -> list[tuple[str, int]]:
    return [frame.source_line for frame in frames if not frame.native]


def _bytes(call: Collective) -> int | None:
    count, size = elements(call.sizes), width(call.dtypes[0]) if call.dtypes else None
    return count * size if count is not None and size is not None else None
