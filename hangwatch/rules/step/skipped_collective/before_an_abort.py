"""A call of every step that one rank left out, so that the backend paired what came next with it, and ended the job."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import HABIT, sites_of
from hangwatch.facts.calls.last_calls import Last, brought_down, end_sentences, endings_of, last_calls
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind as WitnessKind
from hangwatch.facts.witness import Witness
from hangwatch.model import Certainty, Status
from hangwatch.ranks.last_words import Kind
from hangwatch.rules.finding import Finding


def skipped_before_an_abort(case: Case) -> Finding | None:
    """Some ranks ended in a call of every step; the others, in the same step, had made fewer and came to another."""
    lasts = last_calls(case) if brought_down(case) and _sizes_differed(case) else {}
    places = {last.site for last in lasts.values() if last.call is not None}
    steps = {case.ranks[rank].step.step for rank in lasts}
    rest = tuple(rank for rank in case.ranks if rank not in lasts)
    step = next(iter(steps), None)
    if len(places) != 1 or len(steps) != 1 or step is None or not rest or 2 * len(rest) > len(case.ranks):
        return None
    place = next(iter(places))
    made = {rank: _made(case, rank, place, step) for rank in case.ranks}
    reached = min(made[rank] for rank in lasts)
    if reached < 1 or any(made[rank] >= reached for rank in rest):
        return None
    if not all(_used_to_make(case, rank, place, step, reached) for rank in case.ranks):
        return None
    return _finding(case, place, rest, lasts)


def _sizes_differed(case: Case) -> bool:
    """gloo aborts a rank for nothing else: a partner's message of another size came, so that partner made a call."""
    ends = (end for end in endings_of(case).values() if end.by_backend)
    return any(end.word is None or end.word.kind is Kind.SIZE_MISMATCH for end in ends)


def _made(case: Case, rank: int, place: Site, step: int) -> int:
    """How often `rank` has called from `place` in that step."""
    return sites_of(case).in_step(rank, step).count(place)


def _used_to_make(case: Case, rank: int, place: Site, step: int, times: int) -> bool:
    """`rank` is in `step`, called from `place` that often in each step before, and is at no call that is new.

    Of the oldest step that is on record some calls may have been forgotten; the last ones are asked in any case.
    """
    made = sites_of(case).by_step(rank)
    before = {number: places for number, places in made.items() if number < step}
    asked = {*range(step - HABIT, step), *sorted(before)[1:]}
    usual = {each for places in before.values() for each in places}
    regular = all(before.get(number, []).count(place) >= times for number in asked)
    return regular and usual.issuperset(made.get(step, [])) and case.ranks[rank].step.step == step


def _finding(case: Case, place: Site, rest: tuple[int, ...], lasts: dict[int, Last]) -> Finding:
    first = min(lasts)
    ways = ways_past(case, place)
    where = the_only(ways) or lasts[first].where
    name, others, step = sites_of(case).named(first, place), case.name(lasts), case.ranks[first].step
    made = {rank: _made(case, rank, place, step.step or 0) for rank in case.ranks}
    reached, short = min(made[rank] for rank in lasts), max(made[rank] for rank in rest)
    skipped = f"left out a call of {name}" if short else f"skipped {name}"
    stood = f"{others} stood in that call of {words.step(step)}, of which {case.name(rest)} has no record"
    if short:
        stood = (
            f"in {words.step(step)} {others} had called it {reached} times or more, {case.name(rest)} {short} or less"
        )
    often = f"{reached} times or more " if reached > 1 else ""
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{case.name(rest, capital=True)} {skipped} in {words.step(step)}{skip_path(ways)}, and went on to another"
        f" call, with which it was paired on {others}: the sizes differ, and the backend ended the job.",
        culprits=case.culprits(rest, where),
        victims=tuple(lasts),
        step=step,
        evidence=(stood, *evidence_of(ways), *end_sentences(case)),
        witnesses=(
            Witness(WitnessKind.HABIT, f"{case.name(rest)} called it {often}in every earlier step that is recorded"),
        ),
        status=Status.FAILED,
    )
