"""Dumps and logs together: whose failure came first, where the queues stand, and what NCCL says of the way there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict
from hangwatch.stacks.frames import user_frame

from .. import queues as model
from ..queues.model import Queues
from . import (
    alone,
    behind_peers,
    communicators,
    desync,
    detail,
    ends,
    events_verdict,
    file_names,
    interfaces,
    kernel,
    last_words,
    nodes,
    not_come,
    out_of_step,
    plain,
    pods,
    ras_verdict,
    ray_deaths,
    remote_start,
    rendezvous,
    shell,
    stalls,
    transports,
    versions,
)
from .behind import without_caught
from .model import UNNUMBERED, Fault, LateAtBarrier, Logs, Raised, Timeout
from .queued import completed, of_no_group, to_peers
from .task_lines import placed
from .tracebacks import brought_down
from .unknown import unknown

_BETWEEN_PEERS = (
    "sends, receives or batches of calls that torch's watchdog gave up; its lines do not name their peers",
    "give the flight recorder's dumps too: they name the peer of each send and receive",
)
_IN_A_COLLECTIVE = "Got completion"  # with an error: data is sent for none that the rank has not enqueued
_OF_NO_GROUP = (
    "collectives of several groups that torch's watchdog gave up; lines of torch before 2.3 do not name the groups",
    "give the flight recorder's dumps too, or run with a newer torch: both name the group of each call",
)
_NOT_INSTALLED = ("ImportError", "ModuleNotFoundError")
_WITHOUT_NUMBER = (
    "collectives that torch's watchdog gave up; lines of torch before 2.0 do not number the calls",
    "run with a newer torch, whose lines name the number and the group of each call, and which writes dumps",
)


def assess(queues: Queues, logs: Logs) -> model.Assessment:
    """What dumps and logs say, with the page of the docs on the cause. They exclude no other cause."""
    found = _assessed(queues, logs)
    return replace(found, judgement=_documented(found.judgement)) if found.judgement is not None else found


def _documented(judged: Judgement) -> Judgement:
    others = tuple(replace(each, open=True) for each in judged.verdict.alternatives)
    return replace(judged, verdict=replace(judged.verdict, docs=cause(judged.verdict.cause).docs, alternatives=others))


def _assessed(queues: Queues, logs: Logs) -> model.Assessment:
    """The first end of a process that is no consequence comes before all waiting."""
    logs = _with_ends(queues, without_caught(file_names.placed(placed(logs))))
    found = nodes.own_ends(ends.first_ends(logs), logs)
    if (without := interfaces.judged(found, logs)) is not None:
        return model.Assessment(without)
    if (unlike := detail.judged(found, logs)) is not None:
        return model.Assessment(unlike)
    if found:
        return model.Assessment(ends.failed(found, logs))
    if (reaped := ends.reaped(logs)) is not None:
        return model.Assessment(ends.local_end(reaped, logs))
    if (nameless := ends.nameless_end(logs)) is not None:
        return model.Assessment(nameless)
    if (ended := pods.judged(logs) or events_verdict.judged(logs) or ray_deaths.judged(logs)) is not None:
        return model.Assessment(ended)
    warning = communicators.worst(logs)
    if warning is not None and warning[1].fault is Fault.DUPLICATE:
        return model.Assessment(communicators.warned(*warning, logs))
    stands = model.assess(queues)
    if stands.judgement is not None:
        judged = behind_peers.told(alone.told(stands.judgement, queues, logs), queues, logs)
        judged = out_of_step.told(judged, queues, logs)
        judged = last_words.told(_alive(judged, queues, logs), queues, logs)
        judged = nodes.judged(logs, judged) or _by_its_error(judged, logs)
        return model.Assessment(_with_logs(judged, queues, logs) if judged.verdict.cause != "node-lost" else judged)
    if (by_logs := _of_logs(logs)) is not None:
        return model.Assessment(by_logs)
    return (
        stands
        if queues.ranks
        else model.Assessment(None, (*_nothing(logs), *plain.caught(logs), *plain.interrupted(logs)))
    )


def _with_ends(queues: Queues, logs: Logs) -> Logs:
    """The traceback at the end of a rank's own file ended it, where others left a record and this rank none."""
    silent = {rank for rank, raised in logs.raised.items() if raised.last and rank not in queues.ranks}
    if not queues.ranks or not silent:
        return logs
    raised = {rank: replace(each, ended=each.ended or rank in silent) for rank, each in logs.raised.items()}
    return replace(logs, raised=raised)


def _by_its_error(judged: Judgement, logs: Logs) -> Judgement:
    """The one rank that left the order of the others has raised an error of its own before: that led it there."""
    verdict = judged.verdict
    culprit = verdict.culprits[0] if len(verdict.culprits) == 1 else None
    if culprit is None or culprit.rank is None or verdict.certainty is Certainty.PROVEN:
        return judged
    raised = logs.raised.get(culprit.rank)
    if raised is None or not _led_there(raised, logs):
        return judged
    went_on = "" if raised.ended else ", and went on"
    said = f"Rank {culprit.rank} raised {words.command(raised.text, 200)}{words.at(raised.where)}{went_on}."
    verdict = replace(
        verdict,
        cause="exception-on-one-rank",
        certainty=Certainty.LIKELY,
        summary=f"{said} {verdict.summary}",
        fix=cause("exception-on-one-rank").fix,
        culprits=(replace(culprit, where=raised.where or culprit.where),),
        alternatives=tuple(each for each in verdict.alternatives if each.cause != "exception-on-one-rank"),
    )
    return replace(judged, verdict=verdict)


