"""A condition led some ranks past a backward and its optimizer step within a step."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.differences.past_an_update import past_an_update
from hangwatch.facts.differences.updates_in_step import UpdatesInStep, updates_in_step
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.ranks.sides import odd_of
from hangwatch.rules.finding import Finding


def left_an_update_out(case: Case) -> Finding | None:
    """Ranks stand at one line of a step, and some have made fewer optimizer steps on the way to it."""
    found = updates_in_step(case) if case.in_trouble else None
    if found is None:
        return None
    one = found.conditions[0] if len(found.conditions) == 1 else None
    odd = odd_of(found.others, found.without)
    counted = (
        f"on the way to {words.place(found.where)} {case.name(found.without)} made"
        f" {words.plural(found.fewer, 'optimizer step')} in that step, and {case.name(found.others)} made {found.more}"
    )
    witnesses = [Witness(Kind.FACT, f"all ranks began {words.step(found.step)} alike")]
    if one is not None:
        witnesses.append(Witness(Kind.SOURCE, f"in that loop only `{one.text}` leads to a backward ahead of that line"))
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"{_what_decided(found)}{words.in_step(found.step)}: {case.name(found.without)} left out a backward and its"
        f" optimizer step ahead of {words.place(found.where)}, where all ranks stand.",
        culprits=case.culprits(odd, one.where if one is not None else None),
        victims=case.victims(odd),
        step=found.step,
        evidence=(counted, *_candidates(found)),
        witnesses=tuple(witnesses),
        status=case.failed_status,
    )


def went_past_an_update(case: Case) -> Finding | None:
    """Ranks are behind a condition in whose backward the others stand, and have made no more optimizer steps."""
    found = past_an_update(case) if case.in_trouble else None
    if found is None:
        return None
    odd, condition = odd_of(found.inside, found.past), found.condition
    past = f"{case.name(found.past)} {words.verb(len(found.past), 'is', 'are')} behind it{words.at(found.behind)}"
    stand = f"{words.verb(len(found.inside), 'stands', 'stand')} in the backward under it{words.at(found.within)}"
    return Finding(
        "rank-local-decision",
        Certainty.LIKELY,
        f"`{condition.text}` ({words.place(condition.where)}) came out differently on the ranks: {past}, and"
        f" {case.name(found.inside)} {stand}.",
        culprits=case.culprits(odd, condition.where),
        victims=case.victims(odd),
        step=case.furthest_step(found.inside),
        evidence=(f"all ranks have made {words.plural(found.updates, 'optimizer step')}: none is a turn ahead",),
        witnesses=(
            Witness(Kind.SOURCE, f"the backward at {words.place(found.within)} is made under that condition only"),
        ),
        status=case.failed_status,
        awaited=odd,
    )


def _what_decided(found: UpdatesInStep) -> str:
    """The condition, where the source shows but one."""
    if len(found.conditions) == 1:
        (one,) = found.conditions
        return f"`{one.text}` ({words.place(one.where)}) came out differently on the ranks"
    return "The ranks took different ways"


def _candidates(found: UpdatesInStep) -> tuple[str, ...]:
    if len(found.conditions) < 2:
        return ()
    each = (f"{words.place(one.where)} (`{one.text}`)" for one in found.conditions[: words.SHOWN])
    return (f"by the source of that loop, a backward ahead of that line depends on {words.either(each)}",)
