"""One collective that ranks called with different operations, sizes or types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from hangwatch import words
from hangwatch.facts.call_site import Path, framework, path, site
from hangwatch.facts.calls.call_sites import HABIT, sites_of
from hangwatch.facts.calls.callers import caller_of
from hangwatch.facts.calls.hash_order import by_hash
from hangwatch.facts.calls.last_calls import brought_down, end_sentences
from hangwatch.facts.calls.mismatches import Shape, culprits_at, differing, mispaired, place_of, shape
from hangwatch.facts.calls.queues import departure_of
from hangwatch.facts.calls.skip_paths import condition, own_condition
from hangwatch.facts.case import Case
from hangwatch.facts.messages.peer_sizes import unlike_pair
from hangwatch.facts.rank_end import aborted_for_its_size
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Collective, Frame, Status, StepName
from hangwatch.queues.departure import Departure
from hangwatch.queues.departure_words import habit_of
from hangwatch.ranks.issuers import issuer
from hangwatch.ranks.ledger import CALLS_TOLD, Group, family
from hangwatch.ranks.sides import by_value, spread
from hangwatch.ranks.tensors import elements
from hangwatch.rules.by_hash import with_its_hash
from hangwatch.rules.finding import Finding
from hangwatch.rules.undetermined import of_either_side
from hangwatch.stacks.frames import user_frame

FEW = 3  # times as many ranks call something else: the others of the group have not come, and may be of either side


def mispaired_by_a_hash(case: Case) -> Finding | None:
    """Members of a group issued different calls under one number, to all of which one loop over a set leads.

    All ranks make these calls, each in an order of its own: no condition next to one of them decided.
    """
    found = mispaired(case) if case.in_trouble else None
    if found is None or by_hash(case, _ways_to(found.calls).values()) is None:
        return None
    return collective_mismatch(case) if len({path(call.frames) for call in found.calls.values()}) > 1 else None


def _ways_to(calls: Mapping[int, Collective]) -> dict[int, Path]:
    return {rank: path(call.frames) for rank, call in calls.items()}


def collective_mismatch(case: Case) -> Finding | None:
    """Members of a group issued one sequence number with different operations, types or sizes."""
    found = mispaired(case)
    if found is None:
        return None
    ways = _ways_to(found.calls)
    return with_its_hash(case, _mismatch(case, found.group, found.seq, found.calls), "collective-mismatch", ways)


def _is_at(order: Departure, group: Group, seq: int) -> bool:
    """Whether the order of calls was left at that collective: groups of other members may have the same name."""
    return (order.group.name, order.group.members, order.number) == (*group.key, seq)


def _what_differs(sides: Iterable[Shape]) -> str:
    """Of calls of one kind no rank called another collective: what they brought differs, or from where it came."""
    shapes = list(sides)
    if len({each.kind for each in shapes}) > 1:
        return "The ranks call different collectives at the same point"
    if len({each.root for each in shapes}) > 1:
        return f"The ranks call {shapes[0].kind} with different roots at the same point"
    return f"The ranks call {shapes[0].kind} with different sizes or types at the same point"


def _fix(case: Case, sides: dict[Shape, list[int]], calls: dict[int, Collective]) -> str:
    if len({one.kind for one in sides}) > 1:
        return "call the same operation on every rank at this point: what decides must be the same on all of them"
    if len({one.root for one in sides}) > 1:
        return "agree on the root: choose it from what is the same on every rank, or broadcast the choice from rank 0"
    lines = [{words.place(place_of(case, rank, calls)) for rank in ranks} for ranks in sides.values()]
    if all(lines) and not set.intersection(*lines):
        decide = (
            "the ranks are at different lines: decide alike on every rank whether, and how often, each call is made"
        )
        return "; ".join((decide, *_behind(case, calls)))
    return _fix_of_items(case, calls)


def _fix_of_items(case: Case, calls: dict[int, Collective]) -> str:
    """For a line that calls for one item after another, and leaves some out by a condition; else as in the catalogue.

    Where the ranks differ in that, they bring different items under one number, and no item need be padded.
    """
    several = all(_several_in_its_step(case, rank, call) for rank, call in calls.items())
    behind = list(_behind(case, calls)) if several else []
    if not behind:
        return ""
    return (
        f"{behind[0]}: make that call for every item on every rank, with zeros where there is nothing, or let all ranks"
        " have the same items; where one item itself differs in size, pad it to the largest"
    )


def _several_in_its_step(case: Case, rank: int, call: Collective) -> bool:
    return sum(each == site(call) for each in sites_of(case).in_step(rank, call.step)) > 1


def _behind(case: Case, calls: dict[int, Collective]) -> Iterator[str]:
    """The conditions that lead to these calls, of whose values the ranks may have their own."""
    for place in by_value({rank: path(call.frames) for rank, call in calls.items()}):
        way = own_condition(case, place) if place else None
        if way is not None:
            yield f"{words.place(Frame(*place[0], ''))} is behind {condition(way)}"


def _mismatch(case: Case, group: Group, seq: int, calls: dict[int, Collective]) -> Finding:
    sides = differing(calls)
    outvoted, unlike = _odd_ones(sides, len(group.members)), _unlike_before(case, calls)
    order = departure_of(case) if not unlike else None
    if order is not None and order.habit and _is_at(order, group, seq):
        unlike = list(order.ranks)
    most = spread(set(unlike) - set(outvoted)) if outvoted else []
    if most and all(_lacks(case, rank, calls[outvoted[0]]) for rank in most):
        return _either_side(case, group, seq, calls, sides)
    odd = outvoted or unlike
    if not odd and len({issuer(case.ledger, rank, call) for rank, call in calls.items()}) > 1:
        odd = sorted(calls)  # the order of threads is a matter of chance, on whichever rank
    if not odd and not _one_call(case, calls) and not _each_its_own(case, calls):
        return _either_side(case, group, seq, calls, sides)
    witnesses = _witnesses(case, outvoted, unlike, calls, order)
    first = bool(outvoted) and _same_until(case, group, seq, calls, outvoted)
    if first:
        witnesses += (Witness(Kind.PLACE, "all calls of that group before it are alike on every rank"),)
    texts, ended = _told(case, calls, sides), _ended(case, calls)
    step = next((view.step for view in case.views(odd or calls)), StepName())
    details = (f"{case.name(ended, capital=True)} ended because of it.",) if ended else ()
    return Finding(
        "collective-mismatch",
        case.weigh(witnesses) if first and not ended else Certainty.LIKELY,
        f"{_what_differs(sides)}: {words.listed(texts)}.",
        fix=_fix(case, sides, calls),
        culprits=culprits_at(case, odd, calls),
        victims=tuple(rank for rank in calls if rank not in odd),
        step=step,
        evidence=(f"collective {seq} of group {group.name}: {words.listed(texts)}",),
        witnesses=witnesses,
        details=details,
        status=Status.FAILED if ended else None,
        awaited=tuple(calls),
    )


def _lacks(case: Case, rank: int, usual: Collective) -> bool:
    """`rank` made that call in each of its last steps, and not in its present one: most ranks may have left it out."""
    now = case.ranks[rank].step.step
    made = {call.step for call in sites_of(case).used(rank, usual)}
    return now is not None and now not in made and made.issuperset(range(now - HABIT, now))


def _told(case: Case, calls: dict[int, Collective], sides: dict[Shape, list[int]]) -> list[str]:
    """What each side calls, and where; the fewest ranks first."""
    return [
        f"{case.say(ranks, 'calls', 'call')} {side}{_places(case, ranks, calls)}"
        for side, ranks in sorted(sides.items(), key=lambda item: (len(item[1]), item[1]))
    ]


def _places(case: Case, ranks: list[int], calls: dict[int, Collective]) -> str:
    """` (train.py:70)`, ` (train.py:70, train.py:60)`: where they call, most of them first; "" if unknown."""
    counts = Counter(place for rank in ranks if (place := words.place(place_of(case, rank, calls))))
    shown = [place for place, _ in counts.most_common(words.SHOWN)]
    return f" ({', '.join(shown)})" if shown else ""


def _ended(case: Case, calls: dict[int, Collective]) -> list[int]:
    return [view.rank for view in case.views(calls) if view.dead or view.raised]


def _each_its_own(case: Case, calls: dict[int, Collective]) -> bool:
    """No rank has ever made the call of another one, as in the branches of one condition: nothing was left out.

    Two functions of a framework are no branches: one may come after the other.
    """
    sides = by_value({rank: site(call) for rank, call in calls.items()})
    of_frameworks = {one.caller[:2] for one in sides if one is not None and framework(one)}
    return (
        len(sides) > 1
        and None not in sides
        and len(of_frameworks) < 2
        and all(
            (sides.keys() - {own}).isdisjoint(map(site, case.ledger.calls(rank).values()))
            for own, ranks in sides.items()
            for rank in spread(ranks)
        )
    )


def _one_call(case: Case, calls: dict[int, Collective]) -> bool:
    """Whether the ranks are in one call of the program: they call from one line, which only made calls of that kind.

    Else one of them may as well have left a call out, or made one that the others do not make.
    """
    lines = {words.place(place_of(case, rank, calls)) for rank in calls}
    kinds = {family(call.op) for call in calls.values()}
    past = (call for rank in spread(calls) for call in case.ledger.calls(rank).values())
    before = {family(call.op) for call in past if _at(call) in lines}
    return len(lines) == 1 and "" not in lines and len(before | kinds) == 1


def _at(call: Collective) -> str:
    return words.place(user_frame(call.frames))


def _either_side(
    case: Case, group: Group, seq: int, calls: dict[int, Collective], sides: dict[Shape, list[int]]
) -> Finding:
    """Different calls were paired, and nothing tells which of the ranks are not where they should be."""
    texts, ended = _told(case, calls, sides), _ended(case, calls)
    return replace(
        of_either_side(f"{_what_differs(sides)}: {words.listed(texts)}"),
        step=next((view.step for view in case.views(calls)), StepName()),
        evidence=(f"collective {seq} of group {group.name}: {words.listed(texts)}",),
        status=Status.FAILED if ended else None,
        awaited=tuple(calls),
    )


def _witnesses(
    case: Case, outvoted: list[int], unlike: list[int], calls: dict[int, Collective], order: Departure | None
) -> tuple[Witness, ...]:
    """Most members call the same; and what a rank brings is unlike all that it brought to this call before."""
    heard = []
    if outvoted:
        usual = [rank for rank in calls if rank not in outvoted]
        heard.append(Witness(Kind.MAJORITY, f"most of the members that have called agree: {case.name(usual)}"))
    if unlike:
        says = _new_words(case, unlike, calls) if order is None else habit_of(order)
        heard.append(Witness(Kind.HABIT, says, agrees=not outvoted or set(unlike) == set(outvoted)))
    return tuple(heard)


def _new_words(case: Case, unlike: list[int], calls: dict[int, Collective]) -> str:
    """What is new about the calls of these ranks: their line, or their size at a line that knew only one."""
    before = [[str(shape(call)) for call in sites_of(case).used(rank, calls[rank])] for rank in unlike]
    if len(usual := set(chain(*before))) == 1 and all(before):
        earlier = "all earlier calls" if min(map(len, before)) > 1 else "the one earlier call"
        return f"in {earlier} on record {case.name(unlike)} called {usual.pop()} there"
    return f"{case.name(unlike)} alone called otherwise than ever before, or from a new line"


def _same_until(case: Case, group: Group, seq: int, calls: dict[int, Collective], outvoted: list[int]) -> bool:
    """Nothing before it differs, all call from one line, and no outvoted rank has made its call before elsewhere.

    Then the ranks are at one point of the program; else some may have a call more or less than the others before it.
    """
    sites = sites_of(case)
    if len({caller for rank in calls if (caller := caller_of(case, rank, calls[rank])) is not None}) > 1:
        return False
    lines = {rank: words.place(place_of(case, rank, calls)) for rank in calls}
    usual = {line for rank, line in lines.items() if rank not in outvoted}
    if any(lines[rank] not in usual and sites.used(rank, calls[rank]) for rank in outvoted):
        return False
    asked = [*spread(outvoted), *spread(rank for rank in calls if rank not in outvoted)]
    for earlier in range(max(seq - CALLS_TOLD, 1), seq):
        made = case.ledger.under(group.name, earlier, asked)
        if len({site(call) for call in made.values()}) > 1 or len(differing(made)) > 1:
            return False
    return True


def _odd_ones(sides: dict[Shape, list[int]], members: int) -> list[int]:
    """The ranks that differ from more than half of the group's members, or are few among those that have called."""
    largest = max(sides.values(), key=len)
    odd = sorted(rank for ranks in sides.values() if ranks is not largest for rank in ranks)
    return odd if 2 * len(largest) > members or FEW * len(odd) <= len(largest) else []