def _led_there(raised: Raised, logs: Logs) -> bool:
    """It came before the rank waited: ahead of its watchdog's lines, or the call that failed was made in its handler.

    No other rank raised the same. An import that fails and is caught tells a program what is installed.
    """
    alike = sum(each.text == raised.text for each in logs.raised.values()) > 1
    before = not raised.late or brought_down(raised.then)
    asks = not raised.ended and raised.text.startswith(_NOT_INSTALLED)
    return before and not (alike or asks or brought_down(raised.text))


def _of_logs(logs: Logs) -> Judgement | None:
    """What the logs say where the queues show nothing wrong; None where they do not either."""
    lost = kernel.gone(logs) or nodes.judged(logs, out_of_step.judged(logs) or ras_verdict.judged(logs))
    if lost is not None:
        return lost
    if messages := list(filter(to_peers, logs.timeouts)):
        return _unpaired(messages, *_BETWEEN_PEERS, logs)
    if calls := of_no_group(logs):
        unnumbered = any(each.number == UNNUMBERED for each in calls)
        return _unpaired(calls, *(_WITHOUT_NUMBER if unnumbered else _OF_NO_GROUP), logs)
    stands = out_of_step.judged(logs) or ras_verdict.judged(logs)
    if (awaited := stands or events_verdict.not_started(logs) or rendezvous.judged(logs)) is not None:
        return awaited
    if logs.late is not None:
        return _late(logs.late)
    warning = communicators.worst(logs)
    if warning is not None and warning[1].fault is Fault.CUDA and communicators.by(warning[1], logs):
        return communicators.warned(*warning, logs)  # a communicator that is half set up is its consequence
    if (unlike := versions.judged(logs) or transports.judged(logs)) is not None:
        return unlike
    if (communicator := communicators.half_set_up(logs)) is not None:
        return communicators.set_up(communicator, logs)
    if warning is not None:
        return communicators.warned(*warning, logs)
    if any("stuck" in said for told in logs.stalls.values() for said in told):
        return stalls.judged(logs)
    if ends.failures(logs) or logs.ended_by or logs.out_of_memory:
        return ends.only_victims(logs)
    return remote_start.judged(logs) or kernel.judged(logs) or _taken_down(logs) or shell.judged(logs)


def _taken_down(logs: Logs) -> Judgement | None:
    """torch's watchdog ended ranks for calls of which no line tells."""
    ranks = sorted(logs.taken_down)
    if not ranks:
        return None
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"torch's watchdog ended {words.ranks(ranks)}, since calls of NCCL had failed or timed out; the lines that"
        " tell which calls are not in these logs.",
        fix="give the whole logs of all ranks, and the flight recorder's dumps",
        victims=tuple(ranks),
    )


def _nothing(logs: Logs) -> tuple[str, ...]:
    files = words.plural(len(logs.files), "log")
    if logs.stacks_of_none:
        stacks = f"stacks of {words.plural(len(logs.stacks_of_none), 'process')} are in {files}"
        return (f"{stacks}, and no line tells their ranks; name the file of each rank after it: stacks_rank3.txt",)
    failed = "no process is known to have failed" if any(plain.caught(logs)) else "no process failed"
    return (
        f"nothing is wrong in {files}: no call was given up, no communicator is left half set up, {failed}",
        *ras_verdict.nothing(logs),
        *kernel.unplaced(logs),
        *pods.sentences(logs),
        *events_verdict.sentences(logs),
        *communicators.passed(logs),
        *rendezvous.lost_stores(logs),
        *plain.attempt_before(_earlier(logs)),
    )


def nothing_of_use(paths: Iterable[Path], logs: Logs) -> tuple[str, ...]:
    """What to say of logs without a line of use."""
    return plain.sentences(paths, placed(logs), _earlier(logs))


def _earlier(logs: Logs) -> str:
    """The verdict on the attempt before the last one; "" where there was none, or it tells nothing."""
    if logs.earlier is None:
        return ""
    judged = _assessed(completed(Queues(), logs.earlier), logs.earlier).judgement
    return "" if judged is None else judged.verdict.summary


def _late(told: LateAtBarrier) -> Judgement:
    """A monitored barrier names the ranks that did not come, and not why."""
    late = sorted(told.ranks)
    who = words.ranks(late)
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"{words.ranks(late, capital=True)} did not come to the monitored barrier of rank 0"
        f"{words.at(told.where)} within {words.duration(told.timeout_s)}.",
        fix=f"find out what {who} did instead: look at the stacks or last output, or run again under hangwatch",
        culprits=tuple(Culprit(rank) for rank in late),
        evidence=(f"rank 0 asked each rank, and {who} did not answer",),
        details=("The barrier tells which ranks did not come, and not what their hosts did.",),
    )


