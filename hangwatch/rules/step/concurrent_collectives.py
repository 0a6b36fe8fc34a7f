"""Two threads of a rank that use one process group: their calls then come in another order on each rank."""

from __future__ import annotations

from collections import Counter

from hangwatch import words
from hangwatch.facts.calls.mismatches import Mismatch, culprits_at, first_mismatch, place_of, shape, threads_of
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.data.batches import first_uneven
from hangwatch.model import Certainty, Collective, Divergence, Status, StepName
from hangwatch.proof.graph import WaitGraph
from hangwatch.ranks.issuers import MAIN, issuers
from hangwatch.ranks.ledger import Group
from hangwatch.ranks.thread_stacks import waits_for_a_lock
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import POINT_TO_POINT, Activity
from hangwatch.stacks.frames import user_frame


def concurrent_collectives(case: Case) -> Finding | None:
    """Two threads of one rank stand in collectives of the same group."""
    if first_uneven(case) is not None:
        return None
    found = {view.rank: threads for view in case if len(threads := threads_in_one_group(case, view)) > 1}
    if not found:
        return None
    rank, threads = next(iter(found.items()))
    named = [f"{_does(case, rank, thread)}{words.at(thread.where)}" for thread in threads]
    return Finding(
        "concurrent-collectives",
        Certainty.LIKELY,
        f"Two threads of {words.ranks([rank])} are in collectives of one process group, whose order then differs from"
        f" rank to rank: {words.listed(named)}.",
        culprits=tuple(case.ranks[each].culprit(_background(threads).where) for each, threads in found.items()),
        victims=case.victims(found),
        step=case.ranks[rank].step,
        evidence=tuple(
            f"rank {each}: {words.listed(_does(case, each, one) for one in threads)}"
            for each, threads in list(found.items())[: words.SHOWN]
        ),
    )


def turns_by_a_lock(case: Case) -> Finding | None:
    """Ranks wait for each other in calls of two threads, which take turns by a lock: not in one order on all ranks.

    No proof: that the lock is held by the thread in the call, no fact of the system says.
    """
    needs = {rank: entry.need for rank, entry in case.blocked.items() if entry.need is not None}
    views = case.views(needs)
    behind = {view.rank for view in views if not view.now.main and waits_for_a_lock(view.main, view.evidence.process)}
    graph = WaitGraph(needs, set())
    circle = graph.cycle(graph.deadlocked()) if behind else []
    if behind.isdisjoint(circle) or len({case.blocked[rank].activity.thread for rank in circle}) < 2:
        return None
    return Finding(
        "concurrent-collectives",
        Certainty.LIKELY,
        f"{case.name(circle, capital=True)} wait for each other in calls of two threads, of which one waits for a lock"
        f" meanwhile: {'; '.join(_turn(case, rank) for rank in circle[:4])}.",
        fix="hold no lock across a collective: make the calls of both threads from one, in one order on all ranks",
        culprits=case.culprits(circle),
        victims=case.victims(circle),
        step=case.ranks[circle[0]].step,
        evidence=tuple(_turn(case, rank) for rank in circle[: words.SHOWN]),
    )


def _turn(case: Case, rank: int) -> str:
    """`rank 0's thread 'ema' waits in all_reduce 1 of group 1 (ema.py:32), and its main thread for a lock (...)`."""
    view, entry = case.ranks[rank], case.blocked[rank]
    who = "main thread" if view.now.main else f"thread {view.now.thread!r}"
    lock = "" if view.now.main else f", and its main thread for a lock{words.at(view.main.where)}"
    return f"rank {rank}'s {who} waits in {call_words(entry)}{words.at(entry.where)}{lock}"


def _does(case: Case, rank: int, thread: Activity) -> str:
    """`thread 'saver' in all_gather`; a crash trace has no names, but the calls that the rank recorded may have one."""
    others = {call.thread_name for call in _recorded(case, rank)} - {MAIN}
    name = thread.thread or (MAIN if thread.main else others.pop() if len(others) == 1 else "")
    return f"{f'thread {name!r}' if name else 'a background thread'} in {thread.called}"


def _background(threads: list[Activity]) -> Activity:
    return next((thread for thread in threads if not thread.main), threads[0])


def threads_in_one_group(case: Case, view: RankView) -> list[Activity]:
    """The threads of a rank that stand in collectives of one group; those in groups of their own are left out."""
    inside = [thread for thread in view.threads if thread.in_collective and thread.op not in POINT_TO_POINT]
    if len(inside) < 2:
        return []
    names = [_group_of(case, view, thread, inside) for thread in inside]
    shared = Counter(name for name in names if name)
    name, times = shared.most_common(1)[0] if shared else ("", 0)
    return [thread for thread, group in zip(inside, names, strict=True) if group == name] if times > 1 else []


def _group_of(case: Case, view: RankView, thread: Activity, inside: list[Activity]) -> str:
    """The group of the call in which a thread stands, "" if not known. A crash trace has no names of threads.

    In backward no call is recorded by the thread: it is in one that no other thread has recorded. With a communication
    hook it has none, and waits for what another thread exchanges.
    """
    groups = {call.thread_name: call.group for call in case.ledger.open_calls(view.rank) if call.thread_name}
    name = thread.thread or (MAIN if thread.main else "")
    if name in groups:
        return groups[name]
    seen = {MAIN, *(each.thread for each in inside)}
    others = {group for caller, group in groups.items() if caller not in seen} if not name else set()
    found = others or {
        group.name
        for group, first, last in case.ledger.outstanding(view.rank)
        if thread.op != "gradients" or last - first + 1 > list(groups.values()).count(group.name)
    }
    return found.pop() if len(found) == 1 else ""


