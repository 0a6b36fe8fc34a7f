"""The watchdog's side of the other nodes, where there is no dashboard: when they are asked, heeded and answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hangwatch.model import Certainty, HealthWarning, Job, Judgement, Launched, Snapshot, Status
from hangwatch.version import __version__
from hangwatch_agent.peers.peers import SHARED, Nap, Peers, Ruling, elsewhere, present
from hangwatch_agent.peers.plans import SharedPlans
from hangwatch_agent.roster.hello import hello
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.job_identity import shared_identity
from hangwatch_agent.watchdog.incidents import WORTH_AN_INCIDENT
from hangwatch_agent.watchdog.response import Response
from hangwatch_agent.watchdog.triggers import slow_after


@dataclass(frozen=True)
class Here:
    """The job as this node knows it at one moment."""

    job: Job
    rank_states: Sequence[RankState]
    launched: Sequence[Launched]
    world_size: int | None

    @property
    def is_part(self) -> bool:
        """Whether the job has ranks on other nodes."""
        return elsewhere(self.rank_states, self.launched, self.world_size)

    @property
    def shared_job(self) -> Job:
        """The job under the name that all nodes have for it."""
        identities = (each.reading.identity for each in self.rank_states)
        return replace(self.job, id=shared_identity(self.job.id, identities))

    def is_still(self, now: float) -> bool:
        """Whether every rank here is slower than it has been of late."""
        return all(now - each.moved_at >= slow_after(each) for each in self.rank_states)


class PeerExchange:
    """Judges with the other nodes, so that a hang of all is reported once; `plans` compares what is to come."""

    def __init__(
        self,
        peers: Peers,
        response: Response,
        clock: Callable[[], float] = steady_clock.time,
        plans: SharedPlans | None = None,
    ) -> None:
        self._peers, self._response, self._clock, self._plans = peers, response, clock, plans

    def heed(self, here: Here, now: float, own: Callable[[], tuple[Judgement, Snapshot]]) -> None:
        """Give evidence to a node that asks for it, and take over what another one has judged."""
        if not here.is_part:
            return
        job = here.shared_job
        heard = self._peers.heard(job, present(here.rank_states, now), still=here.is_still(now))
        if isinstance(heard, Ruling):
            self._response.adopt(heard, here.rank_states)
        elif heard is not None:
            judgement, snapshot = own()
            self._peers.answer(heard, job, judgement, snapshot)

    def forecasts(self, here: Here, now: float, *, everywhere: bool) -> tuple[HealthWarning, ...]:
        """What the plans of all nodes' ranks foretell, where it is new: told by the node of rank 0, or `everywhere`."""
        living = [each for each in here.rank_states if each.alive and not each.reading.detached]
        if self._plans is None or not living or not here.is_part:
            return ()
        host = living[0].reading.identity.host
        return self._plans.compare(
            lambda: hello(here.shared_job, host, 0.0, living, __version__),
            now,
            judging=everywhere or any(each.rank == 0 for each in living),
        )

    def acted_upon(self, here: Here, now: float) -> tuple[HealthWarning, ...]:
        """The forecasts that another node has perhaps acted upon a moment before this one."""
        return self._plans.acted_upon(now) if self._plans is not None and here.is_part else ()

    def is_due(self, judgement: Judgement, here: Here, now: float) -> bool:
        """Whether the other nodes should be asked: an incident is near, or no rank moves and some wait."""
        known = self._response.incidents.open
        if not here.is_part:
            return False
        if known is not None and known.verdict.certainty is Certainty.PROVEN:
            return False
        waiting = judgement.status is Status.WAITING and any(each.blocked for each in here.rank_states)
        return judgement.status in SHARED or (waiting and here.is_still(now))

    def act(self, judgement: Judgement, snapshot: Snapshot, here: Here, *, closing: bool, nap: Nap) -> Judgement:
        """Ask the others, and act on what all know. Returns the judgement of that, or this node's own."""
        found = self._peers.together(
            here.shared_job,
            judgement,
            snapshot,
            present(here.rank_states, self._clock()),
            ending=closing or judgement.status is Status.FAILED,
            nap=_doze if closing else nap,
        )
        if isinstance(found, Ruling):
            self._response.adopt(found, here.rank_states)
            return judgement

        def judged() -> None:
            if found.question:
                worth = found.judgement.status in WORTH_AN_INCIDENT
                self._peers.told(found.question, self._response.incidents.open if worth else None)

        self._response.act(found.judgement, found.snapshot, here.rank_states, judged)
        return found.judgement

    def leave(self) -> None:
        """Say to the other nodes that this one is done."""
        incidents = self._response.incidents
        self._peers.leave(tidy=incidents.open is None and not incidents.closed)
        if self._plans is not None:
            self._plans.leave()


def _doze(seconds: float) -> bool:
    """Sleep while the job ends, when the watchdog's own loop no longer sleeps."""
    time.sleep(seconds)
    return False
