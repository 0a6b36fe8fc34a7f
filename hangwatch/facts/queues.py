"""The queues of the devices of live ranks, in the model that dumps are read into: so one diagnosis serves both."""

from __future__ import annotations

from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.queues import Queues
from hangwatch.queues.model import COMPLETED, RETIRED, SCHEDULED, STARTED, Call, Communicator, Lane
from hangwatch.ranks.device_waits import on_device
from hangwatch.ranks.ledger import Group

NS_IN_S = 1e9


@once
def queues_of(case: Case) -> Queues:
    """The queues of all groups whose calls run on a device, as far as the ranks' records tell of them."""
    return _Reader(case).queues()


class _Reader:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.found = Queues(ranks=frozenset(case.ranks), world_size=case.size, record="record")
        self._places: dict[Call, int] = {}

    def queues(self) -> Queues:
        groups = [group for group in self.case.ledger.groups.values() if _runs_on_devices(group)]
        by_key = {group.key: self._communicator(group) for group in groups}
        for rank in self.case.ranks:
            own = {group.name: by_key[group.key] for group in self.case.ledger.groups_of(rank) if group.key in by_key}
            self._fill(rank, own)
        self.found.communicators = list(by_key.values())
        return self.found

    def _communicator(self, group: Group) -> Communicator:
        described = next((head.description for head in group.heads.values() if head.description), "")
        found = Communicator(group.name, group.members, described)
        for rank, head in group.heads.items():
            found.lanes[rank] = Lane(rank, enqueued=head.issued, started=head.completed, completed=head.completed)
        return found

    def _fill(self, rank: int, own: dict[str, Communicator]) -> None:
        """The collectives of one rank, in the order in which it made them."""
        for order, call in enumerate(self.case.ledger.calls(rank).values()):
            if call.group not in own:
                continue
            lane, state = own[call.group].lanes[rank], _state(call)
            self.found.timed = self.found.timed or bool(call.started)
            lane.lost = lane.lost or (not len(lane) and call.seq > 1)
            lane.add(call.seq, self._place(call), state, int((call.at or 0.0) * NS_IN_S), order)
            if state != SCHEDULED:
                lane.started = max(lane.started, call.seq)

    def _place(self, call: Collective) -> int:
        """Where the call stands among all distinct ones."""
        made = Call(call.op, "", call.sizes, call.output_sizes, call.dtypes, frames=call.frames)
        place = self._places.setdefault(made, len(self.found.calls))
        if place == len(self.found.calls):
            self.found.calls.append(made)
        return place


def _runs_on_devices(group: Group) -> bool:
    return all(on_device(group, rank) for rank in group.heads)


def _state(call: Collective) -> int:
    if call.retired:
        return COMPLETED | RETIRED
    return STARTED if call.started else SCHEDULED