def mispaired_with_the_main_thread(case: Case) -> Finding | None:
    """A background thread's calls took other numbers on one rank than on another; the main threads' counts are equal.

    DDP's own collectives are not recorded one by one: a number without a record is one of them.
    """
    background = {rank: calls for rank in case.ranks if (calls := _in_background(case, rank))}
    names = {call.thread_name for calls in background.values() for call in calls}
    if len(names) != 1 or any(view.now.thread in names for view in case):
        return None  # none, or it is the thread that trains
    for group in case.ledger.groups.values():
        found = {rank: _by_number(background.get(rank, []), group) for rank in group.heads}
        if len(found) < 2 or not all(_mixed(calls) for calls in found.values()):
            continue
        first, last = max(min(calls) for calls in found.values()), min(group.issued(rank) or 0 for rank in found)
        crossed = sorted({seq for calls in found.values() for seq in calls if first <= seq <= last})
        apart = next((seq for seq in crossed if not all(seq in calls for calls in found.values())), None)
        mine = [each for each in case.divergences if each.group == group.name]
        if apart is not None and all(_even_without(case, each) for each in mine):
            return _mispaired(case, group, apart, found, *names)
    return None


def _in_background(case: Case, rank: int) -> list[Collective]:
    """The calls of other Python threads than the main one."""
    return [call for call in _recorded(case, rank) if call.thread_name != MAIN]


def _recorded(case: Case, rank: int) -> list[Collective]:
    """The calls that the rank itself recorded, with the names of Python's threads; not those of DDP's own."""
    calls = case.ranks[rank].evidence.board_calls if rank in case.ranks else ()
    return [call for call in calls if call.thread_name and call.seq > 0]


def _by_number(calls: list[Collective], group: Group) -> dict[int, Collective]:
    return {call.seq: call for call in calls if call.group == group.name}


def _mixed(calls: dict[int, Collective]) -> bool:
    """Numbers of another thread lie between them: the training uses the group too."""
    return bool(calls) and len(calls) < max(calls) - min(calls) + 1


def _even_without(case: Case, divergence: Divergence) -> bool:
    """Without the background's calls all ranks issued the same number in that step."""
    left = set()
    for rank, count in divergence.counts.items():
        first, last = case.ledger.span(rank, divergence.group, divergence.step) or (0, 0)
        calls = [call for call in _in_background(case, rank) if call.group == divergence.group]
        left.add(count - sum(first < call.seq <= last for call in calls))
    return len(left) == 1


def _mispaired(case: Case, group: Group, seq: int, found: dict[int, dict[int, Collective]], thread: str) -> Finding:
    inside = [rank for rank, calls in sorted(found.items()) if seq in calls]
    others = [rank for rank in sorted(found) if rank not in inside]
    call = found[inside[0]][seq]
    where = user_frame(call.frames)
    return Finding(
        "concurrent-collectives",
        Certainty.LIKELY,
        f"Thread {thread!r} and the training of each rank use one process group at the same time, and their calls were"
        f" issued in another order on each: {call.op} of thread {thread!r} on {case.name(inside)}{words.at(where)}"
        f" is paired with a collective of the training on {case.name(others)}.",
        culprits=case.culprits(sorted(found), where),
        victims=(),
        step=case.ranks[inside[0]].step,
        evidence=(
            (
                f"collective {seq} of group {group.name} is {call.op} in thread {thread!r} on {case.name(inside)},"
                f" and not on {case.name(others)}"
            ),
            f"thread {thread!r} has issued calls in that group on every rank, between those of the main thread",
        ),
        status=case.failed_status,
    )


def _issue_from(case: Case, threads: tuple[str, ...], found: Mismatch) -> list[int]:
    """The ranks on which all these threads have issued calls in the group."""
    return [rank for rank in found.calls if {*threads} <= issuers(case.ledger, rank, found.group.name)]


def mispaired_threads(case: Case) -> Finding | None:
    """The paired calls come from different threads, and on each rank both of these threads use the group."""
    found = first_mismatch(case)
    threads = threads_of(case, found) if found is not None else ()
    if found is None or not threads:
        return None
    group, seq, calls = found.group, found.seq, found.calls
    calls_said = [
        f"{case.name([rank])} calls {shape(call)} in thread {call.thread_name!r}{words.at(place_of(case, rank, calls))}"
        for rank, call in list(calls.items())[:4]
    ]
    ended, users = any(view.dead or view.raised for view in case.views(calls)), _issue_from(case, threads, found)
    whose = "each rank" if len(users) == len(calls) else case.name(users)
    return Finding(
        "concurrent-collectives",
        Certainty.LIKELY,
        f"Threads {words.listed(map(repr, threads))} of {whose} use one process group at the same time, and"
        f" their calls were issued in another order on each rank: {words.listed(calls_said)}.",
        culprits=culprits_at(case, calls, calls),
        victims=(),
        step=next((view.step for view in case.views(calls)), StepName()),
        evidence=(
            f"collective {seq} of group {group.name}: {words.listed(calls_said)}",
            (f"on {case.name(users)}, threads {words.listed(map(repr, threads))} have issued calls in it"),
        ),
        status=Status.FAILED if ended else None,
    )