def _unlike_before(case: Case, calls: dict[int, Collective]) -> list[int]:
    """The rank that alone calls from a new place, or with a size it never used before; none where that is not clear."""
    sites = sites_of(case)
    regular = {rank: sites.used(rank, calls[rank]) for rank in calls}
    new = sorted(rank for rank, before in regular.items() if not before)
    if new:
        return new if len(new) < len(calls) and all(len(before) > 1 for before in regular.values() if before) else []
    odd = sorted(rank for rank, before in regular.items() if shape(calls[rank]) not in map(shape, before))
    alike = all(len(set(map(shape, before))) == 1 for before in regular.values())
    return odd if alike and len(odd) < len(calls) else []


def aborted_by_a_peers_size(case: Case) -> Finding | None:
    """A rank ended in a receive of another size than the send that came (gloo aborts the receiver)."""
    pair = unlike_pair(case)
    ended = case.ranks[pair.receiver] if pair is not None else None
    if pair is None or ended is None or not (ended.dead or ended.raised):
        return None
    if not brought_down(case) and not aborted_for_its_size(ended):
        return None
    takes, brings = _of_peer("receives", pair.receive), _of_peer("sent", pair.send)
    odd = () if pair.odd is None else (pair.odd,)
    habit = f"rank {pair.odd} had brought another size to each of its last calls of that kind" if odd else ""
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"Rank {pair.receiver} {takes} from rank {pair.sender}, which {brings}: a send and a receive are mispaired.",
        fix="make both ranks send and receive as often, in the same order and with the same sizes",
        culprits=tuple(
            case.ranks[rank].culprit(user_frame((pair.send if rank == pair.sender else pair.receive).frames))
            for rank in odd
        ),
        victims=tuple(rank for rank in case.ranks if rank not in odd),
        step=case.ranks[pair.receiver].step,
        evidence=end_sentences(case),
        witnesses=(Witness(Kind.HABIT, habit),) if habit else (),
        status=Status.FAILED,
    )


def _of_peer(verb: str, call: Collective) -> str:
    return f"{verb} {words.plural(elements(call.sizes) or 0, 'element')}{words.at(user_frame(call.frames))}"
