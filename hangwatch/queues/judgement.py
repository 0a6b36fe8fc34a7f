"""From queues to a judgement and its evidence, in the records that reports are made of; or that nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Status, Verdict

from . import older, pairs, stuck
from .besides import with_others
from .finding import Finding, collective, not_told, of_clocks, of_earlier_runs
from .follow import Chain, Follower
from .history import Histories
from .late import of_latecomers
from .matching import odd_ones, shape
from .meetings import Meeting, remarks, unfit
from .model import Queues
from .moment import ON_ITS_WAY_S, YOUNG_S, by_what, is_undated, on_its_way, open_s, said, unmoved_s
from .motion import Motion
from .names import ranks
from .nodes import not_collected
from .rules import judge
from .stuck import Stuck

IDLE_S = 900.0  # longer than torch waits by itself: a job in which nothing is enqueued for so long is not simply well
MOST_TOLD = 4  # calls on their way that are told of


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the queues say. `judgement` is None where nothing is wrong; `sentences` then say what was looked at.

    `found` is what the judgement was made from.
    """

    judgement: Judgement | None
    sentences: tuple[str, ...] = ()
    found: Finding | None = None


def assess(queues: Queues) -> Assessment:
    """Judge the queues of a job."""
    found = [*stuck.stuck_collectives(queues), *pairs.stuck_pairs(queues)]
    histories, motion = Histories(queues), Motion(queues, found)
    moving: list[Stuck] = []
    chains = Follower(found, queues.ranks).chains(histories.all_groups.due)
    for place, chain in enumerate(chains):
        judged = _standing(queues, chain, histories, motion)
        if judged is None:
            moving.append(chain.roots[0])
            continue
        later = partial(_standing, queues, histories=histories, motion=motion)
        judged = with_others(queues, judged, chain, chains[place + 1 :], later)
        return Assessment(_judgement(queues, judged, chain), found=judged)
    meeting = unfit(queues)
    if meeting is not None:
        return Assessment(_judgement(queues, _unfit(meeting)))
    return Assessment(None, (*_healthy(queues), *(_on_its_way(queues, each) for each in moving[:MOST_TOLD])))


def _standing(queues: Queues, chain: Chain, histories: Histories, motion: Motion) -> Finding | None:
    """The finding for a chain; None where what it ends at is on its way."""
    judged, root = judge(queues, chain, histories), chain.roots[0]
    if judged.passing and (on_its_way(queues, root) or motion.moved(root)):
        return None
    if judged.passing and (why := motion.may_go_on(root)):
        details = (f"{words.capital(why)}.", *judged.details)
        certainty = Certainty.UNDETERMINED if chain.roots[0].kind is stuck.Kind.WIRE else judged.certainty
        return replace(judged, status=Status.WAITING, certainty=certainty, culprits=(), details=details)
    return judged


def _on_its_way(queues: Queues, one: Stuck) -> str:
    return f"{said(queues, one)}{of_latecomers(queues, one)}"


def _healthy(queues: Queues) -> Iterable[str]:
    calls = sum(len(lane) for _, lane in queues.lanes())
    if not calls:
        yield (
            "nothing is wrong in these dumps as far as they go, but no call is on record: none was enqueued before they"
            " were written, or torch's flight recorder was off (TORCH_FR_BUFFER_SIZE, of older versions"
            " TORCH_NCCL_TRACE_BUFFER_SIZE)"
        )
        return
    stood = unmoved_s(queues)
    if stood is not None and stood >= IDLE_S and all(lane.first_open() is None for _, lane in queues.lanes()):
        yield from _idle(queues, calls, stood)
        return
    yield (
        f"nothing is wrong in these dumps: every collective that the {words.plural(len(queues.ranks), 'rank')} enqueued"
        f" is complete or on its way ({words.plural(calls, 'recorded call')}"
        f" in {words.plural(len(queues.communicators), 'group')})"
    )
    yield from remarks(queues)
    if stood is not None and stood >= YOUNG_S:
        yield (
            f"the last of them completed {words.duration(stood)} before the dumps were written: if the job stood still,"
            " look at the hosts, or for a kernel of a rank's own, of which such a record does not tell"
        )
    yield from _not_known(queues)


