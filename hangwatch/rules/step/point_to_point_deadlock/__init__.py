"""A circle of waits with a send or receive in it."""

from __future__ import annotations

from collections import Counter

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.inner_loops import loop_of
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only
from hangwatch.facts.case import Case, call_words
from hangwatch.facts.loops.ways_out import ways_to_leave
from hangwatch.facts.messages.answers import unanswered
from hangwatch.facts.messages.peer_totals import Uneven, uneven
from hangwatch.facts.messages.rounds import LeftHabit, also_early, left_habit
from hangwatch.facts.messages.ways_past import past_its_sends, past_message
from hangwatch.facts.processes.own_code import status_of
from hangwatch.facts.processes.standstill import all_for_their_devices, awaited_for_a_device
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Certainty, Frame
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.ledger import is_point_to_point
from hangwatch.ranks.view import RankView
from hangwatch.rules.circular import COUNT_ALIKE, circular
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

ANSWER_EACH = "answer each request on every path through the loop, with an error where there is nothing else to say"


def point_to_point_deadlock(case: Case) -> Finding | None:
    """A rank left its habit of sends and receives, for which a peer waits; or ranks wait in a circle."""
    found = left_habit(case)
    if found is not None:
        too = also_early(case, found) if found.early else ()
        return _of_two_sides(case, found, too) if too else _of_habit(case, found)
    return _without_answer(case) or _in_a_circle(case) or _with_a_root(case)


def lacks_a_counterpart(case: Case) -> Finding | None:
    """Ranks wait for their devices, and two of them have not made as many sends as receives with each other."""
    awaited = awaited_for_a_device(case) or all_for_their_devices(case)
    found = uneven(case) if awaited else None
    if found is None or any(case.works(view) for view in awaited):
        return None  # what a kernel computes there may be sent later
    exchange, ranks = found.exchange, [view.rank for view in awaited]
    odd = case.ranks.get(found.odd) if found.odd is not None else None
    lacking = "send" if exchange.lacks_a_send else "receive"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY if odd is not None or found.circle else Certainty.UNDETERMINED,
        f"{case.say(ranks, 'waits', 'wait', capital=True)} for"
        f" {words.verb(len(ranks), 'its device', 'their devices')}{words.at(awaited[0].where)}: rank {exchange.sender}"
        f" has sent {words.plural(exchange.sent, 'message')} to rank {exchange.receiver}, which has enqueued"
        f" {words.plural(exchange.received, 'receive')} from it: a {lacking} is lacking{_elsewhere(case, odd)}"
        f"{_all_around(found)}.",
        fix="" if found.circle else COUNT_ALIKE,
        culprits=(odd.culprit(),) if odd is not None else (),
        victims=tuple(view.rank for view in case if view is not odd),
        step=awaited[0].step,
        evidence=_alone_with_its_count(found) if odd is not None else (),
        status=status_of(case, awaited),
        awaited=tuple(ranks),
    )


def _alone_with_its_count(found: Uneven) -> tuple[str, ...]:
    both = (found.exchange.sent, found.exchange.received)
    own, other = both if found.odd == found.exchange.sender else reversed(both)
    return (f"other ranks of the group count {other:,} messages between them too, none of them {own:,}",)


def _all_around(found: Uneven) -> str:
    return f"; so it is all around the circle of {words.ranks(found.circle)}" if found.circle else ""


def _elsewhere(case: Case, odd: RankView | None) -> str:
    entry = case.blocked.get(odd.rank) if odd is not None else None
    return "" if entry is None else f"; rank {entry.rank} waits in {call_words(entry)}{words.at(entry.where)}"


def _without_answer(case: Case) -> Finding | None:
    """A rank that serves others went on without the answer for which one of them waits."""
    found = unanswered(case)
    if found is None:
        return None
    asked_at, line = user_frame(found.request.frames), user_frame(found.answer.frames)
    ways = tuple(way for way in past_message(case, found.answer) if not _comes_before(way, asked_at))
    answer = "send" if "send" in found.answer.op else "receive"
    rank, peer = words.ranks([found.rank], capital=True), words.ranks([found.peer])
    witnesses = (
        Witness(
            Kind.HABIT,
            f"{found.times:,} times before, that call{words.at(line)} came right behind"
            f" {found.request.op}{words.at(asked_at)} on {words.ranks([found.rank])}",
        ),
    )
    return Finding(
        "point-to-point-deadlock",
        case.weigh(witnesses),
        f"{rank} took a request of {peer} and went on without the {answer} to it{words.at(line)}, which had always"
        f" followed{skip_path(ways)}.",
        fix=ANSWER_EACH,
        culprits=(case.ranks[found.rank].culprit(the_only(ways) or line),),
        victims=tuple(sorted(set(case.blocked) - {found.rank})),
        step=case.ranks[found.rank].step,
        evidence=evidence_of(ways),
        witnesses=witnesses,
    )