def _unpaired(calls: Sequence[Timeout], waited_in: str, fix: str, logs: Logs) -> Judgement:
    """Calls were given up, and the lines do not tell which calls of different ranks belong together."""
    ranks = sorted({each.rank for each in calls})
    names = [
        f"rank {each.rank}: {each.op.lower()}{_number(each)}{words.at(user_frame(tuple(each.frames)))}"
        for each in calls[:4]
    ]
    return unknown(
        Status.HUNG,
        Stage.STEP,
        f"{words.ranks(ranks, capital=True)} waited in {waited_in}.",
        fix,
        victims=tuple(ranks),
        evidence=(*names, *stalls.told(logs), *communicators.evidence(logs)),
        hang=Certainty.LIKELY,
        argument=_gave_up(logs, None),
    )


def _number(call: Timeout) -> str:
    return f" {call.number}" if call.number != UNNUMBERED else ""


# ------------------------------------------------------------------------------------------ beside the queues


def _with_logs(judged: Judgement, queues: Queues, logs: Logs) -> Judgement:
    """The queues' judgement with what the logs say besides."""
    told = (*judged.verdict.evidence, *not_come.evidence(queues, logs), *ends.outside(logs))
    verdict = kernel.of_a_lost_gpu(_with_warnings(replace(judged.verdict, evidence=told), logs), logs)
    verdict = kernel.with_error(verdict, logs)
    verdict = stalls.named(desync.named(verdict, logs), logs)
    said = _gave_up(logs, verdict)
    verdict = replace(
        verdict,
        evidence=(*verdict.evidence, *stalls.told(logs), *desync.evidence(logs), *ras_verdict.evidence(logs), *said),
        alternatives=(*verdict.alternatives, *stalls.or_the_lock(logs)),
    )
    if said and judged.status is Status.WAITING:
        verdict = replace(verdict, hang=Certainty.LIKELY, argument=said)
        return replace(judged, status=Status.HUNG, verdict=verdict)
    return replace(judged, verdict=verdict)


def _alive(judged: Judgement, queues: Queues, logs: Logs) -> Judgement:
    """Of ranks that left no record, those whose NCCL failed to move data were in a collective: they are victims."""
    failed = {text: known for text, known in logs.warnings.items() if _IN_A_COLLECTIVE in text and known.pending}
    seen = {rank: text for text, known in failed.items() for rank in communicators.by(known, logs)}
    alive = {each.rank for each in judged.verdict.culprits if each.rank is not None}.intersection(seen) - queues.ranks
    if not alive:
        return judged
    left = tuple(each for each in judged.verdict.culprits if each.rank not in alive)
    verdict = replace(judged.verdict, culprits=left, victims=tuple(sorted({*judged.verdict.victims, *alive})))
    if not left:
        text = seen[min(alive)]
        said = communicators.warned(text, failed[text], logs).verdict.summary
        verdict = replace(verdict, summary=said, evidence=(), alternatives=())
    return replace(judged, verdict=verdict)


def _with_warnings(verdict: Verdict, logs: Logs) -> Verdict:
    """Where no rank is named, warnings of the network say that it is the wire, and one of a device whose it is."""
    verdict = replace(verdict, evidence=(*verdict.evidence, *communicators.evidence(logs)))
    warning = communicators.worst(logs)
    if warning is None or verdict.culprits:
        return verdict
    text, known = warning
    if known.fault is Fault.NETWORK:
        said = communicators.warned(text, known, logs).verdict
        port = communicators.port(text, known, logs)
        return replace(
            verdict,
            cause=said.cause,
            fix=said.fix,
            certainty=Certainty.LIKELY,
            summary=f"{verdict.summary} NCCL reports errors of {port}." if port else verdict.summary,
            alternatives=tuple(each for each in verdict.alternatives if each.cause not in (said.cause, "device-stall")),
        )
    if known.fault is Fault.CUDA and (ranks := communicators.by(known, logs)):
        return replace(
            communicators.warned(text, known, logs).verdict,
            evidence=verdict.evidence,
            victims=tuple(rank for rank in verdict.victims if rank not in ranks),
            hang=verdict.hang,
            argument=verdict.argument,
            details=(verdict.summary,),
        )
    return verdict


def _gave_up(logs: Logs, verdict: Verdict | None) -> tuple[str, ...]:
    """Whose calls torch's watchdog gave up; of ranks that a verdict blames it says nothing but that."""
    if not logs.timeouts:
        return ()
    blamed = {each.rank for each in verdict.culprits} if verdict is not None else set()
    ranks = {each.rank for each in logs.timeouts}
    waited = max((each.timeout_s or 0.0 for each in logs.timeouts), default=0.0)
    said = f"torch's watchdog gave up after {words.duration(waited)} on"
    if victims := ranks - blamed:
        return (f"{said} {words.ranks(sorted(victims))}: victims, not the cause",)
    return (f"{said} {words.ranks(sorted(ranks))}",)
