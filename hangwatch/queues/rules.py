"""From what a chain of waits goes back to, to a finding: one function for each row of the table.

What the dumps show of a rank is its queue, not its host: that a rank is awaited is a fact of the record, why it has not
come often is not. Then the rank is named, and the cause stays undetermined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Status

from . import devices, in_flight, messages, orders, two_threads
from .circles import circle
from .departures import by_count, departed_in, odd_one
from .finding import Finding, all_waits, collective, not_told, split_unread, victims, wait_edges, without_record
from .follow import Chain
from .history import Histories
from .last_calls import last_calls, last_line
from .late import late_host
from .lone import alone, few_make_it, made_again, new_call, once_more
from .misdirected import in_another_group, misdirected
from .mismatch import mismatched
from .model import Queues
from .moment import ON_ITS_WAY_S, by_what, open_s
from .motion import Lateness, late_by_habit
from .names import at, of_one_path, ranks, say
from .nodes import absent_nodes
from .other_names import under_other_names
from .overrun import overrun
from .own_rounds import fewer_than_ever, or_one_too_many
from .pairs import older_senders
from .stopped_sooner import stopped_sooner
from .stuck import Kind, Stuck, older_records
from .tally import miscounted
from .uneven_turns import turns_more

_MOST_BESIDE = 3  # further groups that a summary tells of
_ENDED = "a process that has ended or is frozen writes none"
_SILENT = {"line of the watchdog": f"{_ENDED}, nor does a rank that waits for no call"}
_HOST = "Such a record shows what a rank has enqueued, and not what its host does: look at the stack or last output of"


def judge(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """The finding for the chain that matters most; none is proven where two threads of a rank mixed their calls."""
    if (mixed := two_threads.concurrent(queues, chain, histories)) is not None:
        return mixed
    return two_threads.doubted(queues, chain, _judge(queues, chain, histories))


def _judge(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    if (strayed := under_other_names(queues, chain) or misdirected(queues, chain)) is not None:
        return strayed
    if chain.circle:
        return circle(queues, chain, histories)
    if (odd := miscounted(queues, chain)) is not None:
        return odd
    root = chain.roots[0]
    if (crossed := in_flight.crossed(queues, chain)) is not None:
        return crossed
    if root.kind is Kind.MISMATCH:
        if (strayed := in_another_group(queues, chain)) is not None:
            return strayed
        if root.peers and (left := messages.left_out_before(queues, chain, histories)) is not None:
            return left
        found = mismatched(root, histories, chain.path)
        if found.certainty is not Certainty.UNDETERMINED:
            return found
        fewer = odd_one(root, histories) if not found.culprits else None
        if fewer is not None and fewer.rank in root.calls:
            return by_count(root, fewer, set(root.calls))
        return orders.parted(queues, chain, histories) or found
    if (late := late_host(queues, chain)) is not None:
        return late
    rules = {
        Kind.ABSENT: _absent,
        Kind.PEER: _peer,
        Kind.STALE: _stale,
        Kind.MISSING: _missing,
        Kind.HELD: devices.held,
        Kind.WIRE: devices.wire,
        Kind.HALF: devices.half_done,
        Kind.QUEUED: devices.queued,
    }
    return rules[root.kind](queues, chain, histories)


# ------------------------------------------------------------------------------------------ awaited ranks


def _absent(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    root = chain.roots[0]
    before = departed_in(root, histories)
    if before is not None:
        return before
    if (turns := turns_more(root, histories)) is not None:
        return turns
    if made_again(root, root.waiting, histories):
        return once_more(root, root.waiting, root.awaited)
    if (more := overrun(root, histories)) is not None:
        return more
    if (missed := orders.missed(queues, chain, histories)) is not None:
        return missed
    new = new_call(root, histories)
    if new and few_make_it(root, histories):
        return alone(root)
    if new is False and len(root.waiting) < len(root.awaited):
        return _ahead(queues, root)
    if not new and _may_still_come(queues, root):
        return _ahead(queues, root)
    habit = late_by_habit(queues, root) if not (queues.live or root.expired) else None
    if habit is not None:
        return _late_again(queues, root, habit)
    return _never_came(queues, chain)


def _late_again(queues: Queues, root: Stuck, habit: Lateness) -> Finding:
    """The others wait for a rank as they did in most of such calls before: it is slow, and may be no more than that."""
    late, many = ranks(root.awaited), len(root.awaited)
    usual = (
        f"in {habit.late} of the last {habit.looked_at} such calls the others had waited longer than {late}, by"
        f" {words.duration(habit.typical_s)} in the median"
    )
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{words.capital(late)} {words.verb(many, 'has', 'have')} not come to {collective(root)}{at(root.call)}, for"
        f" which {say(root.waiting, 'waits', 'wait')}, as in most such calls before:"
        f" {words.verb(many, 'it is', 'they are')} slow, and whether the job stood still these records do not tell.",
        status=Status.WAITING,
        victims=root.waiting,
        evidence=(usual, *_open_for(queues, root), *last_calls(queues, root.awaited, root)),
        waits=wait_edges(root),
        fix=f"find out what makes {late} slow in every round; if the job stood still when these were written, look at"
        f" {words.verb(many, 'its host', 'their hosts')}",
        passing=True,
    )


def _open_for(queues: Queues, root: Stuck) -> tuple[str, ...]:
    stood = open_s(queues, root)
    return () if stood is None else (f"{by_what(queues, root)}, this one had been open for {words.duration(stood)}",)


def _never_came(queues: Queues, chain: Chain) -> Finding:
    """Ranks that wait nowhere have not enqueued a call for which others wait, in one group or in several."""
    root = chain.roots[0]
    beside = _beside(chain)
    absent = sorted({*root.awaited, *(rank for each in beside for rank in each.awaited)})
    path = (*chain.path, *beside)
    more = "".join(f" {_not_in(each)}." for each in beside[:_MOST_BESIDE])
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{ranks(root.awaited, capital=True)} never enqueued {collective(root)}{at(root.call)}, for which"
        f" {say(root.waiting, 'waits', 'wait')}.{more}",
        culprits=tuple((rank, last_line(queues, rank)) for rank in absent),
        victims=victims(path, absent),
        evidence=(*last_calls(queues, absent, root), *stopped_sooner(root), *without_record(queues, root)),
        details=(f"{_HOST} {ranks(absent)}.",),
        alternatives=tuple(_elsewhere(queues, absent, root)),
        waits=all_waits(reversed(path)),
        fix=f"find out what {ranks(absent)} did after the last call that is recorded: another path of the code,"
        " the end of its data, an exception, or a call that blocks the host",
        passing=True,
    )


def _elsewhere(queues: Queues, absent: Collection[int], root: Stuck) -> Iterator[Alternative]:
    """Where the host of a rank may be that has left a record, and so lived, and has nothing open in it."""
    alive = [rank for rank in absent if rank in queues.ranks]
    if root.kind is Kind.MISSING and not root.group.default:
        said = f"{root.group.title} may not have been made on {ranks(absent)}: no call of it is recorded there"
        yield Alternative("new-group-mismatch", Certainty.UNDETERMINED, said)
    if alive:
        lived = f"{ranks(alive)} lived when {words.verb(len(alive), 'it', 'they')} left a {queues.record}"
        hosts = words.verb(len(alive), "its host was in code of its own", "their hosts were in code of their own")
        ended = f"that the loop of {ranks(alive)} had ended, it does not show either"
        yield Alternative("user-code-blocked", Certainty.UNDETERMINED, f"{lived}, which does not show that {hosts}")
        yield Alternative("uneven-steps", Certainty.UNDETERMINED, ended)


def _beside(chain: Chain) -> list[Stuck]:
    """Calls of other groups for which other ranks are awaited."""
    return [each for each in chain.beside if not set(each.awaited) <= set(chain.roots[0].awaited)]


def _not_in(one: Stuck) -> str:
    """Nor have ranks 5-7 enqueued all_reduce 4 of group 6, for which ranks 1 and 2 wait"""
    have = words.verb(len(one.awaited), "has", "have")
    what = f"{collective(one)}{at(one.call)}"
    return f"Nor {have} {ranks(one.awaited)} enqueued {what}, for which {say(one.waiting, 'waits', 'wait')}"


def _may_still_come(queues: Queues, root: Stuck) -> bool:
    """Half of all ranks are ahead, and nothing says that the rest stand: a healthy job shows that at many moments.

    torch gave the call up nowhere, and the awaited ranks, which were at it before, have none open anywhere.
    """
    if root.expired or set(root.group.members) != queues.ranks or len(root.waiting) > len(root.awaited):
        return False
    own = (lane for rank in root.awaited for _, lane in queues.lanes_of(rank))
    used = all(len(root.group.lanes[rank]) for rank in root.awaited)
    return used and all(lane.first_open() is None for lane in own)


def _ahead(queues: Queues, root: Stuck) -> Finding:
    """Some ranks have come to the next regular call first, and the rest have completed everything before it."""
    call = root.call
    stood = open_s(queues, root)
    if root.expired:
        status, tail = Status.HUNG, "torch gave that call up"
    elif stood is not None and stood >= ON_ITS_WAY_S:
        status, tail = Status.HUNG, f"{by_what(queues, root)}, that call was open for {words.duration(stood)}"
    else:
        status, tail = Status.WAITING, "nothing in these records shows a fault"
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{say(root.waiting, 'is', 'are', capital=True)} ahead and"
        f" {words.verb(len(root.waiting), 'waits', 'wait')} for {ranks(root.awaited)} in {collective(root)}{at(call)};"
        f" {ranks(root.awaited)} completed every earlier call: {tail}.",
        status=status,
        culprits=tuple((rank, last_line(queues, rank)) for rank in root.awaited) if status is Status.HUNG else (),
        victims=root.waiting,
        evidence=last_calls(queues, root.awaited, root),
        alternatives=_or_in_a_new_group(root) if status is Status.HUNG and not queues.live else (),
        waits=wait_edges(root),
        fix="if the job stood still when these were written, look at the hosts of the ranks that are awaited",
        passing=True,
    )


def _or_in_a_new_group(root: Stuck) -> tuple[Alternative, ...]:
    """Several ranks may stand in one call that no record shows, and wait there for those that seem to be ahead."""
    if len(root.awaited) < 2:
        return ()
    said = (
        f"{ranks(root.waiting)} may have left out a call in which {ranks(root.awaited)} wait: the first call of a group"
        " leaves no record until its communicator is set up"
    )
    return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)


def _stale(
    queues: Queues, chain: Chain, histories: Histories, before: str = "collectives that other ranks completed with"
) -> Finding:
    root = chain.roots[0]
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"The dumps are of different moments: {_that_of(root.awaited)} {words.verb(len(root.awaited), 'ends', 'end')}"
        f" before {before} {words.verb(len(root.awaited), 'it', 'them')}, and so went on;"
        f" {say(root.waiting, 'was', 'were')} in {collective(root)}{at(root.call)}.",
        status=Status.HUNG if root.expired else Status.WAITING,
        victims=root.waiting,
        evidence=last_calls(queues, root.awaited, root),
        fix="if the job stood still, dump all ranks again at one moment",
        passing=True,
    )


def _missing(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """All ranks of which it is known have enqueued it; of some it is not known."""
    root = chain.roots[0]
    if all(_is_whole(queues, rank) for rank in root.awaited):
        return _never_came(queues, chain)
    missing, nodes = len(queues.missing()), absent_nodes(queues)
    world = missing + len(queues.ranks)
    few = 2 * len(root.awaited) <= len(root.group.members) and (missing == 1 or 2 * missing < world)
    beside = _beside(chain)
    blamed = sorted({*root.awaited, *(rank for each in beside for rank in each.awaited)} - nodes) if few else []
    more = "".join(
        f" Nor is it known of {ranks(each.awaited)} in {collective(each)}." for each in beside[:_MOST_BESIDE]
    )
    lost = [rank for rank in root.awaited if rank in queues.ranks]
    silent, unread = split_unread(queues, set(root.awaited) - queues.ranks - set(queues.earlier))
    ended = [rank for rank in silent if rank not in nodes]
    older = [rank for rank in root.awaited if rank in queues.earlier]
    why = words.listed(
        filter(
            None,
            (
                f"there is no {queues.record} of {ranks(silent)}" if silent else "",
                f"{_that_of(lost)} {words.verb(len(lost), 'does', 'do')} not tell of this group" if lost else "",
                f"{_that_of(older)} {words.verb(len(older), 'is', 'are')} of an earlier run" if older else "",
                f"{_that_of(unread)} cannot be read" if unread else "",
            ),
        )
    )
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"All ranks whose {queues.record} tells of it have enqueued {collective(root)}{at(root.call)} alike, and {why}:"
        " either the record is elsewhere, or"
        f" {words.verb(len(root.awaited), 'that rank has', 'those ranks have')} not come.{more}",
        culprits=tuple((rank, None) for rank in blamed),
        victims=victims((*chain.path, *beside), blamed or root.awaited),
        evidence=(f"no {queues.record} of {ranks(ended)}: {_SILENT.get(queues.record, _ENDED)}",) if ended else (),
        alternatives=(*((_died(silent),) if blamed and silent else ()), *_anew(queues)),
        waits=wait_edges(root),
        fix=f"give the records of {ranks(root.awaited)} {'of that run' if older else 'too'}; if there are none, look at"
        f" {words.verb(len(root.awaited), 'its process', 'their processes')} first",
        passing=True,
    )


def _is_whole(queues: Queues, rank: int) -> bool:
    """Whether a rank left a dump of all calls that it has made."""
    dumped = rank in queues.ranks and rank in queues.versions  # a line of the watchdog tells no version of dumps
    return dumped and not any(lane.lost for _, lane in queues.lanes_of(rank))


def _that_of(who: Collection[int]) -> str:
    return f"{words.verb(len(who), 'that', 'those')} of {ranks(who)}"


def _died(silent: list[int]) -> Alternative:
    said = f"{ranks(silent)} may have ended: the launcher's exit codes and the last output tell"
    return Alternative("rank-died", Certainty.UNDETERMINED, said)


def _anew(queues: Queues) -> Iterable[Alternative]:
    """A process that was started anew has calls of a run to which no other rank came."""
    if len(queues.earlier) > len(queues.ranks):
        said = f"{ranks(queues.ranks)} may have ended and been started anew, while {ranks(queues.earlier)} waited on"
        yield Alternative("rank-died", Certainty.UNDETERMINED, said)


# ------------------------------------------------------------------------------------------ point-to-point


def _peer(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    root = chain.roots[0]
    if not older_records(queues).isdisjoint(root.awaited):
        return _stale(queues, chain, histories)
    if not older_senders(queues).isdisjoint(root.awaited):
        return _stale(queues, chain, histories, "sends that other ranks received from")
    if (left := messages.left_out_of_batch(queues, chain)) is not None:
        return left
    if (fewer := fewer_than_ever(queues, chain, histories)) is not None:
        return fewer
    (rank,), (peer,) = root.waiting, root.awaited
    call = root.calls[rank]
    wanted, word = ("recv", "receive") if call.op == "send" else ("send", "send")
    known = peer in queues.ranks
    lacking = f"; no {wanted} with it on rank {peer}" if known else ""
    said = f"rank {peer} never enqueued the {word} for it" if known else not_told(queues, (peer,))
    alike = [each for each in _beside(chain) if _is_alike(each, root)]
    absent = sorted({peer, *(other for each in alike for other in each.awaited)})
    others = [other for other in absent if other != peer]
    more = f" So it is with {ranks(others)} in other groups." if others else ""
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"Rank {rank} waits in a {'send to' if call.op == 'send' else 'receive from'} rank {peer} in {root.group.title}"
        f"{at(call)}, and {said}.{more}",
        culprits=tuple((each, last_line(queues, each)) for each in absent if each not in absent_nodes(queues)),
        victims=victims((*chain.path, *alike), absent),
        evidence=(f"open on rank {rank}: {call.op} {root.number}{at(call)}{lacking}",),
        details=(f"{_HOST} rank {peer}.",) if known else (),
        alternatives=or_one_too_many(queues, root),
        waits=all_waits(reversed((*chain.path, *alike))),
        fix=f"give the records of {ranks(absent)} too"
        if absent_nodes(queues).issuperset(absent)
        else f"find out why {ranks(absent)} did not come to {words.verb(len(absent), 'its', 'their')} {word}",
        passing=True,
    )


def _is_alike(one: Stuck, root: Stuck) -> bool:
    """The same call from the same lines, in another group: replicas of one pipeline have a group each."""
    if one.group is root.group or one.call is None or root.call is None:
        return False
    return of_one_path(one.call, root.call)
