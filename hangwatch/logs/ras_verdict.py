"""The verdict on answers of NCCL's RAS service: processes that do not answer, errors, and counts that differ.

Counts are of one moment, in which ranks may be on their way: two answers show whether they move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hangwatch import ras, words
from hangwatch.model import Certainty, Culprit, Judgement, NcclLaunched, Stage, Status
from hangwatch.ras import Told

from .model import Logs, RasSaid
from .unknown import unknown

_APART_S = 10.0  # between two answers that show that nothing moves
_DEVICE_ERROR = "unhandled CUDA error"
_MOST = 6  # sentences
_SHOWN = 4
_AGAIN = "ask again after a minute (ncclras -f json), and give both answers: counts that have not moved show a hang"


@dataclass(frozen=True)
class _Pair:
    """One communicator in the last answer, and in an earlier one if there is one."""

    now: Told
    unmoved: bool = False
    moved: bool = False
    apart_s: float | None = None


def judged(logs: Logs) -> Judgement | None:
    """What the last answer tells; None where nothing is of note in it."""
    if not logs.ras:
        return None
    last = _ordered(logs)[-1].answer
    own = [_in_the_job(told, logs) for told in last.communicators]
    pairs = [replace(_pair(told, logs), now=named) for told, named in zip(last.communicators, own, strict=True)]
    found = _absent(pairs, last.dead_processes) or _failed(own) or _counts(pairs) or _setting_up(own)
    if found is None:
        return None
    return replace(found, verdict=replace(found.verdict, evidence=evidence(logs)))


def evidence(logs: Logs) -> tuple[str, ...]:
    """What is of note in the last answer, in sentences."""
    if not logs.ras:
        return ()
    last = _ordered(logs)[-1].answer
    dead = [f"NCCL ({last.version}) calls {process} dead" for process in last.dead_processes]
    told = (said for each in last.communicators for said in ras.of_communicator(_in_the_job(each, logs).found))
    return (*dead, *told)[:_MOST]


def nothing(logs: Logs) -> Iterator[str]:
    """What to say of answers in which nothing is wrong."""
    if not logs.ras:
        return
    last = _ordered(logs)[-1].answer
    moved = [told for told in last.communicators if _pair(told, logs).moved and told.found.launched]
    if moved:
        yield "the counts of NCCL's RAS service differ between ranks, and moved between its answers: the job ran"
    else:
        yield f"NCCL's RAS service ({last.version}) reports nothing wrong"


def _in_the_job(told: Told, logs: Logs) -> Told:
    """Its numbers are not the job's where other lines tell of more ranks."""
    more = max(logs.ranks, default=0) >= told.found.size
    return replace(told, found=replace(told.found, members=())) if more and told.of_all else told


# ------------------------------------------------------------------------------------------ two answers


def _ordered(logs: Logs) -> list[RasSaid]:
    """The answers in the order of their times, where all tell them; else in that of their files."""
    if all(each.answer.at is not None for each in logs.ras):
        return sorted(logs.ras, key=lambda each: str(each.answer.at))
    return sorted(logs.ras, key=lambda each: each.written)


def _pair(told: Told, logs: Logs) -> _Pair:
    """The communicator, and whether its counts are those of an earlier answer."""
    *earlier_ones, last = _ordered(logs)
    for before in reversed(earlier_ones):
        earlier = next((each for each in before.answer.communicators if each.found.id == told.found.id), None)
        if earlier is None or (apart := _apart_s(before, last)) == 0.0:
            continue
        same = (earlier.counts, earlier.found.launched) == (told.counts, told.found.launched)
        long_enough = apart is None or apart >= _APART_S
        return _Pair(told, unmoved=same and long_enough, moved=not same, apart_s=apart)
    return _Pair(told)


def _apart_s(before: RasSaid, last: RasSaid) -> float | None:
    """The time between two answers; None where they do not tell it, 0 where they may be one that was kept twice."""
    if before.answer.at is not None and last.answer.at is not None:
        return max((last.answer.at - before.answer.at).total_seconds(), 0.0)
    if before.path == last.path:
        return None
    return abs(last.written - before.written)


# ------------------------------------------------------------------------------------------ verdicts


