"""Nodes that the scheduler saw fail: a fact, of which what ranks of other nodes say of their peers is a symptom."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from . import communicators, ends
from .model import Failure, Fault, Logs, one_host

_OF_A_LINK = (Fault.NETWORK, Fault.PEER)


def own_ends(found: list[Failure], logs: Logs) -> list[Failure]:
    """The first ends without those of processes that a failed node took with it, and that tell nothing of their own."""
    lost = ranks(logs)
    return [each for each in found if _tells(each) or not (each.rank in lost or _failed(each.host, logs))]


def _tells(end: Failure) -> bool:
    """An exception, or an exit code that no signal gives."""
    return end.where is not None or (end.exit_code or 0) > 0


def ranks(logs: Logs) -> set[int]:
    """The ranks of the nodes that failed, as far as lines tell of them."""
    return {rank for node in logs.failed_nodes for rank in logs.ranks_on(node)}


def judged(logs: Logs, awaited: Judgement | None = None) -> Judgement | None:
    """The verdict where a node has failed; None where none has, or what else is known has another cause.

    `awaited` is what calls that stand tell: they wait for ranks of the node, or blame no rank. A device that failed on
    another node is no symptom either.
    """
    if not logs.failed_nodes:
        return None
    lost = ranks(logs)
    verdict = awaited.verdict if awaited is not None else None
    warning = communicators.worst(logs)
    elsewhere = warning is not None and warning[1].fault not in _OF_A_LINK and not _failed(warning[1].host, logs)
    if elsewhere or (verdict is not None and not {each.rank for each in verdict.culprits} <= lost):
        return None
    found = _lost(lost, logs)
    if verdict is None:
        return found
    told = replace(
        found.verdict,
        victims=tuple(sorted({*found.verdict.victims, *verdict.victims} - lost)),
        evidence=(*found.verdict.evidence, *verdict.evidence),
        waits=verdict.waits,
    )
    return replace(found, verdict=told)


def _failed(host: str, logs: Logs) -> bool:
    return any(one_host(host, node) for node in logs.failed_nodes)


def _lost(lost: set[int], logs: Logs) -> Judgement:
    nodes, entry = sorted(logs.failed_nodes), cause("node-lost")
    whose = f", with {words.ranks(lost)}" if lost else ""
    said = words.listed([f"node {node}" for node in nodes])
    warned = {rank for known in logs.warnings.values() for rank in communicators.by(known, logs)}
    return Judgement(
        Status.FAILED,
        Stage.STEP,
        Verdict(
            cause=entry.id,
            certainty=Certainty.LIKELY,
            summary=f"Slurm says that {said} failed{whose}.",
            fix=f"drain {words.listed(nodes)}, look at its hardware and kernel log, and start the job again without it",
            culprits=tuple(_culprits(nodes, logs)),
            victims=tuple(sorted((warned | ends.failures(logs).keys()) - lost)),
            evidence=(*ends.outside(logs), *communicators.evidence(logs)),
        ),
    )


def _culprits(nodes: list[str], logs: Logs) -> Iterable[Culprit]:
    for node in nodes:
        own = sorted(logs.ranks_on(node))
        yield from (Culprit(rank, host=node) for rank in own) if own else (Culprit(None, host=node),)