def _comes_before(way: Bypass, asked_at: Frame | None) -> bool:
    """It lies ahead of the request that was made: it has not led past the answer to that."""
    if asked_at is None or way.where.scope != asked_at.scope:
        return False
    return way.where.line < asked_at.line


def _in_a_circle(case: Case) -> Finding | None:
    """A circle of waits with a send or receive in it, or a receive whose sender waits elsewhere for good."""
    circle = case.graph.cycle(case.deadlocked)
    entries = [case.blocked[rank] for rank in circle]
    if not any(entry.to_a_peer for entry in entries):
        return None
    return circular(case, "point-to-point-deadlock", entries)


def _with_a_root(case: Case) -> Finding | None:
    """A rank waits in a message for one that went on to a collective of both, from which it may return by itself.

    A root does so that has handed its data over: no circle is proven. It is one where no rank of the job moves.
    """
    pairs = ((entry, _peer_of(case, entry)) for entry in case.blocked.values() if case.all_wait)
    entry, root = next(
        ((one, other) for one, other in pairs if other is not None and _awaits(other, one)), (None, None)
    )
    if entry is None or root is None:
        return None
    lacking = "receive" if "send" in entry.op else "send"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {root.rank} went on to {call_words(root)}{words.at(root.where)} without the {lacking} for which rank"
        f" {entry.rank} waits in {call_words(entry)}{words.at(entry.where)}.",
        fix=COUNT_ALIKE,
        culprits=case.culprits([root.rank]),
        victims=case.victims([root.rank]),
        step=case.ranks[root.rank].step,
        evidence=(f"rank {entry.rank} has not come to {call_words(root)}",),
    )


def _peer_of(case: Case, entry: Blocked) -> Blocked | None:
    """The rank that a send or receive needs, if that waits too."""
    call = entry.message
    return case.blocked.get(call.peer) if call is not None and call.peer is not None else None


def _awaits(root: Blocked, entry: Blocked) -> bool:
    """`root` is in a collective to which the other has not come, and nothing says that it must."""
    return root.need is None and not root.to_a_peer and entry.rank in root.lacking


def no_sender_is_left(case: Case) -> Finding | None:
    """A rank waits for a message of any other one, all of which wait for that rank in their calls, or have ended."""
    lone = [entry for entry in case.blocked.values() if _takes_any(entry)]
    if len(lone) != 1:
        return None
    (entry,) = lone
    rank, call, others = entry.rank, entry.call, [view for view in case if view.rank != entry.rank]
    waiting = [case.blocked[view.rank] for view in others if view.rank in case.blocked]
    over = [view.rank for view in others if view.over and view.rank not in case.blocked]
    if call is None or not others or len(waiting) + len(over) < len(others):
        return None
    if not all(rank in each.lacking for each in waiting) or unanswered(case) is not None:
        return None
    made, counted = _messages(case, call.group, rank, [view.rank for view in others])
    fewer = _with_fewer(made)
    ways = past_its_sends(case, fewer[0], call.group) if len(fewer) == 1 else ()
    less = f"; {words.ranks(fewer)} sent fewer messages than the others{skip_path(ways)}" if fewer else ""
    ended = f"{words.verb(len(over), 'the program', 'the programs')} of {words.ranks(over)}"
    ended = f"{ended} {words.verb(len(over), 'is', 'are')} over" if over else ""
    where = filter(None, (_wait_for_it(case, waiting) if waiting else "", ended))
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"{words.ranks([rank], capital=True)} waits to receive from any rank{words.at(entry.where)}, and no rank is"
        f" left that would send: {words.listed(where)}{less}.",
        fix="let each rank say that it sends no more, and count those messages, not the ones that should come",
        culprits=case.culprits(fewer, the_only(ways)),
        victims=tuple(each for each in (rank, *(other.rank for other in waiting)) if each not in fewer),
        step=case.ranks[rank].step,
        evidence=(
            *((f"{counted} {_shown(made, fewer)}",) if made else ()),
            *evidence_of(ways),
        ),
        awaited=(rank,),
    )


def _wait_for_it(case: Case, waiting: list[Blocked]) -> str:
    inside: dict[str, list[int]] = {}
    for each in waiting:
        inside.setdefault(f"{call_words(each)}{words.at(each.where)}", []).append(each.rank)
    return words.listed(f"{case.wait_words(ranks)} for it in {call}" for call, ranks in inside.items())


def _takes_any(entry: Blocked) -> bool:
    call = entry.call
    return call is not None and is_point_to_point(call) and "recv" in call.op and call.peer is None


