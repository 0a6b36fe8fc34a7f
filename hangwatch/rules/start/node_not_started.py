"""A node of which no rank was ever started."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import BY_OTHERS
from hangwatch.facts.start.launch import Agent
from hangwatch.model import Certainty, Status
from hangwatch.ranks.processes import computed
from hangwatch.rules.finding import Finding

_ONE_ENDPOINT = "give every torchrun the same --master-addr and --master-port, or the same --rdzv-endpoint"


def node_not_started(case: Case) -> Finding | None:
    """torchrun waits for other nodes, and has started no rank."""
    waiting = [each for each in map(Agent, case.snapshot.launchers) if "next_rendezvous" in each.functions]
    if not waiting or any(not view.dead for view in case):
        return None
    expected = case.job.nodes_expected or max(map(_nodes, waiting))
    if expected == 1:
        return None  # it is about to start its ranks
    launchers = [each.process.facts for each in waiting]
    works = any(computed(each) or each.state == "R" for each in launchers)
    hosts = len(case.snapshot.nodes) or 1
    joined = f"{len(waiting)} of {expected} nodes" if expected else words.plural(len(waiting), "node")
    since = min(each.started_at or case.snapshot.taken_at for each in launchers)
    waited = case.snapshot.taken_at - since
    here = "on this machine" if hosts == 1 else f"on {hosts} machines"
    apart = _apart(waiting)
    patience_s = (1.0 if apart else BY_OTHERS) * case.snapshot.start_patience_s
    told = (
        f"{joined} have come, and they wait for each other at different endpoints: {words.listed(apart)}"
        if apart
        else f"{joined} {words.verb(len(waiting), 'has', 'have')} come as far as is known {here}"
    )
    return Finding(
        "node-not-started",
        Certainty.LIKELY,
        f"torchrun waits for more nodes: {told}, and no rank has been started for {words.duration(waited)}.",
        fix=_ONE_ENDPOINT if apart else "",
        evidence=tuple(map(_rendezvous_evidence, waiting[: words.SHOWN])),
        status=Status.HUNG if waited > patience_s and not works else Status.WAITING,
    )


def _apart(waiting: list[Agent]) -> list[str]:
    """Where the launchers wait, if at several ports. One machine may have several names."""
    found = {each.endpoint.rpartition(":")[2]: each.endpoint for each in waiting if ":" in each.endpoint}
    return list(found.values())[: words.SHOWN] if len(found) > 1 else []


def _nodes(agent: Agent) -> int:
    """The least number of nodes that a launcher asks for; 0 where it does not say, and is none of torch's own."""
    of_torch = re.search(r"torchrun|torch[./]distributed[./](run|launch)", agent.process.facts.command)
    return agent.nodes or (1 if of_torch else 0)


def _rendezvous_evidence(agent: Agent) -> str:
    where = f" at {agent.endpoint}" if agent.endpoint else ""
    return f"torchrun (pid {agent.pid}) stands in next_rendezvous{where} and has no ranks below it"
