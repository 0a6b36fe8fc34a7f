"""Dumps and logs together: whose failure came first, where the queues stand, and what NCCL says of the way there.

A process that torch's watchdog or another rank's end has brought down is a victim, however early it ended.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from .. import queues as model
from ..queues.model import Queues
from .model import Communicator, Failure, LateAtBarrier, Logs

# What a process says that ended because another rank had gone, or had not come.
_BROUGHT_DOWN = re.compile(
    r"watchdog|timed? ?out|connection (?:reset|closed|refused)|reset by peer|NCCL (?:communicator|error)"
    r"|monitoredBarrier|remote (?:process|error)|DistBackendError|DistNetworkError|broken pipe|SIGTERM|Signal 15",
    re.IGNORECASE,
)
_ABORT, _TERMINATE = -6, -15


def assess(queues: Queues, logs: Logs) -> model.Assessment:
    """What dumps and logs say; the first end of a process that is no consequence comes before all waiting."""
    if (failure := _first_failure(logs)) is not None:
        return model.Assessment(_failed(failure, logs))
    found = model.assess(queues)
    if found.judgement is not None:
        return model.Assessment(_with_warnings(found.judgement, logs))
    if logs.late is not None:
        return model.Assessment(_late(logs.late))
    for communicator in logs.communicators.values():
        if communicator.complete != communicator.begun.keys():
            return model.Assessment(_set_up(communicator, logs))
    if logs.warnings:
        return model.Assessment(_warned(logs))
    if logs.failures:
        return model.Assessment(_only_victims(logs))
    return found if queues.ranks else model.Assessment(None, _nothing(logs))


def _nothing(logs: Logs) -> tuple[str, ...]:
    files = words.plural(len(logs.files), "log")
    return (
        f"nothing is wrong in {files}: no call was given up, no communicator is left half set up, no process failed",
    )


# ------------------------------------------------------------------------------------------ ends of processes


def _first_failure(logs: Logs) -> Failure | None:
    """The first failure that is not a consequence of others."""
    victims = {timeout.rank for timeout in logs.timeouts}
    found = [each for each in logs.failures.values() if each.rank not in victims and not _brought_down(each)]
    return min(found, key=lambda each: (not each.first, each.rank), default=None)


def _brought_down(failure: Failure) -> bool:
    return failure.exit_code in (_ABORT, _TERMINATE) or bool(_BROUGHT_DOWN.search(failure.text))


def _failed(failure: Failure, logs: Logs) -> Judgement:
    killed = failure.exit_code is not None and failure.exit_code < 0
    name = "rank-died" if killed else "exception-on-one-rank"
    entry = cause(name)
    how = f"was ended by signal {-(failure.exit_code or 0)}" if killed else f"failed with exit code {failure.exit_code}"
    said = f": {failure.text}" if failure.text and not failure.text.startswith("Signal ") else ""
    victims = sorted({each.rank for each in logs.timeouts} | set(logs.failures) - {failure.rank})
    return Judgement(
        Status.FAILED,
        entry.stage or Stage.STEP,
        Verdict(
            cause=name,
            certainty=Certainty.LIKELY,
            summary=f"Rank {failure.rank} {how}{words.at(failure.where)}{said}.",
            fix=entry.fix,
            docs=entry.docs,
            culprits=(Culprit(failure.rank, failure.pid, failure.host, where=failure.where),),
            victims=tuple(rank for rank in victims if rank != failure.rank),
            evidence=(("torchrun saw it fail first",) if failure.first else ("it alone failed by itself",)),
        ),
    )


def _only_victims(logs: Logs) -> Judgement:
    entry = cause("undetermined")
    ranks = sorted(logs.failures)
    return Judgement(
        Status.FAILED,
        Stage.STEP,
        Verdict(
            cause="undetermined",
            certainty=Certainty.UNDETERMINED,
            summary=f"{words.ranks(ranks, capital=True)} {words.verb(len(ranks), 'was', 'were')} brought down by what"
            " another rank or the network did, and no log tells which.",
            fix="give the logs of all ranks, and the flight recorder's dumps",
            docs=entry.docs,
            victims=tuple(ranks),
        ),
    )


def _late(told: LateAtBarrier) -> Judgement:
    """A monitored barrier names the ranks that did not come, and not why."""
    entry = cause("undetermined")
    late = sorted(told.ranks)
    who = words.ranks(late)
    return Judgement(
        Status.FAILED,
        Stage.STEP,
        Verdict(
            cause=entry.id,
            certainty=Certainty.UNDETERMINED,
            summary=f"{words.ranks(late, capital=True)} did not come to the monitored barrier of rank 0"
            f"{words.at(told.where)} within {words.duration(told.timeout_s)}.",
            fix=f"find out what {who} did instead: look at the stacks or last output, or run again under hangwatch",
            docs=entry.docs,
            culprits=tuple(Culprit(rank) for rank in late),
            evidence=(f"rank 0 asked each rank, and {who} did not answer",),
            details=("The barrier tells which ranks did not come, and not what their hosts did.",),
        ),
    )


# ------------------------------------------------------------------------------------------ NCCL's own words


def _set_up(communicator: Communicator, logs: Logs) -> Judgement:
    """A communicator that some ranks began to set up and did not finish."""
    begun, absent = set(communicator.begun), set(range(communicator.size)) - set(communicator.begun)
    left = sorted(begun - communicator.complete)
    name = f"communicator {communicator.identifier or 'of NCCL'} of {words.plural(communicator.size, 'rank')}"
    evidence = _evidence(logs)
    if absent:
        cause_id, certainty = "undetermined", Certainty.UNDETERMINED
        few = 2 * len(absent) <= communicator.size
        culprits = tuple(Culprit(rank) for rank in sorted(absent)) if few else ()
        summary = (
            f"{words.ranks(absent, capital=True)} never began to set up {name}, for which"
            f" {words.ranks(left)} {words.verb(len(left), 'waits', 'wait')}."
        )
        fix = f"look at {words.ranks(absent)}: what they do before their first collective, and whether they run at all"
    else:
        cause_id, certainty, culprits = "network-partition", Certainty.LIKELY, ()
        hosts = sorted({communicator.begun[rank] for rank in left})
        summary = (
            f"All ranks began to set up {name}; {words.ranks(left)} on {words.listed(hosts[:4])}"
            f" {words.verb(len(left), 'has', 'have')} not finished it: they do not reach each other."
        )
        fix = cause(cause_id).fix
    return Judgement(
        Status.HUNG,
        Stage.START,
        Verdict(
            cause=cause_id,
            certainty=certainty,
            summary=summary,
            fix=fix,
            docs=cause(cause_id).docs,
            culprits=culprits,
            victims=tuple(left),
            evidence=(f"Init START and no Init COMPLETE: {words.ranks(left)}", *evidence),
            hang=Certainty.LIKELY,
            argument=("the logs end before the communicator was set up",),
        ),
    )


def _warned(logs: Logs) -> Judgement:
    entry = cause("interconnect-stall")
    first = next(iter(logs.warnings))
    return Judgement(
        Status.FAILED,
        Stage.DEVICE,
        Verdict(
            cause=entry.id,
            certainty=Certainty.UNDETERMINED,
            summary=f"NCCL warns of a network or device that fails: {first}.",
            fix=entry.fix,
            docs=entry.docs,
            evidence=_evidence(logs),
        ),
    )


def _with_warnings(judged: Judgement, logs: Logs) -> Judgement:
    """The queues' judgement with what NCCL warned of. Where no rank is named, its warnings say that it is the wire."""
    verdict = judged.verdict
    evidence = _evidence(logs)
    verdict = replace(verdict, evidence=(*verdict.evidence, *evidence))
    if logs.warnings and not verdict.culprits:
        entry = cause("interconnect-stall")
        verdict = replace(verdict, cause=entry.id, docs=entry.docs, certainty=Certainty.LIKELY)
    if logs.timeouts:
        waited = max((each.timeout_s or 0.0 for each in logs.timeouts), default=0.0)
        ranks = sorted({each.rank for each in logs.timeouts})
        said = (
            f"torch's watchdog gave up after {words.duration(waited)} on {words.ranks(ranks)}: victims, not the cause"
        )
        verdict = replace(verdict, evidence=(*verdict.evidence, said))
        if judged.status is Status.WAITING:
            verdict = replace(verdict, hang=Certainty.LIKELY, argument=(said,))
            return replace(judged, status=Status.HUNG, verdict=verdict)
    return replace(judged, verdict=verdict)


def _evidence(logs: Logs) -> tuple[str, ...]:
    said = [f"{text}{f' ({count} times)' if count > 1 else ''}" for text, count in list(logs.warnings.items())[:3]]
    if logs.networks:
        hosts = [f"{host}: {', '.join(sorted(names))}" for host, names in sorted(logs.networks.items())[:4]]
        said.append(f"NCCL uses {'; '.join(hosts)}")
    if logs.transports:
        said.append(f"transports: {', '.join(sorted(logs.transports))}")
    return tuple(said)
