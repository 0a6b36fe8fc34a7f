"""From queues to a judgement and its evidence, in the records that reports are made of; or that nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Status, Verdict

from . import pairs, stuck
from .finding import Finding, ranks
from .follow import Follower
from .history import Histories
from .matching import odd_ones, shape
from .meetings import Meeting, remarks, unfit
from .model import Queues
from .rules import judge


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the queues say. `judgement` is None where nothing is wrong; `sentences` then say what was looked at."""

    judgement: Judgement | None
    sentences: tuple[str, ...] = ()


def assess(queues: Queues) -> Assessment:
    """Judge the queues of a job."""
    found = [*stuck.stuck_collectives(queues), *pairs.stuck_pairs(queues)]
    chain = Follower(found).chain()
    if chain is not None:
        given_up = any(each.expired for each in chain.path)
        return Assessment(_judgement(queues, judge(queues, chain, Histories(queues)), given_up))
    meeting = unfit(queues)
    if meeting is not None:
        return Assessment(_judgement(queues, _unfit(meeting)))
    return Assessment(None, tuple(_healthy(queues)))


def _healthy(queues: Queues) -> Iterable[str]:
    calls = sum(len(lane) for _, lane in queues.lanes())
    yield (
        f"nothing is wrong in these dumps: every collective that the {words.plural(len(queues.ranks), 'rank')} enqueued"
        f" is complete or on its way ({words.plural(calls, 'recorded call')}"
        f" in {words.plural(len(queues.communicators), 'group')})"
    )
    yield from remarks(queues)
    if missing := queues.missing():
        yield f"no dump of {ranks(missing)}: what they did is not known"


def _unfit(meeting: Meeting) -> Finding:
    """Calls that do not fit, although they completed."""
    group, number = meeting.group, meeting.number
    odd = odd_ones(meeting.sides) if meeting.sides else []
    texts = [
        f"{ranks(who)}: {shape(meeting.calls[who[0]])}{words.at(meeting.calls[who[0]].where)}"
        for _, who in sorted(meeting.sides.items(), key=lambda item: (len(item[1]), item[1]))[:4]
    ]
    said = words.listed(texts) if texts else meeting.why
    blamed = odd or sorted(meeting.calls)
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY if odd else Certainty.UNDETERMINED,
        f"The calls paired as number {number} of {group.title} do not fit, although they completed: {said}.",
        status=Status.FAILED,
        culprits=tuple((rank, meeting.calls[rank].where) for rank in blamed),
        evidence=tuple(texts[:3]),
    )


def _judgement(queues: Queues, found: Finding, given_up: bool = False) -> Judgement:
    entry = cause(found.cause)
    missing = queues.missing()
    unknown = (f"No dump of {ranks(missing)}: what they did is not known.",) if missing else ()
    hung = found.status is Status.HUNG
    verdict = Verdict(
        cause=found.cause,
        certainty=found.certainty,
        summary=found.summary,
        fix=found.fix or entry.fix,
        docs=entry.docs,
        culprits=tuple(Culprit(rank, where=where) for rank, where in found.culprits),
        victims=found.victims,
        evidence=found.evidence,
        alternatives=found.alternatives,
        waits=found.waits,
        details=(*found.details, *unknown),
        hang=Certainty.LIKELY if hung else None,
        argument=_argument(given_up) if hung else (),
    )
    return Judgement(found.status, found.stage, verdict)


def _argument(given_up: bool) -> tuple[str, ...]:
    """Why the job is called hung. One record of each rank is one moment: that nothing moved since, it cannot show."""
    open_calls = "calls were enqueued and not complete when the records were written"
    return (open_calls, "torch gave some of them up after their timeout") if given_up else (open_calls,)
