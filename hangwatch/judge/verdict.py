"""From a rule's finding to the judgement: status, stage, the chain of waits, and the causes that were rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangwatch import ras, words
from hangwatch.catalogue import cause
from hangwatch.catalogue.step import OUT_OF_DESTRUCTORS
from hangwatch.facts.case import Case
from hangwatch.facts.differences.variables import separating
from hangwatch.facts.processes.own_code import COMPUTING
from hangwatch.facts.processes.standstill import devices_alone, standstill
from hangwatch.facts.witness import sentences
from hangwatch.judge.alternatives import alternatives
from hangwatch.judge.argument import hang_certainty
from hangwatch.judge.caught_alone import caught_by_culprits_alone
from hangwatch.judge.chain import with_chain
from hangwatch.judge.destructors import DESTRUCTOR, Destructor, destructor
from hangwatch.judge.version_hints import hints
from hangwatch.model import Certainty, Culprit, Excerpt, Judgement, Stage, Status, Verdict
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import CALLED, Doing
from hangwatch.stacks.frames import name_of

# What a call that some ranks alone made, or left out, is told as.
_OF_CALLS = frozenset({"skipped-collective", "rank-zero-only-collective", "collective-mismatch", "rank-local-decision"})
# What ranks that run one program do otherwise than each other.
_BY_THE_PROGRAM = _OF_CALLS | {
    "uneven-steps", "early-exit", "gradient-sync-mismatch", "data-dependent-graph", "undetermined",
}  # fmt: skip
_VARIABLES = 2  # variables of the environment that are told


def judged(case: Case, finding: Finding) -> Judgement:
    """The judgement that follows from `finding`."""
    entry = cause(finding.cause)
    if finding.certainty is Certainty.UNDETERMINED:
        finding = replace(
            finding, culprits=(), awaited=finding.expected, ends=None
        )  # no rank is blamed where the witnesses disagree
    victims = case.victims(finding.blamed) if finding.victims is None else finding.victims
    state = status(case, finding)
    hang, argument = hang_certainty(case, state, finding)
    finding = with_chain(case, finding, victims)
    inside = destructor(case, finding, victims) if finding.cause in _OF_CALLS | {"undetermined"} else None
    verdict = Verdict(
        cause=finding.cause,
        certainty=finding.certainty,
        summary=f"{finding.summary} {inside.told}" if inside is not None else finding.summary,
        fix=_in_a_destructor(finding, inside) or finding.fix or _by_a_condition(case, finding) or entry.fix,
        docs=entry.docs,
        culprits=quoted(finding.culprits, case.snapshot.excerpts),
        victims=victims,
        step=finding.step,
        evidence=(
            *finding.evidence,
            *sentences(finding.witnesses),
            *caught_by_culprits_alone(case, finding),
            *_of_the_environment(case, finding),
            *ras.of_nodes(case.snapshot.nodes),
        ),
        alternatives=alternatives(case, finding),
        waits=finding.waits or (),
        ends=finding.ends or (),
        details=(*finding.details, *hints(case, finding), *places_of_victims(case, victims)),
        hang=hang,
        argument=argument,
    )
    return Judgement(state, stage_of(finding) or stage(case), verdict)


def _of_the_environment(case: Case, finding: Finding) -> tuple[str, ...]:
    """What the environment gives the culprits otherwise: it may be why ranks that run one program do not do alike."""
    if finding.cause not in _BY_THE_PROGRAM:
        return ()
    return tuple(each.told for each in separating(case, {*finding.blamed})[:_VARIABLES])


def _in_a_destructor(finding: Finding, found: Destructor | None) -> str:
    """The fix where a call in question stands in a destructor, which no rank reaches in the order of its program."""
    places = (culprit.where for culprit in finding.culprits)
    inside = found is not None or any(where is not None and name_of(where.function) == DESTRUCTOR for where in places)
    return OUT_OF_DESTRUCTORS if inside and finding.cause in _OF_CALLS else ""


def _by_a_condition(case: Case, finding: Finding) -> str:
    """The fix where the ranks went by a call at a line that ends no turn of a loop; "" where they did not.

    That is a condition, or a clause that catches an error.
    """
    entry = cause(finding.cause)
    if not entry.fix_of_condition:
        return ""
    places = {culprit.where for culprit in finding.culprits}
    ways = [way for site in case.snapshot.call_sites for way in site.bypasses if way.where in places]
    if not ways or any(way.of_turn for way in ways):
        return ""
    return entry.fix_of_condition if any(way.asks for way in ways) else entry.fix_of_error


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
        found = known.get(where.source_line, {}) if where is not None else {}
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
    ranks = finding.expected or finding.blamed or tuple(case.ranks)
    if any(map(case.works, case.views(ranks))):
        return Status.WAITING
    if standstill(case):
        return Status.HUNG
    unknown = finding.certainty is Certainty.UNDETERMINED
    if not case.stalled(ranks) or (unknown and devices_alone(case) and not _long(case)):
        return Status.WAITING
    return Status.LINGERING if case.training_over else Status.HUNG


def _long(case: Case) -> bool:
    """Even for ranks that compute."""
    return all(view.evidence.still_s > COMPUTING * view.evidence.patience_s for view in case if not view.dead)


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
        sentences.append(f"{case.say(ranks, 'waits', 'wait', capital=True)} in {name}{where}.")
    return tuple(sentences)
