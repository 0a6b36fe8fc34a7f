"""The finding for ranks that wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.calls.call_order import left_its_order, out_of_turn
from hangwatch.facts.calls.skip_paths import passed_at, the_only
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.messages.other_tag import OtherTag, other_tag
from hangwatch.facts.messages.own_order import gone_by, has_new_partner, left_own_order
from hangwatch.facts.messages.passed_sends import passed_sends
from hangwatch.facts.messages.peer_totals import Uneven, alone_with_its_count, exchanged, said_unserved
from hangwatch.facts.messages.rounds import HABITUAL_ROUNDS, record
from hangwatch.facts.messages.ways_past import past_its_sends
from hangwatch.model import Bypass, Certainty, Culprit
from hangwatch.proof.messages import counterpart, serves
from hangwatch.proof.waits import Blocked
from hangwatch.rules.finding import Finding

MOST_EDGES = 4  # of a circle that are told
COUNT_ALIKE = "compute the number of messages from the same values on both sides, or send the number first"

_MIXED = "in messages and in a collective; one side made a message too many, or left one out"
_FIX_OF_MIXED = "see which side went another way: make as many sends as receives, and the collective on every rank"
_FIX_OF_TAGS = (
    "give a message the same tag on both sides: a receive takes no message of another tag; where both tags are meant,"
    " receive the messages in the order in which they are sent"
)
_FIX_OF_RECEIVES = (
    "make each send on every path and ahead of the receives that it came ahead of before; where the number of messages"
    " may vary, send the number first"
)


_FIX_ALL_RECEIVE = (
    "all of these ranks receive, so one of them must send first: see which sends each of them makes ahead of that"
    " receive, such as those of a pipeline's warm-up"
)


def circular(case: Case, cause: str, entries: list[Blocked], astray: Set[int] = frozenset()) -> Finding:
    """That the ranks are deadlocked is proven; which is at fault is not: all ranks of the circle take part alike.

    Those that the queues show `astray` are asked for first.
    """
    following = [*entries[1:], entries[0]]
    edges = [
        f"rank {entry.rank} waits for rank {other.rank} in {call_words(entry)}{words.at(entry.where)}"
        for entry, other in zip(entries, following, strict=True)
    ]
    by_peers = cause == "point-to-point-deadlock"
    tags = next((found for entry in entries if by_peers and (found := other_tag(case, entry)) is not None), None)
    blame = _by_messages(case, entries, tags) if by_peers else _by_groups(case, entries, astray)
    waits = tuple(case.wait(entry.rank, (other.rank,)) for entry, other in zip(entries, following, strict=True))
    mixed = by_peers and not all(entry.to_a_peer for entry in entries)
    alike = "in sends and receives that do not match" if by_peers else "in collectives of different groups"
    return Finding(
        cause,
        Certainty.LIKELY,
        f"{case.name([entry.rank for entry in entries], capital=True)} wait for each other in a circle,"
        f" {_MIXED if mixed else alike}: {_shown(edges)}{_tags(tags)}.",
        fix=(_FIX_OF_TAGS if tags is not None else "")
        or blame.fix
        or (_FIX_OF_MIXED if mixed else _fix_of_receives(case, entries)),
        culprits=tuple(_culprit(case, entry, blame.ways) for entry in blame.entries),
        victims=tuple(sorted(case.deadlocked - {entry.rank for entry in blame.entries})),
        step=case.ranks[entries[0].rank].step,
        evidence=(*edges[: words.SHOWN], *_unserved(case, entries), *blame.why, *_past(case, blame.entries)),
        waits=waits,
    )


@dataclass(frozen=True)
class _Blame:
    """Those of a circle that are at fault as far as anything tells them from the others, and what that is."""

    entries: list[Blocked]
    why: tuple[str, ...] = ()
    fix: str = ""
    ways: tuple[Bypass, ...] = ()  # past the send that the one at fault lacks


def _by_groups(case: Case, entries: list[Blocked], astray: Set[int]) -> _Blame:
    everyone = [*entries, *_also_in(case, entries)]
    known = {entry.rank for entry in everyone}
    asked = [*everyone, *(entry for entry in _awaited(case, entries) if entry.rank not in known)]
    if late := _out_of_turn(case, asked):
        # Of several orders none is the usual one: those that kept theirs did so by chance.
        return _Blame(late if 2 * len(late) <= len(asked) else asked, _astray(case, late))
    return _Blame([entry for entry in entries if entry.rank in astray] or everyone)


def _by_messages(case: Case, entries: list[Blocked], tags: OtherTag | None) -> _Blame:
    if tags is not None:
        apart = {tags.receiver, *((tags.sender,) if tags.sends else ())}
        return _Blame([entry for entry in entries if entry.rank in apart] or entries)
    if behind := _out_of_step(case, entries):
        not_so = f"rank {behind[0].rank} alone did not"
        return _Blame(behind, (f"every other rank changed the order of its calls in that step, and {not_so}",))
    if strays := _strays(case, entries):
        return _Blame(strays, _astray(case, strays))
    if kept := _with_old_partners(case, entries):
        return _Blame(kept, tuple(_alone_in(case, kept)))
    if passed := [entry for entry in entries if entry.rank in passed_sends(case)]:
        return _Blame(passed)
    gone = {rank: steps for entry in entries for rank, steps in _gone_by(case, entry)}
    if len(gone) == 1 and (past := [entry for entry in entries if entry.rank in gone]):
        return _Blame(past, tuple(_ahead(case, entry, gone[entry.rank]) for entry in past))
    alone = alone_with_its_count(case, {entry.rank for entry in entries})
    if alone is not None and (counted := [entry for entry in entries if entry.rank == alone.odd]):
        return _lacks_a_send(case, alone, counted)
    return _Blame([*entries, *_also_in(case, entries)])


def _lacks_a_send(case: Case, alone: Uneven, counted: list[Blocked]) -> _Blame:
    """Where the peer waits for a message of the odd rank, the source may show how that left its send out."""
    exchange = alone.exchange
    peer = exchange.receiver if alone.odd == exchange.sender else exchange.sender
    awaited = case.blocked[peer].message if peer in case.blocked else None
    ways: tuple[Bypass, ...] = ()
    if awaited is not None and alone.odd is not None and awaited.peer == alone.odd and "recv" in awaited.op:
        ways = past_its_sends(case, alone.odd, exchange.group.name, peer)
    return _Blame(counted, (*_told(alone), *((passed_at(ways, "its send"),) if ways else ())), COUNT_ALIKE, ways)


def _gone_by(case: Case, entry: Blocked) -> Iterator[tuple[int, int]]:
    """The peer that `entry` waits for, if it lacks its part in this step, and in how many steps it has made that."""
    call = entry.message
    peer = case.blocked.get(call.peer) if call is not None and call.peer is not None else None
    if call is None or peer is None or peer.to_a_peer:
        return
    other = counterpart(call.op)
    usual = [each for each in record(case, peer.rank) if serves(each, other, entry.rank, call)]
    steps = gone_by(case, peer.rank, usual[-1]) if usual else 0
    if steps >= HABITUAL_ROUNDS:
        yield peer.rank, steps


def _ahead(case: Case, entry: Blocked, steps: int) -> str:
    return (
        f"rank {entry.rank} made its messages ahead of {call_words(entry)}{words.at(entry.where)} in each of"
        f" {steps} steps before, and not in this one"
    )


def _told(alone: Uneven) -> Iterator[str]:
    exchange = alone.exchange
    counts = exchange.sent, exchange.received
    own, usual = counts if alone.odd == exchange.sender else counts[::-1]
    peer = exchange.receiver if alone.odd == exchange.sender else exchange.sender
    yield (
        f"rank {alone.odd} counts {words.plural(own, 'message')} with rank {peer}, as no other ranks of the group do"
        f" between them, and rank {peer} {usual:,}, as others do too"
    )


def _shown(edges: list[str]) -> str:
    """The whole of a small circle; of a large one the beginning."""
    if len(edges) <= MOST_EDGES:
        return "; ".join(edges)
    return f"{'; '.join(edges[: MOST_EDGES - 1])}; and {len(edges) - MOST_EDGES + 1} more"


def _tags(found: OtherTag | None) -> str:
    """`. Rank 0 receives only messages of tag 40 from rank 2 there, which sends it one of tag 30`."""
    if found is None:
        return ""
    sends = "sends" if found.sends else "has sent"
    return (
        f". Rank {found.receiver} receives only messages of tag {found.asked} from rank {found.sender} there, which"
        f" {sends} it one of tag {found.sent}"
    )


def _fix_of_receives(case: Case, entries: list[Blocked]) -> str:
    """What had come before from each of them was right in its order, and a send was left out; else none sends first."""
    calls = [(entry.rank, entry.message) for entry in entries]
    counts = [exchanged(case, call, rank) for rank, call in calls if call is not None and "recv" in call.op]
    served = len(counts) == len(entries) and all(each is not None and each[0] > each[1] > 0 for each in counts)
    return _FIX_OF_RECEIVES if served else _FIX_ALL_RECEIVE if len(counts) == len(entries) else ""


def _unserved(case: Case, entries: list[Blocked]) -> Iterator[str]:
    """Between which two ranks a send or receive is lacking, where all of theirs are on record."""
    by_tag = any(entry.call.tag for entry in entries if entry.call is not None)  # those of one tag serve each other
    for entry in entries:
        if entry.message is not None and (lacking := said_unserved(case, entry.message, entry.rank, by_tag=by_tag)):
            yield lacking


def _also_in(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """Ranks in the same waits as those of the circle, for which a rank of the circle waits too."""
    needs = [entry.need for entry in entries if entry.need is not None]
    return [entry for entry in _awaited(case, entries) if entry.need in needs]


def _awaited(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """The other ranks for which these wait, and which wait themselves."""
    needs = [entry.need for entry in entries if entry.need is not None]
    awaited = {rank for need in needs for rank in need.absent} - {entry.rank for entry in entries}
    return [case.blocked[rank] for rank in sorted(awaited) if rank in case.blocked]


def _strays(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """The one that has left the order of calls of its earlier steps; none where that are several."""
    if any(has_new_partner(case, entry.rank) for entry in entries):
        return []
    found = [entry for entry in entries if left_its_order(case, entry.rank)]
    return found if len(found) == 1 else _out_of_own_order(case, entries)


def _out_of_step(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """The one that kept to the order of its earlier steps, which every other rank of the job has left."""
    asked = {rank: left_its_order(case, rank) for rank in case.ranks} if len(case.ranks) > 2 else {}
    kept = [rank for rank, strays in asked.items() if strays is False]
    return [entry for entry in entries if [entry.rank] == kept] if None not in asked.values() else []


def _with_old_partners(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """The one that kept its partners where every other rank has new ones: all but one were dealt new neighbours."""
    kept = [rank for rank in case.ranks if not has_new_partner(case, rank)]
    return [entry for entry in entries if [entry.rank] == kept] if len(case.ranks) > 2 else []


def _out_of_own_order(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """The one that made sends and receives in another order than before, where all the others kept to theirs."""
    ranks = {entry.rank for entry in entries}
    asked = {entry.rank: left_own_order(case, entry.rank, ranks - {entry.rank}) for entry in entries}
    found = [entry for entry in entries if asked[entry.rank]]
    return found if None not in asked.values() and len(found) == 1 else []


def _out_of_turn(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """Those that took the groups in another order than ever before, where all the others kept to theirs."""
    asked = {entry.rank: out_of_turn(case, entry.rank) for entry in entries}
    found = [entry for entry in entries if asked[entry.rank]]
    return found if None not in asked.values() and len(found) < len(entries) else []


def _astray(case: Case, strays: list[Blocked]) -> tuple[str, ...]:
    if not strays:
        return ()
    ranks, one = case.name([entry.rank for entry in strays]), len(strays) == 1
    its = "it" if one else "they"
    return (f"{ranks} alone {words.verb(len(strays), 'has', 'have')} left the order of calls that {its} kept before",)


def _alone_in(case: Case, kept: list[Blocked]) -> Iterator[str]:
    for entry in kept:
        others = case.name([rank for rank in case.ranks if rank != entry.rank])
        yield f"{others} lately exchanged messages with ranks that are new to them; rank {entry.rank} alone has not"


def _culprit(case: Case, entry: Blocked, ways: tuple[Bypass, ...]) -> Culprit:
    passed = passed_sends(case).get(entry.rank)
    return case.ranks[entry.rank].culprit(the_only(passed.ways if passed is not None else ways))


def _past(case: Case, guilty: list[Blocked]) -> Iterator[str]:
    for entry in guilty:
        if passed := passed_sends(case).get(entry.rank):
            ways = passed_at(passed.ways, "it")
            yield f"rank {passed.witness} stands in the send that rank {entry.rank} is past; {ways}"
