"""Which rank left the order of calls that the others kept: histories of one communicator, compared.

The number under which calls are paired says little: a rank that skipped a call issues the right numbers with the wrong
calls from then on. So each rank's calls, with the whole path of the user's code as token, are compared with those of
most; the first place where they differ is tried as a call that was left out, one that was added, and another call.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from hangwatch.stacks.frames import origin

from .all_groups import AllGroups
from .bundles import is_bundled, is_turn
from .counts import Counted, Odd
from .departure import Departure
from .in_step import more_than_ever
from .loops import RARE, as_ever, ended, ends, in_its_turn, left_as_before, longest, turn_again
from .matching import kind_of, shape
from .model import Call, Communicator, Lane, Queues
from .names import may_leave_a_loop, of_one_path, path_of
from .readings import FARTHEST, SEVERAL, Kind, Reading, as_changed, due, habit, of_a_run, read, regular, swapped
from .rows import came, did_most, left_out_before, usual_rank
from .told import is_sited, told_by_all
from .turns import begun_again, sooner_than_ever


class Histories:
    """The histories of all communicators; calls get small numbers for what they are and where they come from."""

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self._tokens: dict[object, int] = {}
        self._told = told_by_all(queues)
        self.sited = is_sited(queues)
        self._token = array(
            "l", (self._tokens.setdefault(self._identity(call), len(self._tokens)) for call in queues.calls)
        )
        self._shapes = {self._token[index]: shape(call) for index, call in enumerate(queues.calls)}
        self._places = {self._token[index]: call.where for index, call in enumerate(queues.calls)}
        self.all_groups = AllGroups(queues, self._token)
        self.counted = Counted(queues)

    def _identity(self, call: Call) -> object:
        what = self._told[kind_of(call)].of(shape(call))
        if not self.sited:
            return what
        path = tuple(frame for frame in call.frames if origin(frame.file) in ("user", "package"))
        return what, path or call.frames

    def call_of(self, token: int) -> Call:
        """One of the calls that have that number."""
        return self.queues.calls[self._token.index(token)]

    def tokens(self, lane: Lane, first: int = 0) -> array[int]:
        """The calls of a lane as numbers, from the place `first` on."""
        return array("l", map(self._token.__getitem__, lane.calls[first:]))

    def departure(self, group: Communicator, until: int | None = None) -> Departure | None:
        """The earliest departure in a communicator, up to the number `until`; None where all histories agree."""
        rows = self._rows(group)
        if len(rows) < 2:
            return None
        usual = usual_rank(rows)
        compared = (self._compared(group, rank, row, rows[usual], usual) for rank, row in rows.items())
        found = [each for each in compared if each is not None and (until is None or each.number <= until)]
        if not found:
            return None
        first = min(found, key=lambda each: each.number)
        settled = self._settled(first, found, did_most(first, found, rows), rows, usual)
        return self._over_all_groups(self._with_others(settled, rows, usual))

    def _rows(self, group: Communicator) -> dict[int, array[int]]:
        """The calls of each rank, from the first number on that all of them still record."""
        lanes = [lane for lane in group.lanes.values() if len(lane)]
        start = max((lane.numbers[0] for lane in lanes), default=0)
        rows = {lane.rank: self.tokens(lane, lane.places(start).start) for lane in lanes}
        return {rank: row for rank, row in rows.items() if row}

    def _with_others(self, found: Departure, rows: dict[int, array[int]], usual: int) -> Departure:
        """The departure as ranks of other groups tell it, where those of this one do not."""
        others = sorted(self.queues.ranks - set(found.group.members))
        if found.majority or found.by_most or not others:
            return found
        voted = self._voted(found, others, rows, usual) if not found.early else found
        if voted.majority:
            return voted
        odd = self.counted.odd(found.group)
        known = odd is not None and odd.rank in (*found.ranks, *found.against)
        return self._by_count(found, odd, rows, usual) if known and odd is not None else found

    def _voted(self, found: Departure, others: list[int], rows: dict[int, array[int]], usual: int) -> Departure:
        """By the order of calls that ranks of other groups kept."""
        (mine, *_), group, number = found.ranks, found.group, found.number
        theirs = usual if mine != usual else next(iter(found.against), mine)
        left, kept = (self.all_groups.votes(rank, others, group, number) for rank in (mine, theirs))
        if kept and not left:
            return replace(found, majority=True, beside=kept)
        if left and not kept and len(rows) == 2:
            other = self._compared(group, theirs, rows[theirs], rows[mine], mine)
            return replace(other, majority=True, beside=left, against=(mine,)) if other is not None else found
        return found

    def _by_count(self, found: Departure, odd: Odd, rows: dict[int, array[int]], usual: int) -> Departure:
        """The departure of the one rank of its group that has made fewer, or more, calls than ranks of other groups."""
        if odd.rank not in found.ranks:
            other = usual if odd.rank != usual else found.ranks[0]
            seen = self._compared(found.group, odd.rank, rows[odd.rank], rows[other], other)
            found = replace(seen, against=(other,)) if seen is not None else found
        kept = tuple(sorted(rows.keys() - {odd.rank}))
        kind, count = (Kind.SKIPPED if odd.made < odd.usual else Kind.EXTRA), abs(odd.made - odd.usual)
        return replace(
            found,
            kind=kind,
            count=count,
            ranks=(odd.rank,),
            against=kept,
            majority=True,
            beside=odd.witnesses,
            counted=odd,
        )

    def _over_all_groups(self, found: Departure) -> Departure:
        """The departure as the calls of all groups tell it, where they tell more than those of its own."""
        rank, against = found.ranks[0], found.against
        if found.early or found.by_most or found.counted is not None or found.in_step or found.changed:
            return found
        told = self.all_groups.reading(rank, against, found.group, found.number)
        if told is not None and not (found.run and told.agreeing < told.count):
            again = found.again and told.kind is Kind.EXTRA
            found = replace(found, instead=0 if found.kind is Kind.OTHER else found.instead)  # of both it was one
            found = replace(found, kind=told.kind, count=told.count, agreeing=told.agreeing, again=again, run=False)
        if found.left or found.stayed:
            return self._loops_over_all_groups(found)
        if found.ended:
            found = replace(found, ended=found.kind is Kind.SKIPPED and self.all_groups.left_rounds(rank, against))
        if found.kind is Kind.EXTRA and found.repeated and not (found.habit or found.again or found.run):
            # the many made it before as well, and may have left it out
            return replace(found, majority=False, few=found.majority)
        return found

    def _loops_over_all_groups(self, found: Departure) -> Departure:
        """The end of a loop is one over all groups too: in one group, layers that make the same call look like one."""
        rank, call = (found.ranks[0], found.usual) if found.left else (found.against[0], found.own)
        lane = found.group.lanes[rank]
        order = lane.order[lane.places(found.number).start]
        tokens = [each.token for each in self.all_groups.until(rank, order)]
        if tokens and left_as_before(tokens[:-1], tokens[-1], self.token_of(call)):
            return found
        if found.left:
            kind = found.kind if found.agreeing else Kind.OTHER  # calls that were left out, all the same
            return self._over_all_groups(replace(found, kind=kind, ended=False, left=0, habit=0))
        return replace(found, stayed=0)

    def _settled(
        self, first: Departure, found: list[Departure], majority: bool, rows: dict[int, array[int]], usual: int
    ) -> Departure:
        """The first departure with all ranks that share it, seen from the side that kept its habit."""
        ranks = tuple(sorted(each.ranks[0] for each in found if each.is_like(first)))
        kept = tuple(sorted(came(first, rows) - ({each.ranks[0] for each in found} | set(ranks))))
        if not majority and (ruled := self._against_the_rule(replace(first, ranks=ranks, against=kept), rows, usual)):
            return ruled
        if not majority:
            first = self._of_two(first, rows, usual) if len(rows) == 2 else replace(first, habit=first.sited_habit)
            ranks, kept = (ranks, kept) if first.ranks[0] in ranks else (first.ranks, ranks)
        elif len(ranks) == 1 and first.ended and self._comes(as_ever, first, rows):
            # It did as before, and the many made a round more: they may have left that call out.
            return replace(first, against=kept, majority=False, habit=0, ended=False, left=0)
        elif not first.habit and not first.run and self._most_left(first, rows, usual):
            majority = False  # the many did what is new to them, and these ranks what all did before
            if (most := self._left_out_by_most(first, rows, usual)) is not None:
                many = tuple(sorted(came(first, rows) - {each.ranks[0] for each in found}))
                return replace(most, ranks=many, against=ranks, by_most=True)
        return replace(first, ranks=ranks, majority=majority, against=kept)

    def _of_two(self, first: Departure, rows: dict[int, array[int]], usual: int) -> Departure:
        """That of two ranks which left what it had called there before; `first` without a habit where both did."""
        (rank,) = first.ranks
        other = self._compared(first.group, usual, rows[usual], rows[rank], rank)
        if other is not None and not (first.run or other.run):
            for early, late in ((first, other), (other, first)):
                if early.ended and self._comes(as_ever, early, rows):
                    return replace(late, habit=1)
                if early.ended and self._comes(sooner_than_ever, early, rows):
                    return replace(early, habit=1)
        mine = (first.sited_habit or self._habit(first)) if not first.left else 0
        theirs = (other.sited_habit or self._habit(other)) if other is not None else 0
        if other is not None and theirs and not mine:
            return replace(other, habit=theirs)
        return replace(first, habit=0 if theirs else mine)

    def _comes(
        self, when: Callable[[Sequence[int], int, int], bool], one: Departure, rows: dict[int, array[int]]
    ) -> bool:
        """Whether the rank came to the end of its loop after as many, or as few, rounds as `when` asks for."""
        (rank,) = one.ranks
        row, at = rows[rank], self._place(one, rank, rows[rank])
        return when(row[:at], row[at], self.token_of(one.usual))

    def _against_the_rule(self, first: Departure, rows: dict[int, array[int]], usual: int) -> Departure | None:
        """That of the side which did otherwise than always followed on the same calls; of more ranks than half, none.

        Of a run of calls nothing is known but that it went on until now, and a call that is new may be due to all.
        """
        other = self._compared(first.group, usual, rows[usual], rows[first.ranks[0]], first.ranks[0])
        if not self.sited or other is None or first.run or other.run:
            return None
        lane = first.group.lanes[first.ranks[0]]
        call, times = due(self.tokens(lane)[: lane.places(first.number).start]) or (-1, 0)
        other = replace(other, ranks=first.against, against=first.ranks)
        left = {self.token_of(first.usual): first, self.token_of(first.own): other}.get(call)
        if left is None or len(left.ranks) > len(left.against) or not (left.repeated or left.at_one_line):
            return None
        return replace(left, habit=times, majority=False)

    def _place(self, found: Departure, rank: int, row: array[int]) -> int:
        """Where the call of that number is among the calls of a row."""
        lane = found.group.lanes[rank]
        return lane.places(found.number).start - (len(lane) - len(row))

    def _left_out_by_most(self, first: Departure, rows: dict[int, array[int]], usual: int) -> Departure | None:
        """The departure of the many where one call is all that they left out, which had come in each round before."""
        (rank,) = first.ranks
        most = self._compared(first.group, usual, rows[usual], rows[rank], rank)
        if most is None or most.kind is not Kind.SKIPPED or most.ended or most.left or most.stayed or most.run:
            return None
        usual_call = rows[rank].count(self.token_of(most.own)) >= SEVERAL
        return most if usual_call and most.habit >= SEVERAL and most.agreeing else None

    def token_of(self, call: Call) -> int:
        """The number of a call, as the orders of calls have it."""
        return self._tokens[self._identity(call)]

    def _habit(self, one: Departure) -> int:
        """The rank's habit by its calls of all groups: what it called there before; 0 where no call sites tell."""
        if not self.sited or one.run:
            return 0
        (rank,) = one.ranks
        lane = one.group.lanes[rank]
        usual = self.token_of(one.usual)
        return self.all_groups.habit(rank, lane.order[lane.places(one.number).start], usual)

    def _most_left(self, first: Departure, rows: dict[int, array[int]], usual: int) -> bool:
        """Whether it is the majority that left the order which it kept before, in this group or over all of them."""
        (rank,) = first.ranks
        other = self._compared(first.group, usual, rows[usual], rows[rank], rank)
        if other is not None and other.habit and not other.left:
            return True
        places = {each: self._place(first, each, rows[each]) for each in (rank, usual)}
        known = all(rows[each][at] in rows[each][:at] for each, at in places.items())
        ruled = [regular(rows[each], at) for each, at in places.items()] if known else []
        if ruled == [True, False] and not in_its_turn(rows[usual], places[usual], rows[rank][places[rank]]):
            return True
        lanes = {each: first.group.lanes[each] for each in (rank, usual)}
        there = {each: lane.places(first.number) for each, lane in lanes.items()}
        until = {each: lane.order[there[each].start] for each, lane in lanes.items() if there[each]}
        if len(until) < len(lanes) or not self.all_groups.as_before(rank, until[rank]):
            return False
        return self.all_groups.strays(lanes, until) == [usual]

    def _compared(
        self, group: Communicator, rank: int, row: array[int], usual: array[int], other: int
    ) -> Departure | None:
        if rank == other:
            return None
        row, place = self.first_difference(row, usual)
        if place is None:
            return None
        lane, theirs = group.lanes[rank], group.lanes[other]
        in_step = more_than_ever(lane, row, usual, place)
        changed = as_changed(row, usual, place, self._of_one_path)
        reading = in_step or changed or self._reading(row, usual, place)
        may_end, left_stayed = self._may_end(row[place], usual[place]), ends(reading, row, usual, place)
        left, stayed = left_stayed[0] * may_end, left_stayed[1] * self._may_end(usual[place], row[place])
        known = place >= FARTHEST or not (lane.lost or theirs.lost)  # else what seems new may have come before
        tells = not reading.run and (known or row[place] in row[:place])
        at, there = len(lane) - len(row) + place, len(theirs) - len(usual) + place
        again = is_turn(reading, row, place, lane.numbers[at : at + reading.count])
        return Departure(
            Kind.SKIPPED if left else reading.kind,
            group,
            (rank,),
            lane.numbers[at],
            self.queues.call(theirs, there),
            self.queues.call(lane, at),
            reading.count,
            reading.agreeing,
            habit=left or (habit(row[:place], row[place], usual[place]) if tells else 0),
            repeated=row[place] in usual[:place],
            ended=0 < left <= RARE or (known and may_end and ended(reading, row, usual, place)),
            rounds=longest(usual[:place], *sorted((row[place], usual[place]), key=usual[:place].count)),
            sited=self.sited,
            lone=self._is_lone(row, usual, place) if reading.kind is Kind.OTHER and not left else False,
            left=left,
            stayed=stayed,
            run=reading.run,
            twice=reading.again,
            again=again,
            begun_again=again and turn_again(row, place, reading.count) and begun_again(row[:place], row[place]),
            turn_less=reading.kind is Kind.SKIPPED and turn_again(usual, place, reading.count),
            early=not place and lane.lost and theirs.lost,
            went_on=reading.kind is not Kind.SKIPPED or usual[place] in row[place:],
            scattered=reading.scattered,
            instead=self._instead(reading, row, usual, place),
            bundled=is_bundled(reading, lane, at, theirs, there),
            in_step=in_step is not None,
            changed=changed is not None and in_step is None,
        )

    def _instead(self, reading: Reading, row: array[int], usual: array[int], place: int) -> int:
        """The calls of the other reading that explains all; of a turn of a loop, where one may come before the call."""
        turn = row[place : place + reading.instead] if reading.kind is Kind.SKIPPED and place else row[:0]
        return reading.instead if all(self._comes_before(token, usual[place]) for token in turn) else 0

    def _comes_before(self, token: int, last: int) -> bool:
        """Whether a call may be of a loop behind which `last` comes: no line is known that says otherwise."""
        mine, theirs = (path_of(self.call_of(each)) for each in (token, last))
        if not (self.sited and mine and theirs):
            return True
        parts = next(((one, other) for one, other in zip(mine, theirs, strict=False) if one != other), None)
        return parts is not None and parts[0].file == parts[1].file and parts[0].line < parts[1].line

    def _may_end(self, own: int, usual: int) -> bool:
        """Whether that call may come behind a loop of the other one, by the lines that are known."""
        return not self.sited or may_leave_a_loop(self.call_of(own), self.call_of(usual))

    def _is_lone(self, row: array[int], usual: array[int], place: int) -> bool:
        """Whether all calls from a place on are new ones, and not the others' from other lines: a path of its own."""
        own, due = row[place:], usual[place : place + len(row) - place]
        if not self.sited or len(own) < 2 or not set(own).isdisjoint([*usual, *row[:place]]):
            return False
        return Counter(map(self._shapes.get, own[: len(due)])) != Counter(map(self._shapes.get, due[: len(own)]))

    def _reading(self, row: array[int], usual: array[int], place: int) -> Reading:
        """How the row came to part from the usual one, by what is recorded behind the place, or before it."""
        reading = read(row, usual, place, lambda token: self._shapes[token].kind)
        if reading.count > 1 and swapped(row, usual, place) and reading.kind is not Kind.MOVED:
            return Reading(Kind.OTHER)
        if not reading.whole and (skipped := left_out_before(usual[:place], usual[place], row[place])):
            return Reading(Kind.SKIPPED, skipped, instead=reading.instead)
        other_lines = self._of_other_lines(row[place], usual[place])
        run = of_a_run(usual[:place], row[place], usual[place]) if other_lines else Reading(Kind.OTHER)
        weak = reading.kind is Kind.SKIPPED and reading.agreeing < reading.count  # a turn more explains it as well
        return run if not reading.whole or (weak and run.kind is Kind.EXTRA) else reading

    def _of_one_path(self, own: int, usual: int) -> bool:
        return self.sited and of_one_path(self.call_of(own), self.call_of(usual))

    def _of_other_lines(self, own: int, usual: int) -> bool:
        """Whether two calls come from different lines of the user's: then none is the other one, changed."""
        return self.sited and self._places[own] != self._places[usual]

    def first_difference(self, row: array[int], usual: array[int]) -> tuple[array[int], int | None]:
        """The first place where histories differ in more than names of this rank's own for the same calls."""
        length = min(len(row), len(usual))
        if row[:length] == usual[:length]:
            return row, None
        mine, theirs = set(row), set(usual)
        aliases: dict[int, int] = {}
        for place in range(length):
            own, other = aliases.get(row[place], row[place]), usual[place]
            if own == other:
                continue
            if own in theirs or other in mine or self._shapes[own] != self._shapes[other]:
                return array("l", (aliases.get(token, token) for token in row)), place
            aliases[own] = other
        return row, None

    def times(self, group: Communicator, rank: int, call: Call) -> int:
        """How often `rank` has made that call in this communicator, as far as its record goes back."""
        lane, identity = group.lanes.get(rank), self._identity(call)
        counts = Counter(lane.calls) if lane is not None else Counter()
        return sum(count for index, count in counts.items() if self._identity(self.queues.calls[index]) == identity)

    def shares_sites(self, group: Communicator, rank: int, others: Sequence[int]) -> bool:
        """Whether `rank` has calls in its history that others have too: only then a new one means something."""
        lane = group.lanes.get(rank)
        if lane is None or not len(lane):
            return False
        mine = {self._token[index] for index in set(lane.calls)}
        return any(
            mine & {self._token[index] for index in set(group.lanes[other].calls)}
            for other in others
            if other in group.lanes
        )
