"""The queues as evidence of ranks: how far each is in its groups, and its calls around the first that is open."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.model import Collective, Collectives, GroupHead, Job, RankEvidence, Snapshot

from .model import COMPLETED, STARTED, STATE, Communicator, Lane, Queues

DUMPS = "dumps"  # the job of dumps, which do not say theirs
AROUND = 4  # calls that are kept before the first open one, and from it on
MANY = 128  # ranks from which on only one each is kept


def snapshot(queues: Queues, name: str = "flight-recorder dumps") -> Snapshot:
    """The evidence of all ranks, as of the last moment that the records tell of; ranks without one are empty."""
    taken_at = queues.last_event / 1e9
    heads: dict[int, list[GroupHead]] = {}
    calls: dict[int, list[Collective]] = {}
    latest: dict[int, int] = {}
    for group in queues.communicators:
        for rank in group.lanes.keys() | group.peers.keys():
            heads.setdefault(rank, []).append(_head(queues, group, rank))
            for lane in filter(None, (group.lanes.get(rank), group.peers.get(rank))):
                calls.setdefault(rank, []).extend(_calls(queues, group, lane))
                latest[rank] = max(latest.get(rank, 0), lane.created[-1] if len(lane) else 0)
    progress = queues.last_completion or max(latest.values(), default=0)
    return Snapshot(
        job=Job(DUMPS, name, queues.world_size),
        taken_at=taken_at,
        ranks=tuple(
            RankEvidence(
                rank,
                collectives=Collectives(
                    tuple(heads.get(rank, ())),
                    tuple(sorted(calls.get(rank, ()), key=lambda call: call.at or 0.0)),
                    source="flight-recorder",
                ),
                still_s=max(taken_at - latest[rank] / 1e9, 0.0) if latest.get(rank) else 0.0,
            )
            if rank in queues.ranks
            else RankEvidence(rank)
            for rank in sorted({*queues.ranks, *queues.missing()})
        ),
        last_progress_at=progress / 1e9,
        sampled_twice=False,
    )


def _head(queues: Queues, group: Communicator, rank: int) -> GroupHead:
    lane, peers = group.lanes.get(rank), group.peers.get(rank)
    some = lane if lane is not None and len(lane) else peers
    ops = [queues.calls[index].op for index in peers.calls] if peers is not None else []
    return GroupHead(
        name=group.name,
        members=group.members,
        description=group.description,
        backend=queues.call(some, 0).backend if some is not None and len(some) else "",
        issued=lane.enqueued if lane is not None else -1,
        completed=_completed(lane) if lane is not None else -1,
        sent=ops.count("send"),
        received=ops.count("recv"),
    )


def _completed(lane: Lane) -> int:
    return min(lane.completed, lane.enqueued) or -1


def _calls(queues: Queues, group: Communicator, lane: Lane) -> Iterator[Collective]:
    middle = lane.first_open()
    middle = len(lane) if middle is None else middle
    around = AROUND if len(queues.ranks) <= MANY else 1
    for place in range(max(middle - around, 0), min(middle + around, len(lane))):
        call = queues.call(lane, place)
        other = call.target if call.op == "send" else call.source
        yield Collective(
            group=group.name,
            seq=lane.numbers[place],
            op=call.op,
            sizes=call.inputs,
            dtypes=call.input_dtypes,
            output_sizes=call.outputs,
            started=lane.states[place] & STATE >= STARTED if queues.timed and lane.rank not in queues.untimed else None,
            retired=lane.states[place] & STATE == COMPLETED,
            peer=group.members[other] if other is not None and other < len(group.members) else other,
            frames=call.frames,
            at=lane.created[place] / 1e9 if lane.created[place] else None,
        )
