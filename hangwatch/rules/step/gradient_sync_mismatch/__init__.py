"""Ranks that synchronise gradients in another rhythm than the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import reached_by_all
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import has_left_inner_loop
from hangwatch.facts.differences.cadence import cadence, gaps_between, measure, representatives, sides_by_count
from hangwatch.facts.differences.gradients_apart import gradients_apart
from hangwatch.facts.differences.parting import ends_a_loop
from hangwatch.facts.differences.rhythms import keep_own_intervals
from hangwatch.facts.differences.updates import keep_own_paces, other_pace, updates_apart
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Divergence, StepName
from hangwatch.ranks.sides import by_value, fewer_of, spread
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.gradient_sync_mismatch.places import ALIKE, backward_place, waits_in
from hangwatch.stacks.activity import Within
from hangwatch.stacks.frames import user_frame

GRADIENTS = " their gradients"


def gradient_sync_mismatch(case: Case) -> Finding | None:
    """Ranks synchronise their gradients every so many batches, and not the same number of them."""
    first = next(iter(case.divergences), None)
    if first is None or not case.in_trouble or ends_a_loop(case, first) or keep_own_paces(case, first):
        return None
    some, least = representatives(first), measure(case, first)
    if len({cadence(case, rank, first.group, least) for rank in some}) < 2:
        return None
    members = [rank for rank in first.members if rank in case.ranks]
    kept = {rank: every for rank in members if (every := cadence(case, rank, first.group, least)) is not None}
    changed = {
        rank: every
        for rank in members
        if rank not in kept and (every := cadence(case, rank, first.group, least, since=first.step)) is not None
    }
    cadences = {**kept, **changed}
    if len(set(cadences.values())) < 2 or len(cadences) < len(first.members):
        return None
    went_on = len(set(kept.values())) == 1 and bool(changed)
    usual, times = Counter((kept if went_on else cadences).values()).most_common(1)[0]
    majority = 2 * times > len(cadences)
    # Of two halves neither is odd, unless one of them went on as before.
    odd = [rank for rank, found in cadences.items() if found != usual] if majority or went_on else []
    by_cadence = {found: sorted(ranks) for found, ranks in sorted(by_value(cadences).items())}
    witnesses = [Witness(Kind.HABIT, _habit(case, list(kept), list(changed), first.step))]
    if majority:
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks keep one rhythm: {case.name(by_cadence[usual])}"))
    sides = [f"{case.name(ranks)} every {words.plural(found, 'batch')}" for found, ranks in by_cadence.items()]
    what = _what(case, some[0], first.group)
    place = backward_place(case, first.group) if what == GRADIENTS else None
    return Finding(
        "gradient-sync-mismatch",
        case.weigh(witnesses),
        f"The ranks synchronise{what}{words.at(place)} at different intervals: {words.listed(sides)}.",
        fix="" if what == GRADIENTS else "synchronise after the same number of batches on every rank",
        culprits=case.culprits(odd, place),
        victims=case.victims(odd),
        step=first.name,
        evidence=tuple(
            f"{case.name(ranks)} issued collectives in every {found}{_th(found)} step"
            f" {f'since step {first.step}' if changed.keys() & {*ranks} else _of_the_last(case, ranks[0])}"
            for found, ranks in by_cadence.items()
        ),
        witnesses=tuple(witnesses),
        awaited=tuple(case.ranks),
    )


def _habit(case: Case, kept: list[int], changed: list[int], step: int | None) -> str:
    if not changed:
        return "each rank has kept its rhythm in all steps that are recorded"
    before = f"{case.say(kept, 'has', 'have')} kept one rhythm in all steps, and " if kept else ""
    return f"{before}{case.name(changed)} another one since step {step}"


def _of_the_last(case: Case, rank: int) -> str:
    return f"of the last {len(case.ledger.steps(rank))}"


def _what(case: Case, rank: int, group: str) -> str:
    """Gradients, unless Python code has issued all collectives of its last step that has any: then their line."""
    last = next((step for step in reversed(case.ledger.complete_steps(rank)) if step.counts.get(group)), None)
    if last is None:
        return GRADIENTS
    made = [call for call in case.ranks[rank].evidence.board_calls if (call.group, call.step) == (group, last.step)]
    if len(made) < last.counts[group]:
        return GRADIENTS
    return words.at(user_frame(made[-1].frames))


def synchronised_at_own_intervals(case: Case) -> Finding | None:
    """Ranks synchronise after numbers of batches that change, and are a rank's own: one waits for gradients, and others
    are past their last ones.

    Gradients fit each other, however far apart the steps are, until one rank has fewer of them than another.
    """
    first = next(iter(case.divergences), None)
    if first is None or not case.in_trouble or not keep_own_intervals(case, first):
        return None
    least = measure(case, first)
    gaps = {rank: gaps_between(case, rank, first.group, least) for rank in first.members if rank in case.ranks}
    inside = [rank for rank in gaps if _waits_in_gradients(case, rank, first.group)]
    others = [rank for rank in gaps if rank not in inside]
    if not inside or not others or len(gaps) < len(first.members) or not all(gaps.values()):
        return None
    not_past = [view for view in case.views(others) if not _has_no_more(case, view)]
    if not all(_waits_elsewhere(case, view, first.group) for view in not_past):
        return None  # it may come to its next ones
    stand = ("waits in another call", "wait in another call")
    stand = stand if not_past else ("is past its last ones", "are past their last ones")
    odd = fewer_of(inside, others)
    place = backward_place(case, first.group)
    usual = [f"rank {rank} after {_from_to(gaps[rank])} batches" for rank in (*spread(inside), *spread(others))]
    where = case.at_places(others)
    return Finding(
        "gradient-sync-mismatch",
        Certainty.LIKELY,
        f"The ranks synchronise their gradients{words.at(place)} after numbers of batches of their own"
        f" ({words.listed(usual[: words.SHOWN])}): {case.wait_words(inside)} for gradients in"
        f" {words.step(case.ranks[inside[0]].step)}, and {case.name(others)} {words.verb(len(others), *stand)}{where}.",
        fix=ALIKE,
        culprits=case.culprits(odd, place),
        victims=case.victims(odd),
        step=first.name,
        evidence=(
            *(
                f"rank {rank} synchronised in {words.plural(len(gaps[rank]) + 1, 'step')} of the last"
                f" {len(case.ledger.complete_steps(rank))}"
                for rank in (*inside[:1], *others[: words.SHOWN - 1])
            ),
            f"in {words.step(first.name)} it was first seen that some did, and others did not",
        ),
        status=case.failed_status,
        awaited=tuple(case.ranks),
    )


def _has_no_more(case: Case, view: RankView) -> bool:
    """Its data has ended, or it stands behind its loop: in a call, or at its end."""
    ended = view.loader is not None and view.loader.exhausted
    return (ended or has_left_inner_loop(case, view)) and (view.rank in case.blocked or view.over or view.dead)


def _waits_elsewhere(case: Case, view: RankView, group: str) -> bool:
    """It is in a call of that group to which all ranks come, and which those in gradients have not made."""
    in_gradients = view.rank not in case.blocked or Within.BACKWARD in view.now.within
    return not in_gradients and waits_in(case, view.rank, group) and reached_by_all(case, view)


def _from_to(gaps: list[int]) -> str:
    return f"{min(gaps)} to {max(gaps)}" if len(set(gaps)) > 1 else str(gaps[0])


def _waits_in_gradients(case: Case, rank: int, group: str) -> bool:
    """`rank` is in backward, and waits for a call that backward issued."""
    return rank in case.blocked and Within.BACKWARD in case.ranks[rank].now.within and waits_in(case, rank, group)


def synchronised_alone(case: Case) -> Finding | None:
    """Ranks wait in the gradients of a step that the others have passed without any, as in every step before.

    No rank is to blame of two halves: one side synchronises too early, or the other accumulates for too long.
    """
    first = next(iter(case.divergences), None)
    sides = sides_by_count(first) if first is not None else []
    if first is None or len(sides) != 2:
        return None
    without, inside = sides
    if not all(_waits_in_that_step(case, rank, first) for rank in inside):
        return None
    if not all(_has_passed(case, rank, first) and not _ever_synchronised(case, rank, first) for rank in without):
        return None
    return _alone(
        case, inside, without, first.name, f"{case.name(without)} synchronised in no recorded step up to that one"
    )


def synchronised_out_of_turn(case: Case) -> Finding | None:
    """Few ranks wait in the gradients of a step that most ended without any, where all accumulate gradients.

    Were they more, the others could as well have left out a synchronisation that was due; but not where it is the very
    first one, behind steps that all have ended without.
    """
    found = gradients_apart(case) if case.in_trouble else None
    if found is None or len(found.inside) + len(found.past) < len(case.ranks):
        return None
    if len(found.inside) >= len(found.past) and not found.first:
        return None
    everyone = case.name((*found.inside, *found.past))
    habit = f"{everyone} have made steps with and without a synchronisation before"
    if found.first:
        habit = f"{everyone} had synchronised no gradients before, and no optimizer step of theirs is recorded"
    return _alone(case, found.inside, found.past, case.ranks[found.inside[0]].step, habit)


def split_or_repeated(case: Case) -> Finding | None:
    """Few ranks made more forwards for an optimizer step than the others since some step: each of them synchronised.

    The numbers of calls are alike all the while, and those of one batch are paired with those of another.
    """
    found = updates_apart(case)
    if found is None or not case.in_trouble:
        return None
    behind, others = case.name(found.behind), case.name(found.others)
    does = words.verb(
        len(found.behind),
        "it accumulates over more batches, or splits or repeats its own",
        "they accumulate over more batches, or split or repeat their own",
    )
    counts = [words.plural(found.made[side[0]], "optimizer step") for side in (found.behind, found.others)]
    return Finding(
        "gradient-sync-mismatch",
        Certainty.LIKELY,
        f"{case.name(found.behind, capital=True)} made more forwards for each optimizer step than {others}, first in"
        f" step {found.step}: {does}, so that gradients are paired with those of other batches.",
        fix="let all ranks accumulate, split or repeat alike: reduce what decides it (an error, a size) before",
        culprits=case.culprits(found.behind, backward_place(case)),
        victims=case.victims(found.behind),
        step=StepName(None, None, found.step),
        evidence=(
            f"by the begin of step {found.last}, {behind} had made {counts[0]}, and {others} {counts[1]}",
            f"until step {found.step} all ranks had made as many as each other",
        ),
        witnesses=(
            Witness(Kind.MAJORITY, f"most ranks agree: {others}")
            if len(found.others) > len(found.behind)
            else Witness(Kind.HABIT, f"{others} made as many in each forward"),
        ),
        status=case.failed_status,
    )


def accumulated_otherwise(case: Case) -> Finding | None:
    """Few ranks made as many optimizer steps as the others in fewer forwards, or in more, up to the end of the data."""
    found = other_pace(case)
    if found is None or not case.in_trouble:
        return None
    mine, theirs = (found.forwards[side[0]] for side in (found.odd, found.others))
    sooner = "fewer" if mine < theirs else "more"
    odd, others = case.name(found.odd), case.name(found.others)
    return Finding(
        "gradient-sync-mismatch",
        Certainty.LIKELY,
        f"{words.capital(odd)} synchronised gradients after {sooner} forwards than {others}:"
        f" {words.plural(found.updates, 'optimizer step')} in {mine:,} forwards and in {theirs:,}; gradients are paired"
        " with those of other batches.",
        fix=ALIKE,
        culprits=case.culprits(found.odd),
        victims=case.victims(found.odd),
        step=case.ranks[found.odd[0]].step,
        witnesses=(Witness(Kind.MAJORITY, f"most ranks agree: {others}"),),
        status=case.failed_status,
    )


def _alone(case: Case, inside: Sequence[int], without: Sequence[int], step: StepName, habit: str) -> Finding:
    odd = fewer_of(inside, without)
    witnesses = [Witness(Kind.HABIT, habit)]
    if odd:
        others = without if odd is inside else inside
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks agree in that step: {case.name(others)}"))
    verb = words.verb(len(inside), *(("waits", "wait") if case.blocked else ("was", "were")))
    return Finding(
        "gradient-sync-mismatch",
        Certainty.LIKELY,
        f"{case.name(inside, capital=True)} {verb} {'for' if case.blocked else 'in'} the gradients of"
        f" {words.step(step)}, which {case.name(without)} passed without synchronising any.",
        culprits=case.culprits(odd),
        victims=case.victims(odd),
        step=step,
        witnesses=tuple(witnesses),
        status=case.failed_status,
        awaited=tuple(case.ranks),
    )


def _waits_in_that_step(case: Case, rank: int, divergence: Divergence) -> bool:
    """`rank` waits so in the step in question."""
    return _waits_in_gradients(case, rank, divergence.group) and case.ranks[rank].step.step == divergence.step


def _has_passed(case: Case, rank: int, divergence: Divergence) -> bool:
    step = case.ranks[rank].step.step if rank in case.ranks else None
    return step is not None and step > divergence.step


def _ever_synchronised(case: Case, rank: int, divergence: Divergence) -> bool:
    """A backward of `rank` has issued calls in that group until then, or may have.

    Where no record lists them, those that no Python code has made may be such.
    """
    if rank not in case.ranks:
        return True
    steps = [step for step in case.ledger.complete_steps(rank) if step.step <= divergence.step]
    if not case.ranks[rank].evidence.collectives.complete:
        made = Counter(call.step for call in case.ledger.calls_in(rank, divergence.group))
        return any(step.counts.get(divergence.group, 0) > made[step.step] for step in steps)
    return bool(sites_of(case).synchronised(rank, divergence.group, {step.step for step in steps}))


def _th(number: int) -> str:
    return {1: "st", 2: "nd", 3: "rd"}.get(number if number < 20 else number % 10, "th")
