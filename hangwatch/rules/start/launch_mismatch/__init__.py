"""The numbers of the launch contradict each other, so that the ranks can never come together."""

from __future__ import annotations

from collections.abc import Callable

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.process_end import end_of
from hangwatch.facts.start.arrivals import LATE, Arrivals, registered
from hangwatch.facts.start.connections import found_port_taken
from hangwatch.facts.start.launch import Agent, agents, tasks
from hangwatch.model import Certainty, Status
from hangwatch.ranks.processes import computed
from hangwatch.rules.finding import Finding
from hangwatch.rules.start.launch_mismatch.contradiction import Contradiction
from hangwatch.rules.start.launch_mismatch.of_agents import agents_disagree, local_endpoint, no_host, too_few_nodes
from hangwatch.rules.start.launch_mismatch.of_tasks import (
    local_master,
    one_rank_for_all,
    other_world_size,
    uneven_nodes,
)

SETTLED_S = 5.0  # what a launcher is about to put right it does at once
CHECKS: tuple[Callable[[Case], Contradiction | None], ...] = (
    one_rank_for_all,
    other_world_size,
    uneven_nodes,
    local_master,
    agents_disagree,
    too_few_nodes,
    local_endpoint,
    no_host,
)


def launch_mismatch(case: Case) -> Finding | None:
    """Ranks or launchers wait for each other, and their own numbers say that they wait in vain."""
    if any(registered(view) for view in case) or _own_errors(case):
        return None
    waiting, launchers = Arrivals(case).waiting, agents(case)
    if not (waiting or launchers or _refused(case)):
        return None
    found = next((found for check in CHECKS if (found := check(case)) is not None), None)
    if found is None:
        return None
    status = _status(case, found, launchers)
    proven = found.complete and status is Status.HUNG
    victims = tuple(view.rank for view in waiting)
    return Finding(
        "launch-mismatch",
        Certainty.PROVEN if found.complete else Certainty.LIKELY,
        f"{found.summary}{_waiting(case, victims, launchers)}.",
        fix=found.fix,
        victims=victims,
        evidence=found.evidence,
        status=status,
        dead=found.summary if proven else "",
        held=victims if proven else (),
        awaited=victims,
    )


def _own_errors(case: Case) -> bool:
    """A rank ended for a reason of its own: that comes first."""
    return any(view.raised and not found_port_taken(view) for view in case)


def _refused(case: Case) -> bool:
    """A rank failed to listen, where another of the same number does."""
    return any(found_port_taken(view) for view in case)


def _status(case: Case, found: Contradiction, launchers: list[Agent]) -> Status:
    if not launchers and not any(each.alive for each in tasks(case)):
        return Status.FAILED
    arrivals = Arrivals(case)
    ages = [*map(arrivals.age, arrivals.waiting), *(_age(case, each) for each in launchers)]
    ages += [case.snapshot.taken_at - each.started_at for each in case.snapshot.launched if each.ended_at is None]
    if any(computed(each.process.facts) for each in launchers) and not arrivals.waiting:
        return Status.WAITING  # it may be about to go on
    late = arrivals.late or arrivals.unborn or (arrivals.waiting and arrivals.still_starting)
    patience = case.snapshot.start_patience_s * (LATE if late else 1.0)
    enough = SETTLED_S if found.complete and not late else patience
    return Status.HUNG if max(ages, default=0.0) > enough else Status.WAITING


def _age(case: Case, agent: Agent) -> float:
    return case.snapshot.taken_at - (agent.process.facts.started_at or case.snapshot.taken_at)


def _waiting(case: Case, ranks: tuple[int, ...], launchers: list[Agent]) -> str:
    if ranks:
        return f"; {case.wait_words(ranks)} in init_process_group{words.at(case.usual_place(ranks))}"
    if launchers:
        named = words.plural(len(launchers), "launcher")
        pids = words.listed([f"pid {each.pid}" for each in launchers[: words.SHOWN]])
        return f"; {named} ({pids}) {words.verb(len(launchers), 'waits', 'wait')} in the rendezvous"
    refused = next(view for view in case if found_port_taken(view))
    return f"; rank {refused.rank} ended with {end_of(refused.evidence.process)}" if refused.dead else ""