def _absent(pairs: Sequence[_Pair], dead_processes: Sequence[str]) -> Judgement | None:
    """Ranks whose RAS threads, which need no Python and no GPU, do not answer."""
    side = max((each.now for each in pairs), key=lambda each: (len(each.found.missing), each.found.size), default=None)
    absent = list(side.found.missing) if side is not None else []
    if side is None or not absent:
        return _dead(dead_processes) if dead_processes else None
    dead = set(side.found.dead) | {rank for rank in absent if _process(side, rank) in dead_processes}
    who = _ranks(side, absent)
    summary = f"{words.capital(who)} {words.verb(len(absent), 'does', 'do')} not answer NCCL's RAS threads"
    gone = ""
    if dead:
        gone = ", and NCCL calls them dead" if len(absent) > 1 else ", and NCCL calls it dead"
        gone = gone if dead == {*absent} else f", and NCCL calls {_ranks(side, dead)} dead"
    return unknown(
        Status.HUNG if dead else Status.WAITING,
        Stage.STEP,
        f"{summary}{gone}: the process has ended or is stopped, or its host is not reached.",
        f"look at the process of {who}{_places(side, absent)}: whether it runs, its log, its host's kernel log",
        culprits=_culprits(side, absent),
        victims=_others(side, absent),
        hang=Certainty.LIKELY if dead else Certainty.UNDETERMINED,
        argument=("NCCL waits a minute for such an answer before it calls a process dead",) if dead else (),
        details=() if dead else ("An answer may come late: ask again to see whether it stays away.",),
    )


def _dead(processes: Sequence[str]) -> Judgement:
    return unknown(
        Status.HUNG,
        Stage.STEP,
        f"NCCL calls {words.listed(list(processes)[: words.SHOWN])} dead: it has ended or is stopped, or its host is"
        " not reached; the answer does not name the rank.",
        "look at that process: whether it runs, its log, and the kernel log of its host",
        hang=Certainty.LIKELY,
    )


def _failed(own: Sequence[Told]) -> Judgement | None:
    """Ranks of which NCCL reports an error: one of the device is the rank's own; others may come from a peer."""
    side = next((each for each in own if each.found.errors), None)
    if side is None:
        return _aborted(own)
    errors = side.found.errors
    device = [rank for rank, said in errors.items() if said.endswith(_DEVICE_ERROR)]
    by_error: dict[str, list[int]] = {}
    for rank, said in errors.items():
        by_error.setdefault(said, []).append(rank)
    told = words.listed(f"{_ranks(side, ranks)}: {said}" for said, ranks in by_error.items())
    who = f"look at the log of {_ranks(side, device)}{_places(side, device)}, and at the kernel log of its host"
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"NCCL reports an error of {told}.",
        who if device else "give the logs of all ranks: NCCL_DEBUG=WARN names the call that failed, and its peer",
        culprits=_culprits(side, device) if 2 * len(device) <= side.found.size else (),
        victims=_others(side, device),
    )


def _aborted(own: Sequence[Told]) -> Judgement | None:
    side = next((each for each in own if each.found.aborted), None)
    if side is None:
        return None
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"The communicator of {words.plural(side.found.size, 'rank')} has been aborted on"
        f" {_ranks(side, side.found.aborted)}: torch's watchdog or the program ended it.",
        "give the logs of all ranks: they tell which call was given up, and why",
        victims=_others(side, ()),
    )


def _counts(pairs: Sequence[_Pair]) -> Judgement | None:
    """Ranks that have launched fewer operations than others of their communicator."""
    differing = [each for each in pairs if each.now.found.launched and not each.moved]
    if not differing:
        return None
    pair = max(differing, key=lambda each: (each.unmoved, each.now.of_all, each.now.found.size))
    side, behind = pair.now, _behind(pair.now.found.launched)
    few = sorted(rank for each in behind for rank in each.ranks)
    named = len(few) == sum(each.number for each in behind)
    if _crossed(side):
        return _of_both(pair)
    who = _ranks(side, few) if few and named else "these ranks"
    blamed = few if pair.unmoved and named and 2 * len(few) <= side.found.size else []
    fix = f"look at the stack of {who}{_places(side, few)}: what it does instead of the next collective"
    return unknown(
        Status.HUNG if pair.unmoved else Status.WAITING,
        Stage.STEP,
        _launched(side, behind),
        fix if pair.unmoved else _AGAIN,
        culprits=_culprits(side, blamed),
        victims=_others(side, few) if pair.unmoved else (),
        hang=Certainty.LIKELY if pair.unmoved else Certainty.UNDETERMINED,
        argument=_argument(pair),
        details=() if pair.unmoved else ("Counts of one moment differ in a job that runs, too.",),
    )


