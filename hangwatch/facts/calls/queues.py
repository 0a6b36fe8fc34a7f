"""The calls of live ranks as queues, in the model that dumps are read into: so one diagnosis of them serves both."""

from __future__ import annotations

from hangwatch.facts.case import Case, once
from hangwatch.model import Certainty, Collective, GroupHead
from hangwatch.queues import Assessment, Queues, assess
from hangwatch.queues.departure import Departure
from hangwatch.queues.model import COMPLETED, RETIRED, SCHEDULED, STARTED, Call, Communicator, Lane
from hangwatch.ranks.device_waits import python_frames
from hangwatch.ranks.joined import by_join
from hangwatch.ranks.ledger import Group, is_numbered

NS_IN_S = 1e9  # nanoseconds


@once
def queues_of(case: Case) -> Queues:
    """The collectives of all groups, by torch's flight recorder; without sends and receives.

    A rank of which only the board is known left no record: the board does not list what DDP issues from C++. Where a
    rank failed without a record, or none has any, the boards are read instead, of all ranks.
    """
    return _Reader(case).queues()


@once
def assessed(case: Case) -> Assessment:
    """What the judge of queues says of them; nothing where ranks left the order for calls of `Join`, as is meant."""
    said = assess(queues_of(case))
    departure = said.found.departure if said.found is not None else None
    return Assessment(None, ()) if departure is not None and _stand_in(case, departure) else said


def _stand_in(case: Case, departure: Departure) -> bool:
    """Those that left the order have run out of inputs there, and `Join` makes DDP's calls for them."""
    own = case.ledger.under(departure.group.name, departure.number, departure.ranks)
    return len(own) == len(departure.ranks) and all(map(by_join, own.values()))


def departure_of(case: Case) -> Departure | None:
    """Where ranks left the order of calls that the others kept, and how; None where that is not the cause, or unknown.

    Where ranks called from another line what no rank had called before, their other facts say more.
    """
    found = assessed(case).found
    known = found is not None and found.parted and found.certainty is not Certainty.UNDETERMINED
    return found.departure if found is not None and known else None


class _Reader:
    def __init__(self, case: Case) -> None:
        self.case = case
        recorded = frozenset(view.rank for view in case if view.evidence.collectives.complete)
        self.boards = not recorded or any(view.failed and view.rank not in recorded for view in case)
        if self.boards:
            recorded = frozenset(view.rank for view in case if any(map(is_numbered, view.evidence.board_calls)))
        level = not case.divergences and all(view.step.step is not None for view in case)
        self.found = Queues(ranks=recorded, world_size=case.size, record="record", level=level, gaps=True, live=True)
        self._places: dict[Call, int] = {}

    def queues(self) -> Queues:
        by_key = {key: self._communicator(group) for key, group in self.case.ledger.groups.items()}
        for rank in sorted(self.found.ranks):
            own = {group.name: by_key[group.key] for group in self.case.ledger.groups_of(rank)}
            self._fill(rank, own)
        self.found.communicators = list(by_key.values())
        self.found.hosts = {view.rank: python_frames(view) for view in self.case if view.steady and not view.failed}
        return self.found

    def _communicator(self, group: Group) -> Communicator:
        described = next((head.description for head in group.heads.values() if head.description), "")
        found = Communicator(group.name, group.members, described)
        for rank in self.found.ranks & group.heads.keys():
            head = group.heads[rank]
            completed = self._completed(rank, head)
            found.lanes[rank] = Lane(rank, enqueued=head.issued, started=completed, completed=completed)
        return found

    def _completed(self, rank: int, head: GroupHead) -> int:
        """What a device has completed, a board does not know: then what its rank has come out of counts as complete."""
        if not self.boards or head.completed >= 0:
            return head.completed
        calls = filter(is_numbered, self.case.ledger.open_calls(rank))
        return min((call.seq for call in calls if call.group == head.name), default=head.issued + 1) - 1

    def _fill(self, rank: int, own: dict[str, Communicator]) -> None:
        """The collectives of one rank, in the order in which it made them.

        The board has older ones too, and of each only the user's line: it does not compare with the other record.
        """
        evidence = self.case.ranks[rank].evidence
        calls = filter(is_numbered, evidence.board_calls if self.boards else evidence.collectives.recent)
        for order, call in enumerate(calls):
            if call.group not in own:
                continue
            lane = own[call.group].lanes[rank]
            state = _state(call, lane.completed)
            self.found.timed = self.found.timed or bool(call.started)
            lane.lost = lane.lost or (not len(lane) and call.seq > 1)
            lane.add(call.seq, self._place(call), state, int((call.at or 0.0) * NS_IN_S), order)
            step = self.case.ledger.step_of(rank, call)
            lane.steps.append(-1 if step is None else step)
            if state != SCHEDULED:
                lane.started = max(lane.started, call.seq)

    def _place(self, call: Collective) -> int:
        """Where the call stands among all distinct ones."""
        made = Call(call.op, "", call.sizes, call.output_sizes, call.dtypes, frames=call.frames)
        place = self._places.setdefault(made, len(self.found.calls))
        if place == len(self.found.calls):
            self.found.calls.append(made)
        return place


def _state(call: Collective, completed: int) -> int:
    """How far a call is: the board knows of its calls only how many of the group are complete."""
    if call.retired or (call.retired is None and call.seq <= completed):
        return COMPLETED | RETIRED
    return STARTED if call.started else SCHEDULED
