"""Why a rank ended: by a fault of its own, by its backend, because it lost a peer, or by its launcher.

Only the first can be a cause. A backend ends a rank because of what members of a group called (gloo aborts the one that
gets a message of the wrong size; torch's NCCL watchdog aborts those that wait): such a rank is a victim, whatever
became of it first, and the reason has to be looked for in what the ranks had called.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from hangwatch import words
from hangwatch.model import ExceptionFacts, ThreadStack
from hangwatch.ranks.last_words import BACKEND, OWN_FAULT, Kind, LastWord, last_words
from hangwatch.ranks.late_at_barrier import Late, late_at_barrier
from hangwatch.ranks.missing_key import MissingKey, missing_key
from hangwatch.ranks.view import RankView
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import origin, user_frame

_CONSEQUENCE = re.compile(
    r"connection (closed|reset|refused|was)|closed by peer|broken pipe|timed? ?out|timeout|remote process"
    r"|socket|unhandled (system|cuda) error|aborted|watchdog",
    re.IGNORECASE,
)
_OF_TORCH = re.compile(r"(torch\.distributed\.)?(RuntimeError|Dist\w*Error): ")
_FETCH, _DISTRIBUTED = "torch/utils/data/_utils/fetch.py", "torch/distributed/"
_OF_ITS_LOADER = re.compile(r"Caught \w+ in (DataLoader worker process|pin memory thread)")  # these know no other rank
# Clients of servers: what they raise tells of a service, and not of a rank that has ended.
_CLIENTS = re.compile(
    r"/lib(64)?/python\d[.\d]*t?/(urllib|http|ftplib|smtplib|xmlrpc)[/.]"
    r"|/(site|dist)-packages/(requests|urllib3|httpx|httpcore|aiohttp|botocore|boto3|huggingface_hub|google|grpc|redis)/"
)
# What gloo checks at the start of a call are its arguments; below transport/ it reads what peers have sent.
_OF_ITS_ARGUMENTS = re.compile(
    r"\[enforce fail at [^\]]*/gloo/\w+\.(cc|h):\d+\]"
    r"|\btensors? (list )?(has to|have to|must) (all )?(be|have) |\binvalid (tensor|root)\b|\brequires a single-element"
    r"|\bNo backend type associated with"
)
_REFUSALS = frozenset({"ValueError", "TypeError", "AssertionError", "NotImplementedError"})  # of torch's own checks
_UNPACK = frozenset({"_tensor_to_object", "load", "loads"})
_OF_MODULES = re.compile(r"/torch/distributed/(pipelining|fsdp|_composable|tensor|optim|algorithms|elastic|rpc)/")
ABORTS = frozenset({-signal.SIGABRT, 128 + signal.SIGABRT})
ENDED_BY_LAUNCHER = frozenset({-signal.SIGTERM, 128 + signal.SIGTERM})


class Why(StrEnum):
    """Why a rank has ended, or is about to."""

    ITSELF = "itself"  # an error or a signal that no other rank's end explains
    BACKEND = "backend"  # its backend aborted it, or gave up
    PEER = "peer"  # it lost a connection, or waited in vain for what another rank had to do
    LAUNCHER = "launcher"  # SIGTERM, or nobody saw how, after another rank had failed


@dataclass(frozen=True)
class Ending:
    """The end of one rank. `word` is the line that says so, where there is one."""

    why: Why
    word: LastWord | None = None

    @property
    def by_backend(self) -> bool:
        return self.why is Why.BACKEND

    @property
    def of_another(self) -> bool:
        """What another rank did, or called, led to it; its launcher's part apart."""
        return self.why in (Why.BACKEND, Why.PEER)


def follows(error: ExceptionFacts) -> bool:
    """The error tells that something else has ended or failed, which another rank may be; no server of the user's."""
    if _OF_ITS_LOADER.match(error.message) or not _CONSEQUENCE.search(f"{error.type}: {error.message}"):
        return False
    if _is_of_a_sample(error):
        return False
    where = user_frame(error.frames)
    inside = error.frames[: error.frames.index(where)] if where is not None else error.frames
    return not any(_CLIENTS.search(frame.file) for frame in inside)


def tells_of_another(error: str) -> bool:
    """The same of the last line of a traceback in the output of a process: an error of torch's, by its type."""
    return _OF_TORCH.match(error) is not None and _CONSEQUENCE.search(error) is not None


def _is_of_a_sample(error: ExceptionFacts) -> bool:
    """It came out of a dataset's own code, which called nothing of torch.distributed's: that of reading one sample."""
    files = [frame.file for frame in error.frames]
    return any(file.endswith(_FETCH) for file in files) and not any(_DISTRIBUTED in file for file in files)


