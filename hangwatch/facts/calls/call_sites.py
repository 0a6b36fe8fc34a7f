"""Which call sites a rank has used before, and which it shares with others.

Sequence numbers cannot say which of two ranks deviated from the others, call sites often can: a rank that waits where
it has waited in every step does what the program usually does, a rank that waits at a new place does not. Sites are
hints and never proof.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hangwatch import words
from hangwatch.facts.call_site import (
    BACKWARD,
    Caller,
    Path,
    Site,
    apart_from,
    by_a_hook,
    by_the_engine,
    framework,
    in_backward,
    path,
    recorded_caller,
    same,
    site,
)
from hangwatch.facts.calls.listed import would_list
from hangwatch.facts.calls.one_visit import of_one_visit
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Frame
from hangwatch.ranks.ledger import family, is_same
from hangwatch.ranks.sides import spread
from hangwatch.stacks.frames import name_of

HABIT = 2  # earlier steps, or turns of a loop, that make a habit
_RHYTHM = 3  # steps with the call, that is two equal gaps between them, that make a rhythm
ALIKE_STEPS = 8  # whole steps on record that show what all steps of a rank are made of


class Sites:
    """The call sites of a case's ranks."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: dict[int, Counter[Site]] = {}
        self._callers: dict[int, Counter[Caller]] = {}
        self._all: dict[int, set[Site]] = {}
        self._in_backward: dict[int, set[Site | None]] = {}
        self._steps: dict[int, dict[int, list[Site]]] = {}

    def now(self, rank: int) -> Site | None:
        """Where `rank` waits now."""
        blocked = self.case.blocked.get(rank)
        if blocked is None:
            return None
        if blocked.call is not None and (found := site(blocked.call)) is not None:
            return found
        if blocked.where is None:
            return None
        file, function, line = blocked.where.file, blocked.where.function, blocked.where.line
        return Site(family(blocked.op), ((file, line),), (file, name_of(function), line))

    def lines_now(self, rank: int) -> Path:
        """The lines by which `rank` came to the call that it is in; its stack tells where the record does not."""
        place = self.now(rank)
        if place is not None and len(place.lines) > 1:
            return place.lines
        return path(self.case.ranks[rank].evidence.main_stack)

    def before(self, rank: int) -> Counter[Site]:
        """How often `rank` has used each site, in collectives that are complete and in sends and receives before.

        Of a rank that died nothing may say what was complete: what it issued before its last call then counts.
        """
        if rank not in self._known:
            heads = {group.name: group.heads[rank] for group in self.case.ledger.groups_of(rank)}
            gone = rank in self.case.ranks and self.case.ranks[rank].dead
            through = {
                name: head.issued - 1 if gone and head.completed < 0 else head.completed for name, head in heads.items()
            }
            calls = self.case.ledger.calls(rank).items()
            found = [site(call) for (name, seq), call in calls if seq <= through.get(name, 0)]
            found += [site(call) for call in self._messages(rank)]
            self._known[rank] = Counter(each for each in found if each is not None)
        return self._known[rank]

    def _made(self, rank: int) -> set[Site]:
        """The sites of all that `rank` has issued, complete or not."""
        if rank not in self._all:
            issued = (site(call) for call in self.case.ledger.calls(rank).values())
            self._all[rank] = {*self.before(rank), *(each for each in issued if each is not None)}
        return self._all[rank]

    def _messages(self, rank: int) -> list[Collective]:
        """The sends and receives of `rank` on record, without the one in which it waits."""
        blocked = self.case.blocked.get(rank)
        now = blocked.message if blocked is not None else None
        return [call for call in self.case.ledger.messages(rank) if now is None or not is_same(call, now)]

    def callers(self, rank: int) -> Counter[Caller]:
        """How often each function has called, in all calls of `rank` that are on record."""
        if rank not in self._callers:
            found = (recorded_caller(call) for call in self.case.ledger.calls(rank).values())
            self._callers[rank] = Counter(each for each in found if each is not None)
        return self._callers[rank]

    def any_called_from(self, made: Caller, calls: dict[int, Collective]) -> bool:
        """A rank has made another call from there than the one in `calls`."""
        asked = {*spread(calls), *spread(rank for rank in self.case.ranks if rank not in calls)}
        known = {rank: recorded_caller(calls[rank]) == made if rank in calls else False for rank in asked}
        return any(self.callers(rank)[made] > this_one for rank, this_one in known.items())

    def inside(self, rank: int, group: str, step: int) -> tuple[Counter[Site], set[Site]] | None:
        """The sites of one group that `rank` used in one step, and those that it used before, where recorded."""
        span = self.case.ledger.span(rank, group, step)
        if span is None:
            return None
        within: Counter[Site] = Counter()
        earlier: set[Site] = set()
        for call in self.case.ledger.calls_in(rank, group):
            found = site(call) if call.seq <= span[1] else None
            if found is not None and call.seq > span[0]:
                within[found] += 1
            elif found is not None:
                earlier.add(found)
        return within, earlier

    def sequence(self, rank: int, group: str, step: int) -> tuple[Site, ...] | None:
        """The sites of one group that `rank` used in one step, in their order; None where that is not on record."""
        span = self.case.ledger.span(rank, group, step)
        if span is None:
            return None
        made = sorted(self.case.ledger.calls_between(rank, group, span), key=lambda call: call.seq)
        return tuple(place for call in made if (place := site(call)) is not None)

    def usual_step(self, rank: int, group: str) -> Counter[Site] | None:
        """The sites that `rank` used in each whole step on record, in one group; None where its steps differ."""
        steps: dict[int, Counter[Site]] = {}
        for call in self.case.ledger.calls_in(rank, group):
            step, place = self.case.ledger.step_of(rank, call), site(call)
            if step is not None and place is not None:
                steps.setdefault(step, Counter())[place] += 1
        whole = [steps[step] for step in sorted(steps)[1:-1]]  # the record may begin and end within a step
        alike = len(whole) >= ALIKE_STEPS and all(each == whole[0] for each in whole)
        return whole[0] if alike else None

    def most_in_a_step(self, rank: int, group: str, place: Site, before: int) -> int | None:
        """How often at most `rank` has called from `place` in one of its recorded steps before step `before`."""
        counts: Counter[int] = Counter()
        for call in self.case.ledger.calls_in(rank, group):
            step = self.case.ledger.step_of(rank, call) if site(call) == place else None
            if step is not None and step < before:
                counts[step] += 1
        return max(counts.values(), default=None)

    def apart(self, rank: int, others: list[int], place: Site | None = None) -> Frame | None:
        """The innermost line on the way to the call of `rank` from where none of `others` has come to it.

        None where it is the very line of the call: a helper that all ranks use is told by its caller. `place`: of a
        recorded call there, whatever `rank` has come to since.
        """
        there = place or self.now(rank)
        known = {each for other in spread(others) for each in self._made(other)}
        known |= {now for other in others if (now := self.now(other)) is not None}
        return apart_from(there, known) if there is not None else None

    def named(self, rank: int, place: Site, times: int = 1) -> str:
        """`backward (train.py:50)`, `all_reduce (train.py:60)`, `2 calls of all_reduce (train.py:60)`."""
        by_hook = (by_a_hook(call) for call in self.case.ledger.calls(rank).values() if site(call) == place)
        backward = self.in_backward(rank, place) and not next(by_hook, False)
        name = self.called(rank, "backward" if backward else place.kind or "a collective", place)
        return name if backward or times == 1 else f"{times} calls of {name}"

    def called(self, rank: int, op: str, place: Site) -> str:
        """`all_reduce (train.py:60)`, or with the framework's function where calls of several come from that line:

        `all_reduce of log (connector.py:93, below train.py:60)`. A package's thread may have no line of the user's.
        """
        where, below = words.listed(words.place(Frame(*each, "")) for each in place.lines[:1]), self.below(rank, place)
        if below is None or not where:
            return f"{op} ({where})" if where else op
        return f"{op} of {name_of(below.function)} ({words.place(below)}, below {where})"

    def below(self, rank: int, place: Site) -> Frame | None:
        """The framework's function that called, where the user's line says less: others below it have called, too.

        The engine that computes gradients may be one of them: its own threads show no line.
        """
        functions = {each.caller for each in self._made(rank) if each.lines[:1] == place.lines[:1]}
        if any(by_the_engine(call) for call in self.case.ledger.calls(rank).values()):
            functions.add(BACKWARD)
        return framework(place) if len(functions) > 1 else None

    def in_backward(self, rank: int, place: Site) -> bool:
        """The calls of `rank` at `place` were issued by the engine that computes gradients.

        They come in one call or in several, which is not for the user to count.
        """
        if rank not in self._in_backward:
            calls = self.case.ledger.calls(rank).values()
            self._in_backward[rank] = {site(call) for call in calls if in_backward(call)}
        return place in self._in_backward[rank]

    def synchronised(self, rank: int, group: str, steps: set[int] | None = None) -> set[int]:
        """The steps in which a backward of `rank` issued collectives in `group`, as far as recorded.

        Those of `steps`; by default of the steps that are over.
        """
        asked = {step.step for step in self.case.ledger.complete_steps(rank)} if steps is None else steps
        calls = (call for call in self.case.ledger.calls_in(rank, group) if in_backward(call))
        return {step for call in calls if (step := self.case.ledger.step_of(rank, call)) in asked}

    def used(self, rank: int, call: Collective) -> list[Collective]:
        """The earlier calls of `rank` in the group of `call`, from the very place of `call`, or from the engine."""
        earlier = (other for other in self.case.ledger.calls_in(rank, call.group) if other.seq < call.seq)
        if by_the_engine(call):
            return [other for other in earlier if by_the_engine(other)]
        here = site(call)
        known = ((other, site(other)) for other in earlier)
        return [other for other, there in known if here is not None and there is not None and same(here, there)]

    def remembers(self, rank: int) -> bool:
        """Its board has all calls of Python code still, the first one was of its first steps, or it made none."""
        calls, evidence = self.in_order(rank), self.case.ranks[rank].evidence
        all_kept = bool(evidence.board_calls) and evidence.boards_all_calls
        return not calls or all_kept or calls[0].seq <= 1 or (calls[0].step is not None and calls[0].step <= 1)

    def used_from(self, rank: int, call: Collective, maker: int) -> bool:
        """`rank` has called from the place of `call`, which `maker` has made; or that is not known."""
        here, made = site(call), self.case.ranks[maker].evidence.board_calls
        listed = any((each.group, each.seq, each.op) == (call.group, call.seq, call.op) for each in made)
        known = listed or (rank in self.case.ranks and self.case.ranks[rank].evidence.collectives.complete)
        return not known or here is None or any(same(here, each) for each in self._made(rank))

    def due(self, rank: int, place: Site) -> bool | None:
        """By its own rhythm (every so many steps) `place` is due in the rank's present step; None where it has none."""
        now = self.case.ranks[rank].step.step
        steps = sorted(step for step, places in self.earlier_steps(rank).items() if _holds(places, place))
        gaps = {after - before for before, after in pairwise(steps)}
        if now is None or len(steps) < _RHYTHM or len(gaps) != 1:
            return None
        return now - steps[-1] == gaps.pop()

    def ends_epochs(self, rank: int, place: Site) -> bool:
        """`rank` is in the last batch of its epoch, and has called from `place` in such batches alone.

        Which batch is the last one, the epoch before says.
        """
        batch = self.case.ranks[rank].step.batch
        return batch is not None and set(self.ends_made_at(rank, place)) == {batch}

    def ends_made_at(self, rank: int, place: Site) -> list[int | None]:
        """The batches of earlier steps in which `rank` called from `place`; [] unless each of these ended an epoch."""
        steps = self.case.ledger.steps(rank)
        ends = {one.step: one.batch for one, two in pairwise(steps) if one.epoch != two.epoch}
        made = {step for step, places in self.earlier_steps(rank).items() if _holds(places, place)}
        return [ends[step] for step in made] if made <= ends.keys() else []

    def precedes(self, rank: int, earlier: Site, later: Site) -> bool:
        """In the last step of `rank` that had both, `earlier` came before `later`."""
        for _, places in sorted(self.earlier_steps(rank).items(), reverse=True):
            if _holds(places, earlier) and _holds(places, later):
                return next(place for place in places if same(place, earlier) or same(place, later)) == earlier
        return False

    def made_as_often_as_ever(self, rank: int, place: Site) -> bool:
        """In its present step `rank` has called from `place` no less often than in any before: it left none out."""
        before = [places.count(place) for places in self.earlier_steps(rank).values()]
        return 0 < max(before, default=0) <= self.in_step(rank, self.case.ranks[rank].step.step).count(place)

    def in_order(self, rank: int) -> list[Collective]:
        """The recorded calls of a rank, in all groups, as issued."""
        return sorted(self.case.ledger.calls(rank).values(), key=lambda call: call.at or 0.0)

    def by_step(self, rank: int) -> dict[int, list[Site]]:
        """The sites of each recorded step of `rank`, in order."""
        if rank not in self._steps:
            self._steps[rank] = self._by_step(rank)
        return self._steps[rank]

    def in_step(self, rank: int, step: int | None) -> list[Site]:
        """The sites of one step of `rank`, in order; none where that step is not on record."""
        return self.by_step(rank).get(step, []) if step is not None else []

    def earlier_steps(self, rank: int) -> dict[int, list[Site]]:
        """The sites of each recorded step of `rank` but its present one."""
        now = self.case.ranks[rank].step.step
        return {step: places for step, places in self.by_step(rank).items() if step != now}

    def _by_step(self, rank: int) -> dict[int, list[Site]]:
        found: dict[int, list[Site]] = {}
        for call in self.case.ledger.calls(rank).values():
            place, step = site(call), self.case.ledger.step_of(rank, call)
            if place is not None and step is not None:
                found.setdefault(step, []).append(place)
        return found

    def regular(self, rank: int) -> bool | None:
        """`rank` has stood before where it stands now; None where its sites were not recorded."""
        now, before = self.now(rank), self.before(rank)
        if now is None or not before or not would_list(self.case, rank, rank):
            return None
        return any(same(now, other) for other in before) and not of_one_visit(self.case, rank, now)

    def shared(self, rank: int, others: list[int]) -> bool:
        """One of `others` has called from where `rank` stands now, or stands there; or that is not known."""
        now, asked = self.now(rank), spread(others)
        if now is None:
            return False
        if not all(would_list(self.case, rank, other) for other in asked):
            return True
        stand = any(there is not None and same(now, there) for there in map(self.now, asked))
        return stand or any(same(now, place) for other in asked for place in self._made(other))

    def is_new_to_all(self, rank: int, others: list[int]) -> bool:
        """`rank` stands where, as is known, neither it nor any of `others` has called before, nor stands now."""
        return self.regular(rank) is False and not self.shared(rank, others)


@once
def sites_of(case: Case) -> Sites:
    """The sites of a case: what they have found out is remembered for all rules."""
    return Sites(case)


def _holds(places: list[Site], place: Site) -> bool:
    return any(same(other, place) for other in places)
