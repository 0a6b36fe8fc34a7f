"""One rank made a call that the others did not make, and all its later calls met those of the others one too late."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.batches import first_uneven
from hangwatch.facts.case import Case
from hangwatch.facts.shifts import Shift, shift
from hangwatch.facts.skip_paths import ways_to
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def shifted_by_a_call(case: Case) -> Finding | None:
    """Few ranks are ahead by calls of their own, as the whole call paths show; the source or most ranks say whose."""
    found = shift(case)
    if found is None or first_uneven(case) is not None or len(found.more) > len(found.fewer):
        return None
    witnesses = _witnesses(case, found)
    if not witnesses:
        return None
    call = found.calls[0]
    where = user_frame(call.frames)
    views = [case.ranks[rank] for rank in found.more if rank in case.ranks]
    again = "" if len(found.calls) == 1 else f" and {words.plural(len(found.calls) - 1, 'call')} after it"
    return Finding(
        "rank-zero-only-collective",
        min(case.weigh(witnesses), Certainty.LIKELY, key=_DOUBT.index),
        f"{case.name(found.more, capital=True)} made {call.op}{words.at(where)}{again}, which"
        f" {case.name(found.fewer)} never made; since then their calls are mispaired.",
        culprits=tuple(view.culprit(where) for view in views),
        victims=found.fewer,
        step=views[0].step if views else case.furthest_step(case.ranks),
        evidence=(
            f"collective {found.seq} of group {found.found.group.name} is the first one to which different lines lead",
            f"what {case.name(found.more)} called after it is what {case.name(found.fewer)} called at that number",
        ),
        witnesses=witnesses,
        status=Status.FAILED if case.any_rank_failed else None,
        awaited=found.more,
    )


_DOUBT = (Certainty.UNDETERMINED, Certainty.LIKELY, Certainty.PROVEN)


def _witnesses(case: Case, found: Shift) -> tuple[Witness, ...]:
    heard = []
    if len(found.more) < len(found.fewer):
        heard.append(Witness(Kind.MAJORITY, f"most ranks left it out: {case.name(found.fewer)}"))
    guards = [way for way in ways_to(case, found.calls[0]) if way.asks == "rank"]
    if guards:
        heard.append(
            Witness(Kind.SOURCE, f"the source asks for the rank at {words.place(guards[0].where)} (`{guards[0].text}`)")
        )
    return tuple(heard)