def ending(view: RankView) -> Ending:
    """Why the process of `view`, which has ended or is failing, came to its end."""
    error = view.exception
    if error is not None and (error.fatal or _gave_up_after(view, error)):
        text = f"{error.type}: {error.message}"
        word = next(iter(last_words(text)), None)
        if not follows(error):
            return Ending(Why.ITSELF, word)
        return Ending(Why.BACKEND if word is not None and word.kind in BACKEND else Why.PEER, word)
    if view.exit_code in ENDED_BY_LAUNCHER or view.followed:
        return Ending(Why.LAUNCHER)
    return _without_exception(view)


def _gave_up_after(view: RankView, error: ExceptionFacts) -> bool:
    """It caught the error of a peer's end, as Ray's workers do, and then left with an exit code that tells of one."""
    return follows(error) and view.dead and (view.exit_code or 0) > 0


def with_followers(views: Iterable[RankView]) -> dict[int, RankView]:
    """The views by rank; those whose end nobody saw, and that ended after a rank had failed, are marked so.

    A launcher reaps its children at once: the exit code of the ranks that it ends is often gone before it can be read.
    A rank that failed because it lost a peer was no such reason: the peer may be the one whose end nobody saw.
    """
    by_rank = {view.rank: view for view in views}
    failed_at = min((at for view in by_rank.values() if (at := _failed_first_at(view)) is not None), default=None)
    followers = [view for view in by_rank.values() if _is_unseen(view) and _ended_after(view, failed_at)]
    return by_rank | {view.rank: replace(view, followed=True) for view in followers}


def _failed_first_at(view: RankView) -> float | None:
    """When it ended, if its end is known and no other rank's end explains it."""
    known = view.failed and not _is_unseen(view)
    return view.evidence.ended_at if known and ending(view).why in (Why.ITSELF, Why.BACKEND) else None


def _is_unseen(view: RankView) -> bool:
    """It is gone, and neither an exit code, nor what it recorded, nor a line of output that names it tells how."""
    named = any(word.rank == view.rank or word.pid == view.pid for word in words_of(view))
    return view.dead and view.exit_code is None and not (view.raised or view.evidence.crash_trace or named)


def _ended_after(view: RankView, moment: float | None) -> bool:
    ended = view.evidence.ended_at
    return moment is not None and ended is not None and ended > moment


def _without_exception(view: RankView) -> Ending:
    said = words_of(view)
    own = next((word for word in said if word.kind in OWN_FAULT and word.pid in (None, view.pid)), None)
    if not aborted(view) or own is not None:
        return Ending(Why.ITSELF, own)
    reason = next((word for word in said if word.kind in BACKEND), None)
    return Ending(Why.BACKEND if reason is not None or in_call(view) else Why.ITSELF, reason)


def words_of(view: RankView) -> tuple[LastWord, ...]:
    """The lines of a rank's last output that report an end, without those in a shared log that name another rank."""
    return tuple(word for word in last_words(view.evidence.last_output) if word.rank in (None, view.rank))


def aborted(view: RankView) -> bool:
    """Its process was ended by SIGABRT: by its exit code, or, where that is not known, by its own last trace."""
    if view.exit_code is not None:
        return view.exit_code in ABORTS
    return view.dead and view.evidence.crash_trace.lstrip().startswith("Fatal Python error: Aborted")


def aborted_for_its_size(view: RankView) -> bool:
    """Its backend says that it aborted it because a message of another size came than its call had room for."""
    return aborted(view) and any(word.kind is Kind.SIZE_MISMATCH for word in words_of(view))


def in_call(view: RankView) -> bool:
    """Its last stack, or a call on its board that it never returned from, is a collective or point-to-point call."""
    reading = view.reading
    return any(thread.in_collective for thread in view.threads) or bool(reading is not None and reading.open_calls)


def was_refused(view: RankView) -> bool:
    """It failed because nothing listened at the address where it looked for another rank."""
    error = view.exception
    return error is not None and error.fatal and "connection refused" in error.message.lower()


def gave_up_on(view: RankView) -> Late | None:
    """The ranks for which its monitored_barrier waited in vain, if that is the error that ended it."""
    error = view.exception
    return late_at_barrier(error.message) if error is not None and error.fatal else None


def gave_up_on_key(view: RankView) -> MissingKey | None:
    """The key of a store for which a line of the user's waited in vain, if that is the error that ended it.

    torch's own waits (the rendezvous, new groups) stand below functions of torch, and are none of these.
    """
    error = view.exception
    if error is None or not error.fatal or not error.frames or user_frame(error.frames) is not error.frames[0]:
        return None
    return missing_key(error.message)


