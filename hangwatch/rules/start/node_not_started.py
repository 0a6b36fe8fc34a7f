"""A node of which no rank was ever started."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import main_stack
from hangwatch.model import Certainty, ProcessEvidence, Status
from hangwatch.ranks.processes import computed
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import name_of


def node_not_started(case: Case) -> Finding | None:
    """torchrun waits for other nodes, and has started no rank."""
    waiting = [(each, frame) for each in case.snapshot.launchers if (frame := _next_rendezvous(each)) is not None]
    if not waiting or any(not view.dead for view in case):
        return None
    expected = case.job.nodes_expected or max(_nodes(each.facts.command) for each, _ in waiting)
    if expected == 1:
        return None  # it is about to start its ranks
    works = any(computed(each.facts) or each.facts.state == "R" for each, _ in waiting)
    hosts = len(case.snapshot.nodes) or 1
    joined = f"{len(waiting)} of {expected} nodes" if expected else words.plural(len(waiting), "node")
    since = min(each.facts.started_at or case.snapshot.taken_at for each, _ in waiting)
    waited = case.snapshot.taken_at - since
    here = "on this machine" if hosts == 1 else f"on {hosts} machines"
    return Finding(
        "node-not-started",
        Certainty.LIKELY,
        f"torchrun waits for more nodes: {joined} {words.verb(len(waiting), 'has', 'have')} come as far as is known"
        f" {here}, and no rank has been started for {words.duration(waited)}.",
        evidence=tuple(_rendezvous_evidence(each) for each, _ in waiting[: words.SHOWN]),
        status=Status.HUNG if waited > case.snapshot.start_patience_s and not works else Status.WAITING,
    )


def _next_rendezvous(launcher: ProcessEvidence) -> object | None:
    stack = main_stack(launcher.stacks)
    frames = stack.frames if stack is not None else ()
    return next((frame for frame in frames if name_of(frame.function) == "next_rendezvous"), None)


def _nodes(command: str) -> int:
    """The least number of nodes that a launcher's command line asks for; 0 where it does not say."""
    found = re.search(r"--nnodes[= ](\d+)", command)
    if found is not None:
        return int(found[1])
    return 1 if re.search(r"torchrun|torch[./]distributed[./](run|launch)", command) else 0


def _rendezvous_evidence(launcher: ProcessEvidence) -> str:
    endpoint = re.search(r"--(?:rdzv[-_]endpoint|master[-_](?:addr|port))[= ](\S+)", launcher.facts.command)
    where = f" at {endpoint[1]}" if endpoint else ""
    return f"torchrun (pid {launcher.facts.pid}) stands in next_rendezvous{where} and has no ranks below it"
