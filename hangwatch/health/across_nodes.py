"""What the plans of ranks on several nodes tell together: each node compares its own ranks only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hangwatch.model import GroupHead, HealthWarning, LoaderFacts, NodeHello, RankPlan, Reading
from hangwatch.wire import members

from .nccl_environment import differing
from .plans_differ import plans_differ
from .sampler_full_copy import sampler_full_copy
from .sampler_world_mismatch import sampler_world_mismatch
from .step_waits import waits_always
from .telling import Ranks, world
from .uneven_forecast import uneven_forecast

MOST_GROUPS = 64  # of those that a rank has made, the first ones
MOST_LOADERS = 4  # of a rank: those of training and validation, and no more than a reader wants to see


def plan_of(reading: Reading) -> RankPlan:
    """A rank's plan, without what moves by the second."""
    rank = reading.identity.rank
    assert rank is not None
    training = [_still(loader) for loader in reading.loaders if loader.training]
    return RankPlan(rank, tuple(training[:MOST_LOADERS]), reading.groups_made[:MOST_GROUPS], waits_always(reading))


def _still(loader: LoaderFacts) -> LoaderFacts:
    return replace(loader, drawn=min(loader.drawn, 1), inside_next=False, worker_pids=())


def with_plan(reading: Reading, plan: RankPlan) -> Reading:
    """A reading that knows no more than what travels, with its rank's plan."""
    return replace(reading, loaders=plan.loaders, groups_made=plan.groups_made)


def forecasts(ranks: Ranks, waits: Mapping[int, bool]) -> tuple[HealthWarning, ...]:
    """The warnings of all ranks together; none while a rank of the job is not among them."""
    if len(ranks) < 2 or len(ranks) < world(ranks):
        return ()

    def waiting(reading: Reading, loader: LoaderFacts) -> bool:
        return waits.get(reading.identity.rank if reading.identity.rank is not None else -1, False)

    found = (
        uneven_forecast(ranks, waiting),
        sampler_world_mismatch(ranks),
        sampler_full_copy(ranks),
        plans_differ(ranks),
        differing(ranks),
    )
    return tuple(each for each in found if each is not None)


def forecasts_of(nodes: Sequence[NodeHello], now: float) -> tuple[HealthWarning, ...]:
    """`forecasts` of what nodes say of themselves. Of two that claim a rank the one whose process is newer counts."""
    planned = [each for node in nodes for each in _planned(node, now)]
    newest = {plan.rank: (reading, plan) for reading, plan in sorted(planned, key=_started)}
    readings = {rank: with_plan(reading, plan) for rank, (reading, plan) in newest.items()}
    return forecasts(readings, {rank: plan.waits for rank, (_, plan) in newest.items()})


def _planned(node: NodeHello, now: float) -> Iterator[tuple[Reading, RankPlan]]:
    plans = {plan.rank: plan for plan in node.plans}
    heads = [GroupHead(group.name, members.parse(group.members), backend=group.backend) for group in node.groups]
    for identity in node.ranks:
        if identity.rank is not None and identity.rank in plans:
            own = tuple(head for head in heads if identity.rank in head.members)
            yield Reading(identity, now, heads=own), plans[identity.rank]


def _started(planned: tuple[Reading, RankPlan]) -> float:
    return planned[0].identity.started_at