def gave_up_on_start_of(view: RankView) -> MissingKey | None:
    """The ranks for whose addresses it waited in vain in init_process_group, if that is the error that ended it."""
    error = view.exception
    if error is None or not error.fatal or not any(each.function == "init_process_group" for each in error.frames):
        return None
    missing = missing_key(error.message)
    return missing if missing is not None and missing.ranks else None


def failed_in_torch(view: RankView) -> bool:
    """The error that ended it was raised where torch.distributed communicates, or by what it made of the data.

    Its packages that run the user's modules (pipelines, FSDP, tensors) raise the user's own errors too: there it must
    have been in a collective. Arguments that torch or gloo refuses are the rank's own.
    """
    error = view.exception
    if error is None or not error.fatal or _refuses_its_arguments(error):
        return False
    frames = error.frames
    inside = frames[0].file if frames else ""
    if "/distributed/" not in inside or origin(inside) != "torch":
        return False
    return not _OF_MODULES.search(inside) or activity(ThreadStack(0, "", frames, main=True)).in_collective


def _refuses_its_arguments(error: ExceptionFacts) -> bool:
    """Before anything was sent. Of objects that came from another rank what they were made of may be at fault."""
    unpacks = any(frame.function in _UNPACK for frame in error.frames[:2])
    return bool(_OF_ITS_ARGUMENTS.search(error.message)) or (error.type in _REFUSALS and not unpacks)


def told(view: RankView, end: Ending) -> str:
    """`was aborted by gloo: a message of 676 bytes came where 4 were expected`, for a sentence about the rank."""
    word = end.word
    if end.why is Why.PEER:
        return _of_a_peer(view, word)
    if end.why is Why.LAUNCHER:
        return "ended after another rank had failed; how is not known" if view.followed else "was ended by SIGTERM"
    if (late := gave_up_on(view)) is not None:
        return (
            f"gave up waiting for {words.ranks(late.ranks)} in monitored_barrier after {words.duration(late.timeout_s)}"
        )
    if end.why is Why.ITSELF and view.exception is not None:
        return f"failed with {words.error(view.exception)}"
    if word is not None and word.kind is Kind.SIZE_MISMATCH:
        return f"was aborted by gloo: {_sizes(word)}"
    if word is not None and word.kind is Kind.WATCHDOG:
        return f"was aborted by torch's NCCL watchdog{_work(word)}"
    if word is not None and word.kind is Kind.TIMEOUT:
        limit = f" after {words.duration(word.timeout_s)}" if word.timeout_s is not None else ""
        return f"gave up waiting{limit}, the timeout of its process group"
    return f"was aborted by {backend_of(view) or 'its backend'}"


def _of_a_peer(view: RankView, word: LastWord | None) -> str:
    if (missing := gave_up_on_key(view)) is not None:
        return f"gave up waiting for {key_words(missing)} after {words.duration(missing.timeout_s)}"
    if (missing := gave_up_on_start_of(view)) is not None:
        awaited, limit = words.ranks(missing.ranks), words.duration(missing.timeout_s)
        return f"gave up waiting for {awaited} in init_process_group after {limit}"
    if word is None or word.kind is not Kind.CONNECTION:
        return f"failed with {words.error(view.exception)}"
    if was_refused(view):
        return f"could not connect to {word.peer}" if word.peer else "could not connect"
    return f"lost its connection to {word.peer}" if word.peer else "lost a connection"


def key_words(missing: MissingKey) -> str:
    """`key 'statistics' of a store`."""
    noun = words.verb(len(missing.keys), "key", "keys")
    return f"{noun} {words.listed(repr(key) for key in missing.keys)} of a store"


def error_at(error: ExceptionFacts) -> str:
    """`ValueError: no such class (train.py:12)`: an error, and the user's line where it was raised."""
    return f"{words.error(error)}{words.at(user_frame(error.frames))}"


def _sizes(word: LastWord) -> str:
    if word.received is None or word.expected is None:
        return "a message of another size came than its call expected"
    return f"a message of {word.received:,} bytes came where {word.expected:,} were expected"


def _work(word: LastWord) -> str:
    if word.seq is None:
        return ""
    limit = f" in {words.duration(word.timeout_s)}" if word.timeout_s is not None else ""
    return f": {word.op or 'collective'} {word.seq} had not completed{limit}"


def backend_of(view: RankView) -> str:
    """The backend of its groups, where they have one in common."""
    reading = view.reading
    names = {head.backend for head in reading.heads} if reading is not None else set()
    return names.pop() if len(names) == 1 else ""