def _launched(side: Told, behind: Sequence[NcclLaunched]) -> str:
    """How many operations these ranks have launched, and how many the others."""
    most = max(each.count for each in side.found.launched if each.op == behind[0].op)
    parts = [
        f"{_ranks(side, each.ranks) if len(each.ranks) == each.number else words.plural(each.number, 'rank')}"
        f" {words.verb(each.number, 'has', 'have')} launched {each.count}"
        for each in behind[:_SHOWN]
    ]
    size = f" of {words.plural(side.found.size, 'rank')}" if side.found.size else ""
    return f"Of the {behind[0].op} operations of a communicator{size}, {words.listed(parts)}, and others {most}."


def _of_both(pair: _Pair) -> Judgement:
    """The same ranks are behind in one operation and ahead in another: they called them in another order."""
    side = pair.now
    return unknown(
        Status.HUNG if pair.unmoved else Status.WAITING,
        Stage.STEP,
        f"In the communicator of {words.plural(side.found.size, 'rank')}, some ranks are behind others in one kind of"
        " operation and ahead of them in another: they called different collectives, or in another order.",
        "compare the calls of these ranks in the flight recorder's dumps" if pair.unmoved else _AGAIN,
        victims=_others(side, ()) if pair.unmoved else (),
        hang=Certainty.LIKELY if pair.unmoved else Certainty.UNDETERMINED,
        argument=_argument(pair),
    )


def _crossed(side: Told) -> bool:
    """By the lists of ranks: some rank is behind others in one kind of operation, and ahead of others in another."""
    late: set[int] = set()
    early: set[int] = set()
    by_op: dict[str, list[NcclLaunched]] = {}
    for each in side.found.launched:
        by_op.setdefault(each.op, []).append(each)
    for counts in by_op.values():
        low, high = min(each.count for each in counts), max(each.count for each in counts)
        late.update(rank for each in counts if each.count == low for rank in each.ranks)
        early.update(rank for each in counts if each.count == high for rank in each.ranks)
    return bool(late & early)


def _behind(launched: Iterable[NcclLaunched]) -> list[NcclLaunched]:
    """Those below the highest count, in the first kind of operation that differs."""
    counts = list(launched)
    first = [each for each in counts if each.op == counts[0].op]
    most = max(each.count for each in first)
    return [each for each in first if each.count < most]


def _argument(pair: _Pair) -> tuple[str, ...]:
    if not pair.unmoved:
        return ()
    apart = f"{words.duration(pair.apart_s)} apart" if pair.apart_s else "whose times are not told"
    return (f"the counts of this communicator did not move between two answers of NCCL's RAS service, {apart}",)


def _setting_up(own: Sequence[Told]) -> Judgement | None:
    side = next((each for each in own if each.found.initialising), None)
    if side is None:
        return None
    return unknown(
        Status.WAITING,
        Stage.START,
        f"{words.capital(_ranks(side, side.found.initialising))} of {words.plural(side.found.size, 'rank')} still"
        f" {words.verb(len(side.found.initialising), 'sets', 'set')} up the communicator.",
        "ask again after a minute; if it lasts, run with NCCL_DEBUG=INFO, which tells how far the set-up comes",
    )


# ------------------------------------------------------------------------------------------ names


def _ranks(side: Told, ranks: Iterable[int]) -> str:
    said = words.ranks(sorted(ranks))
    return said if side.of_all else f"{said} (by the communicator's own numbers)"


def _process(side: Told, rank: int) -> str:
    known = side.processes.get(rank)
    return f"process {known[0]} on node {known[1]}" if known else ""


def _places(side: Told, ranks: Sequence[int]) -> str:
    told = [_process(side, rank) for rank in ranks if rank in side.processes][: words.SHOWN]
    return f" ({words.listed(told)})" if told else ""


def _culprits(side: Told, ranks: Iterable[int]) -> tuple[Culprit, ...]:
    """By the job's ranks where these are known, else by their processes."""
    found = []
    for rank in sorted(ranks):
        pid, host = side.processes.get(rank, (None, ""))
        if side.of_all or pid is not None:
            found.append(Culprit(rank if side.of_all else None, pid, host))
    return tuple(found)


def _others(side: Told, ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({*side.found.members} - {*ranks})) if side.of_all else ()
