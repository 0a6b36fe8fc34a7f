"""From a rule's finding to the judgement: status, stage, the chain of waits, and the causes that were rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hangwatch import ras, words
from hangwatch.catalogue import cause
from hangwatch.facts.case import Case, what
from hangwatch.facts.standstill import standstill
from hangwatch.facts.witness import sentences
from hangwatch.judge.alternatives import alternatives
from hangwatch.judge.argument import is_dead
from hangwatch.judge.version_hints import hints
from hangwatch.model import Certainty, Culprit, Excerpt, Judgement, Stage, Status, Verdict, Wait
from hangwatch.proof.waits import Blocked
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import CALLED, Doing


def judged(case: Case, finding: Finding) -> Judgement:
    """The judgement that follows from `finding`."""
    entry = cause(finding.cause)
    if finding.certainty is Certainty.UNDETERMINED:
        finding = replace(finding, culprits=())  # no rank is blamed where the witnesses disagree
    blamed = [culprit.rank for culprit in finding.culprits if culprit.rank is not None]
    victims = case.victims(blamed) if finding.victims is None else finding.victims
    state = status(case, finding)
    hang, argument = is_dead(case, state, finding)
    verdict = Verdict(
        cause=finding.cause,
        certainty=finding.certainty,
        summary=finding.summary,
        fix=finding.fix or entry.fix,
        docs=entry.docs,
        culprits=quoted(finding.culprits, case.snapshot.excerpts),
        victims=victims,
        step=finding.step,
        evidence=(*finding.evidence, *sentences(finding.witnesses), *ras.of_nodes(case.snapshot.nodes)),
        alternatives=alternatives(case, finding),
        waits=chain(case, blamed, victims) if finding.waits is None else finding.waits,
        details=(*finding.details, *hints(case, finding), *places_of_victims(case, victims)),
        hang=hang,
        argument=argument,
    )
    return Judgement(state, finding.stage or entry.stage or stage(case), verdict)


def stage_of(finding: Finding) -> Stage | None:
    """The stage that the catalogue gives to a cause; None where it may be any."""
    return finding.stage or cause(finding.cause).stage


def quoted(culprits: Sequence[Culprit], excerpts: Sequence[Excerpt]) -> tuple[Culprit, ...]:
    """The culprits with their lines of code. Where nodes have different files under one name, none is quoted."""
    known: dict[tuple[str, int], dict[tuple[str, ...], Excerpt]] = {}
    for excerpt in excerpts:
        known.setdefault((excerpt.file, excerpt.line), {})[excerpt.lines] = excerpt

    def quote(culprit: Culprit) -> Culprit:
        where = culprit.where
        found = known.get((where.file, where.line), {}) if where is not None else {}
        return replace(culprit, excerpt=next(iter(found.values()))) if len(found) == 1 else culprit

    return tuple(quote(culprit) for culprit in culprits)


def status(case: Case, finding: Finding) -> Status:
    """Hung where it is proven or patience has run out for a rank that shows no work; else waiting."""
    if finding.status is not None:
        return finding.status
    if case.ranks and all(view.dead for view in case):  # no rank is left that could hang
        return Status.WAITING if all(view.finished for view in case) else Status.FAILED
    if case.deadlocked:
        return Status.HUNG
    ranks = finding.awaited or tuple(culprit.rank for culprit in finding.culprits if culprit.rank is not None)
    ranks = ranks or tuple(case.ranks)
    if case.ranks and all(view.finished for view in case):
        return Status.WAITING  # the job is over, and no rank is left that could hang
    if any(map(case.works, case.views(ranks))):
        return Status.WAITING
    if standstill(case):
        return Status.HUNG
    if not case.stalled(ranks):
        return Status.WAITING
    return Status.LINGERING if case.training_over else Status.HUNG


def stage(case: Case) -> Stage:
    """The stage in which most ranks stand, where the cause does not say."""
    doings = [view.now.doing for view in case]
    if any(doing in (Doing.RENDEZVOUS, Doing.NEW_GROUP) for doing in doings) and not case.blocked:
        return Stage.START
    if doings and all(view.over and not view.raised for view in case):
        return Stage.EXIT
    if any(doing is Doing.LOADER for doing in doings):
        return Stage.DATA
    return Stage.DEVICE if doings and all(doing is Doing.DEVICE for doing in doings) else Stage.STEP


def chain(case: Case, culprits: list[int], victims: tuple[int, ...]) -> tuple[Wait, ...]:
    """The shortest chain of waits from the victims to the culprits."""
    direct = [rank for rank in victims if (entry := case.blocked.get(rank)) and _awaits(entry, culprits)]
    if direct:
        return _merged(case, direct, culprits)
    return tuple(case.wait(rank, (following,)) for rank, following in pairwise(case.graph.chain(victims, culprits)))


def _awaits(entry: Blocked, culprits: list[int]) -> bool:
    return entry.need is not None and not set(entry.need.absent).isdisjoint(culprits)


def _merged(case: Case, victims: list[int], culprits: list[int]) -> tuple[Wait, ...]:
    """One wait for each collective that holds victims, that of its first victim."""
    seen: dict[int, Wait] = {}
    for rank in victims:
        need = case.blocked[rank].need
        if need is not None and id(need) not in seen:
            seen[id(need)] = case.wait(rank, tuple(sorted(set(need.absent) & set(culprits))))
    return tuple(seen.values())


def places_of_victims(case: Case, victims: tuple[int, ...]) -> tuple[str, ...]:
    """Sentences: which victims wait where."""
    places: dict[tuple[str, str], list[int]] = {}
    for rank in victims:
        entry = case.blocked.get(rank)
        if entry is not None:
            places.setdefault((entry.activity.call or entry.op, words.place(entry.where)), []).append(rank)
    sentences = []
    for (call, place), ranks in sorted(places.items(), key=lambda item: -len(item[1]))[:4]:
        name = CALLED.get(call, call)
        where = f" ({place})" if place else ""
        sentences.append(
            f"{case.name(ranks, capital=True)} {words.verb(len(ranks), 'waits', 'wait')} in {name}{where}."
        )
    return tuple(sentences)


def undetermined(case: Case) -> Finding:
    """Nothing fits: say what is seen, and blame no rank."""
    proven = bool(case.deadlocked)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{_head(case)}{_who_waits(case)}",
        victims=tuple(case.blocked),
        step=case.furthest_step(case.ranks),
        evidence=(f"no rank of {words.ranges(case.deadlocked)} can ever go on",) if proven else (),
        awaited=tuple(case.ranks),
    )


def _head(case: Case) -> str:
    ended, moving = [view.rank for view in case if view.finished], [view.rank for view in case if case.works(view)]
    if ended and len(ended) == len(case.ranks):
        return f"{case.name(ended, capital=True)} {words.verb(len(ended), 'has', 'have')} ended without an error."
    seen = _what_is_seen(case)
    if moving:
        return f"{case.name(moving, capital=True)} still {words.verb(len(moving), 'works', 'work')}: {seen}."
    return f"Nothing moves, and the cause is not known: {seen}."


def _who_waits(case: Case) -> str:
    """The wait of most ranks, in a sentence; "" where it is not known for whom they wait."""
    waiting: dict[tuple[object, ...], list[Blocked]] = {}
    for entry in case.blocked.values():
        if entry.need is not None and entry.need.absent:
            waiting.setdefault((entry.need.absent, entry.need.group, entry.need.seq), []).append(entry)
    most = max(waiting.values(), key=len, default=[])
    if not most or most[0].need is None:
        return ""
    ranks, awaited = [entry.rank for entry in most], most[0].need.absent
    inside = words.at(case.usual_place(ranks))
    verb = words.verb(len(ranks), "waits", "wait")
    return f" {case.name(ranks, capital=True)} {verb} for {case.name(awaited)} in {what(most[0])}{inside}."


def _what_is_seen(case: Case) -> str:
    places: dict[tuple[str, str], list[int]] = {}
    for view in case:
        places.setdefault((str(view.now.doing), words.place(view.where)), []).append(view.rank)
    most = sorted(places.items(), key=lambda item: -len(item[1]))[:3]
    return words.listed(_seen(case, ranks, *at) for at, ranks in most) or "no rank could be looked at"


def _seen(case: Case, ranks: list[int], doing: str, place: str) -> str:
    if not place and doing == Doing.NOTHING:
        named = "any rank" if len(ranks) == case.size else case.name(ranks)
        return f"no stack was captured for {named}"
    return f"{case.name(ranks)} {words.verb(len(ranks), 'is', 'are')} at {place or doing.replace('-', ' ')}"
