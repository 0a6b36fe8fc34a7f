"""Calls of new_group: the first one in which the ranks differ, and which ranks have not made it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case, once
from hangwatch.model import Frame, GroupMade, Phase
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing

Members = tuple[int, ...]


@dataclass(frozen=True)
class GroupCall:
    """The first call of new_group, by its number, in which the ranks differ."""

    index: int
    made: dict[int, GroupMade]  # by rank
    lacking: tuple[int, ...]  # ranks that have not made it
    moved: frozenset[Members] = frozenset()  # lists of this call that ranks gave in another call, and not in this one

    @property
    def lists(self) -> Counter[Members]:
        return Counter(made.members for made in self.made.values())

    @property
    def by_members_only(self) -> Members | None:
        """The one list of which all members have made it, and no other rank; None where there are several such.

        None as well where it was not left out, but given in another order.
        """
        found = [each for each in self.lists if each and {*each} == self._makers(each)]
        return found[0] if len(found) == 1 and found[0] not in self.moved else None

    @property
    def shared_name(self) -> str:
        """The name that groups of different lists have in common; "" where each list has its own."""
        names = {made.name: made.members for made in self.made.values()}
        return next((made.name for made in self.made.values() if made.members != names[made.name]), "")

    def _makers(self, members: Members) -> set[int]:
        return {rank for rank, made in self.made.items() if made.members == members}

    @property
    def odd(self) -> tuple[int, ...]:
        """Ranks that left out a list that its members alone have made, or with another list than most; else all."""
        if self.by_members_only:
            return tuple(sorted(self.made.keys() - self._makers(self.by_members_only)))
        most, count = self.lists.most_common(1)[0]
        if 2 * count > len(self.made) + len(self.lacking):
            return tuple(sorted(rank for rank, made in self.made.items() if made.members != most))
        return tuple(sorted(self.made))

    def where_made(self, members: Members | None) -> Frame | None:
        """Where the call of that list was made."""
        return next((made.where for made in self.made.values() if made.members == members), None)

    def where(self, rank: int) -> Frame | None:
        return self.made[rank].where if rank in self.made else None


def is_in_new_group(view: RankView) -> bool:
    return view.main.doing is Doing.NEW_GROUP or view.phase is Phase.GROUP


def first_difference(case: Case) -> GroupCall | None:
    readings = {view.rank: view.reading for view in case if view.reading is not None}
    made = {rank: {each.index: each for each in reading.groups_made} for rank, reading in readings.items()}
    for index in sorted({index for calls in made.values() for index in calls if index > 0}):
        here = {rank: calls[index] for rank, calls in made.items() if index in calls}
        lacking = tuple(rank for rank, calls in made.items() if index not in calls and index > max(calls, default=-1))
        # The board says "" of members for a group of all ranks that is not there yet.
        if len({each.members for each in here.values() if each.members}) > 1 or lacking:
            return GroupCall(index, here, lacking, _moved(here, made))
    return None


def _moved(here: dict[int, GroupMade], made: dict[int, dict[int, GroupMade]]) -> frozenset[Members]:
    lists = {each.members for each in here.values()}
    elsewhere = ({call.members for call in calls.values() if call != here.get(rank)} for rank, calls in made.items())
    return frozenset(lists.intersection(set[Members]().union(*elsewhere)))


def cannot_come(case: Case, ranks: Iterable[int]) -> bool:
    """None of these ranks can go on to another call: each waits for others, has ended its training, or is gone."""
    held = _held(case)
    return all(rank in held or case.ranks[rank].over for rank in ranks)


@once
def _held(case: Case) -> frozenset[int]:
    inside = {view.rank for view in case if view.steady and view.main.doing is Doing.NEW_GROUP}
    return frozenset({*case.blocked, *case.gone, *inside})


def members_words(members: Members) -> str:
    if not members:
        return "all ranks"
    return f"[{', '.join(map(str, members))}]" if len(members) <= words.SHOWN else f"ranks {words.ranges(members)}"


def sentences(call: GroupCall) -> Iterable[str]:
    for rank, made in sorted(call.made.items())[: words.SHOWN]:
        state = "returned" if made.done else "has not returned"
        listed = members_words(made.members)
        yield f"rank {rank}: call {call.index} of new_group, {listed}{words.at(made.where)}, {state}"
    if call.lacking:
        yield f"{words.ranks(call.lacking)} made no call {call.index} of new_group"


@dataclass(frozen=True)
class NotCalled:
    """A call of new_group in which ranks are stuck, and those that have not made it. `never`: they cannot."""

    call: GroupCall
    awaited: tuple[int, ...]
    stuck: tuple[int, ...]
    never: bool

    def odd(self, case: Case) -> tuple[int, ...]:
        """The ranks to blame: those that have not made it.

        Where these go on as in all their steps before, the call is new to the whole job: then the fewer, and of two
        halves none, unless the source lets only some ranks come to it.
        """
        usual = all(sites_of(case).regular(rank) and (case.ranks[rank].step.step or 0) > 0 for rank in self.awaited)
        more = len(self.call.made) - len(self.call.lacking)
        if not usual or more > 0:
            return self.awaited
        return self.stuck if more < 0 or all(case.ranks[rank].guarded for rank in self.stuck) else ()


@once
def not_called(case: Case) -> NotCalled | None:
    """The call of new_group that some ranks have not made, where all ranks that made it gave the same list."""
    inside = [view for view in case if not view.dead and is_in_new_group(view)]
    call = first_difference(case) if inside else None
    if call is None or len(call.lists) > 1:
        return None
    members = next(iter(call.lists))
    awaited = tuple(rank for rank in call.lacking if not members or rank in members)
    stuck = tuple(view.rank for view in inside if view.rank in call.made)
    if not awaited or not stuck:
        return None
    return NotCalled(call, awaited, stuck, cannot_come(case, awaited) and all(view.steady for view in inside))


def is_only_late(case: Case, found: NotCalled) -> bool:
    """The awaited ranks may still come: nothing holds them for ever, and they wait in no collective."""
    return not found.never and case.blocked.keys().isdisjoint(found.awaited)