def _messages(case: Case, group: str, taker: int, ranks: list[int]) -> tuple[dict[int, int], str]:
    """How many messages each of `ranks` sent in `group`, and what was counted; nothing where it is not known of all.

    A rank that has destroyed its groups no longer tells: then the answers that it got do, where each message has one.
    """
    heads = {rank: [each for each in case.ranks[rank].evidence.board_heads if each.name == group] for rank in ranks}
    if all(heads.values()):
        return {rank: sum(head.sent for head in own) for rank, own in heads.items()}, f"sends in group {group}, by rank"
    taken = [each for each in case.ranks[taker].evidence.board_heads if each.name == group]
    answers = {peer.peer: peer.sent for head in taken for peer in head.peers if peer.sent}
    known = {rank: answers[rank] for rank in ranks if rank in answers}
    return (known if len(known) == len(ranks) else {}), f"answers of rank {taker} in group {group}, to rank"


def _with_fewer(made: dict[int, int]) -> tuple[int, ...]:
    """The fewer ranks that sent less than the rest, all of which sent equally many; () where nothing is usual."""
    (usual, times), *others = Counter(made.values()).most_common() or [(0, 0)]
    known = 2 * times > len(made) and all(count < usual for count, _ in others)
    return tuple(rank for rank, count in made.items() if count < usual) if known else ()


def _shown(made: dict[int, int], fewer: tuple[int, ...]) -> str:
    """`1: 60 and 2: 54`; of a large job a few, those with fewer messages among them."""
    shown = sorted(sorted(made.items(), key=lambda each: each[0] not in fewer)[: words.SHOWN])
    return words.listed(f"{rank}: {count:,}" for rank, count in shown)


def _of_habit(case: Case, found: LeftHabit) -> Finding:
    """One rank made more or fewer sends or receives than in every round before; its peer kept to their number."""
    ways = () if found.too_many or found.repeated else past_message(case, found.call)
    loop = loop_of(case, path(found.call.frames)) if found.repeated else None
    left_at = loop.leaves if loop is not None else ()
    witnesses = (Witness(Kind.HABIT, _habit(found)),)
    where = the_only(ways) or (left_at[0] if len(left_at) == 1 else user_frame(found.call.frames))
    return Finding(
        "point-to-point-deadlock",
        case.weigh(witnesses),
        f"{words.ranks([found.rank], capital=True)} {_did(found)}{skip_path(ways)}.",
        fix=COUNT_ALIKE,
        culprits=(case.ranks[found.rank].culprit(where),),
        victims=tuple(sorted(case.deadlocked - {found.rank})),
        step=found.step or case.ranks[found.rank].step,
        evidence=(*evidence_of(ways), *ways_to_leave(loop)),
        witnesses=witnesses,
    )


def _of_two_sides(case: Case, found: LeftHabit, too: tuple[int, ...]) -> Finding:
    """Several ranks changed their habit in one round, perhaps on purpose: then the one that waits for more is wrong.

    Of that one no number is told: it is in the middle of its own part of the round.
    """
    changed = tuple(sorted((found.rank, *too)))
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"{case.name(changed, capital=True)} went on after fewer sends or receives than in every round before, while"
        f" rank {found.peer} waits in one more of them: which side is wrong is not known.",
        fix=COUNT_ALIKE,
        victims=tuple(case.blocked),
        step=found.step or case.ranks[found.rank].step,
        evidence=(_habit(found), *_in_its_loop(case.ranks[found.peer])),
        awaited=tuple(case.blocked),
    )


def _in_its_loop(view: RankView) -> tuple[str, ...]:
    loop = view.now.loop
    if loop is None or not loop.items:
        return ()
    return (f"rank {view.rank} stands in the loop at {words.place(loop.where)}, which goes through `{loop.items}`",)


def _did(found: LeftHabit) -> str:
    at = words.at(user_frame(found.call.frames))
    if found.too_many:
        return (
            f"made {words.plural(found.made - found.usual, _kind(found))} {_direction(found)} more than in the rounds"
            f" before{at}; rank {found.peer} made its part of them as often as usual"
        )
    if found.early:
        return (
            f"went on after {found.made} of the {words.plural(found.usual, _kind(found))} {_direction(found)}{at}"
            " that it had made in every round before"
        )
    fewer = words.plural(found.usual - found.made, _kind(found))
    return f"left out {fewer} {_direction(found)}{at}, which it had made in every round before"


def _habit(found: LeftHabit) -> str:
    usual = words.plural(found.usual, _kind(found))
    before, now = ("round", "the next") if found.step is None else ("step", words.step(found.step))
    times = f"each of the {found.rounds} {before}s before" if found.rounds > 1 else f"the {before} before"
    return f"rank {found.rank} made {usual} {_direction(found)} in {times}, and {found.made} in {now}"


def _kind(found: LeftHabit) -> str:
    return "send" if "send" in found.call.op else "receive"


def _direction(found: LeftHabit) -> str:
    return f"{'to' if 'send' in found.call.op else 'from'} rank {found.peer}"
