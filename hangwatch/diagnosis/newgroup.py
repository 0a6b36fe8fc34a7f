"""new_group, which every rank must call for every group, in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..activity import Doing
from ..records import Certainty, Frame, GroupMade, Phase, Stage, Status
from . import words
from .case import Case, RankView
from .finding import Finding

Members = tuple[int, ...]


@dataclass(frozen=True)
class _Call:
    """The first call of new_group, by its number, in which the ranks differ."""

    index: int
    made: dict[int, GroupMade]  # by rank
    lacking: tuple[int, ...]  # ranks that have not made it

    @property
    def lists(self) -> Counter[Members]:
        return Counter(made.members for made in self.made.values())

    @property
    def odd(self) -> tuple[int, ...]:
        """Ranks with another list than most; all of them where there is no majority."""
        most, count = self.lists.most_common(1)[0]
        if 2 * count > len(self.made) + len(self.lacking):
            return tuple(sorted(rank for rank, made in self.made.items() if made.members != most))
        return tuple(sorted(self.made))

    def where(self, rank: int) -> Frame | None:
        return self.made[rank].where if rank in self.made else None


def new_group_mismatch(case: Case) -> Finding | None:
    """Ranks stand in new_group, and not all of them have made the same calls of it."""
    inside = [view for view in case if not view.dead and _is_inside(view)]
    call = _first_difference(case) if inside else None
    if call is None:
        return None
    if len(call.lists) > 1:
        return _different_lists(case, inside, call)
    return _not_called(case, inside, call)


def _is_inside(view: RankView) -> bool:
    return view.main.doing is Doing.NEW_GROUP or view.phase is Phase.GROUP


def _first_difference(case: Case) -> _Call | None:
    readings = {view.rank: view.reading for view in case if view.reading is not None}
    made = {rank: {each.index: each for each in reading.groups_made} for rank, reading in readings.items()}
    for index in sorted({index for calls in made.values() for index in calls if index > 0}):
        here = {rank: calls[index] for rank, calls in made.items() if index in calls}
        lacking = tuple(rank for rank, calls in made.items() if index not in calls and index > max(calls, default=-1))
        # The board says "" of members for a group of all ranks that is not there yet.
        if len({each.members for each in here.values() if each.members}) > 1 or lacking:
            return _Call(index, here, lacking)
    return None


def _different_lists(case: Case, inside: list[RankView], call: _Call) -> Finding:
    odd, stuck = call.odd, [view.rank for view in inside]
    settled = all(view.steady for view in inside)
    certain = settled and _cannot_come(case, stuck)
    lists = [f"{case.name(ranks)} {_list(members)}" for members, ranks in _by_list(call)]
    first = case.ranks[odd[0]]
    return Finding(
        "new-group-mismatch",
        Certainty.PROVEN if certain else Certainty.LIKELY,
        f"The ranks called new_group with different lists: call {call.index} was made with {words.listed(lists)}"
        f"{words.at(call.where(odd[0]))}; {case.wait_words(stuck)} in new_group.",
        culprits=tuple(case.ranks[rank].culprit(call.where(rank)) for rank in odd),
        victims=tuple(rank for rank in stuck if rank not in odd),
        step=first.step,
        evidence=tuple(_evidence(call)),
        status=Status.HUNG if certain or case.stalled(stuck) else Status.WAITING,
    )


def _not_called(case: Case, inside: list[RankView], call: _Call) -> Finding | None:
    """Some ranks have not made the call: they never will, or they are late."""
    members = next(iter(call.lists))
    awaited = [rank for rank in call.lacking if not members or rank in members]
    stuck = [view.rank for view in inside if view.rank in call.made]
    if not awaited or not stuck:
        return None
    never = _cannot_come(case, awaited) and all(view.steady for view in inside)
    first = case.ranks[awaited[0]]
    if not never and not case.blocked.keys() & set(awaited):
        return _late(case, awaited, stuck, call)
    return Finding(
        "new-group-mismatch",
        Certainty.PROVEN if never else Certainty.LIKELY,
        f"{case.name(awaited, capital=True)} did not call new_group({_list(members)}), and"
        f" {words.verb(len(awaited), 'is', 'are')} elsewhere{words.at(first.where)};"
        f" {case.wait_words(stuck)} in it{words.at(call.where(stuck[0]))}.",
        culprits=tuple(case.ranks[rank].culprit() for rank in awaited),
        victims=tuple(stuck),
        step=first.step,
        evidence=tuple(_evidence(call)),
        status=Status.HUNG if never or case.stalled(stuck) else Status.WAITING,
    )


def _late(case: Case, awaited: list[int], stuck: list[int], call: _Call) -> Finding:
    first = case.ranks[awaited[0]]
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.name(awaited, capital=True)} {words.verb(len(awaited), 'has', 'have')} not called new_group yet"
        f"{words.at(first.where)}; {case.wait_words(stuck)} in it{words.at(call.where(stuck[0]))}.",
        culprits=tuple(case.ranks[rank].culprit() for rank in awaited),
        victims=tuple(stuck),
        evidence=tuple(_evidence(call)),
        stage=Stage.START,
        awaited=tuple(awaited),
    )


def _cannot_come(case: Case, ranks: list[int]) -> bool:
    """None of these ranks can go on to another call: each waits for others, has ended its training, or is gone."""
    held = {*case.blocked, *case.gone}
    held |= {view.rank for view in case if view.steady and view.main.doing is Doing.NEW_GROUP}
    return all(rank in held or case.ranks[rank].over for rank in ranks)


def _by_list(call: _Call) -> Iterable[tuple[Members, list[int]]]:
    for members, _ in call.lists.most_common():
        yield members, sorted(rank for rank, made in call.made.items() if made.members == members)


def _list(members: Members) -> str:
    if not members:
        return "all ranks"
    return f"[{', '.join(map(str, members))}]" if len(members) <= words.SHOWN else f"ranks {words.ranges(members)}"


def _evidence(call: _Call) -> Iterable[str]:
    for rank, made in sorted(call.made.items())[: words.SHOWN]:
        state = "returned" if made.done else "has not returned"
        yield f"rank {rank}: call {call.index} of new_group, {_list(made.members)}{words.at(made.where)}, {state}"
    if call.lacking:
        yield f"{words.ranks(call.lacking)} made no call {call.index} of new_group"