def _idle(queues: Queues, calls: int, stood: float) -> Iterable[str]:
    """All calls are complete, and long before the dumps were written: the hosts are at something else, or stand."""
    made = max(lane.created[-1] for _, lane in queues.lanes() if len(lane))
    since = (made or queues.last_completion) / 1e9
    yield (
        f"no collective is waiting in these dumps: all that the {words.plural(len(queues.ranks), 'rank')} enqueued"
        f" are complete ({words.plural(calls, 'recorded call')} in {words.plural(len(queues.communicators), 'group')})"
    )
    yield from remarks(queues)
    yield (
        f"since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC no rank has made a call, and the last of"
        f" them completed {words.duration(stood)} before the dumps were written: the hosts do something else, such as"
        " an evaluation, a checkpoint or loading data, or a kernel of a rank's own runs, of which such a record does"
        " not tell: look at their stacks"
    )
    yield from _not_known(queues)


def _not_known(queues: Queues) -> Iterable[str]:
    """What these records do not tell, and what is left out or corrected."""
    if missing := queues.untold():
        yield not_told(queues, missing)
    yield from older.told(queues)
    yield from of_earlier_runs(queues)
    yield from of_clocks(queues)


def _unfit(meeting: Meeting) -> Finding:
    """Calls that do not fit, although they completed."""
    group, number = meeting.group, meeting.number
    odd = odd_ones(meeting.sides) if meeting.sides else []
    texts = [
        f"{ranks(who)}: {shape(meeting.calls[who[0]])}{words.at(meeting.calls[who[0]].where)}"
        for _, who in sorted(meeting.sides.items(), key=lambda item: (len(item[1]), item[1]))[:4]
    ]
    why = words.listed(texts) if texts else meeting.why
    blamed = odd or sorted(meeting.calls)
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY if odd else Certainty.UNDETERMINED,
        f"The calls paired as number {number} of {group.title} do not fit, although they completed: {why}.",
        status=Status.FAILED,
        culprits=tuple((rank, meeting.calls[rank].where) for rank in blamed),
        evidence=tuple(texts[:3]),
    )


def _judgement(queues: Queues, found: Finding, chain: Chain | None = None) -> Judgement:
    found, entry = older.weighed(queues, found), cause(found.cause)
    missing = queues.untold()
    unknown = (f"{words.capital(not_told(queues, missing))}.",) if missing else ()
    rest = (*filter(None, (not_collected(queues),)), *older.told(queues), *of_earlier_runs(queues), *of_clocks(queues))
    unknown = (*unknown, *(f"{words.capital(said)}." for said in rest))
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
        alternatives=tuple(replace(each, open=True) for each in found.alternatives),
        waits=found.waits,
        details=(*found.details, *unknown),
        hang=Certainty.LIKELY if hung else None,
        argument=tuple(_argument(queues, chain)) if hung and chain is not None else (),
    )
    return Judgement(found.status, found.stage, verdict)


def _argument(queues: Queues, chain: Chain) -> Iterable[str]:
    """Why the job is called hung. One record of each rank is one moment: that nothing moved since, it cannot show."""
    yield "calls were enqueued and not complete when the records were written"
    if any(each.expired for each in chain.path):
        yield "torch gave some of them up after their timeout"
    stood = open_s(queues, chain.roots[0])
    if stood is not None and stood >= ON_ITS_WAY_S:
        said = f"{collective(chain.roots[0])} had been waited for {words.duration(stood)}"
        yield f"{by_what(queues, chain.roots[0])}, {said}"
    elif is_undated(queues, chain.roots[0]):
        yield "for how long, the dates of these files do not tell: if copied, they may be those of a job that moved"
