"""A collective past the entry of a with block that ranks enter one after another: the others wait at that entry."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import at_the_entry_of_its_block
from hangwatch.facts.case import Case, once
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Frame
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_zero_only_collective.witnesses import alone_at


def called_before_it_lets_them_in(case: Case) -> Finding | None:
    """Ranks wait in a collective at the entry of a with block, and those that have entered it call another one."""
    found = _inside(case) if case.all_wait else None
    if found is None:
        return None
    inside, entry = found
    outside, first = case.victims(inside), case.ranks[inside[0]]
    what, block = first.now.call or "a collective", words.place(entry)
    at_entry = f"{case.wait_words(outside)} at the entry of the with block at {block}"
    has_entered = f"which {case.say(inside, 'has', 'have')} entered"
    witnesses = (
        Witness(Kind.PLACE, f"{at_entry}, {has_entered} without that wait"),
        alone_at(case, what, f"at {words.place(first.where)}"),
    )
    return Finding(
        "rank-zero-only-collective",
        case.weigh(witnesses),
        f"{words.ranks(inside, capital=True)} {words.verb(len(inside), 'is', 'are')} alone in {what}"
        f"{words.at(first.where)}, past the entry of the with block at {block}, where"
        f" {case.wait_words(outside)} to be let in.",
        fix=f"move that call out of the with block at {block}, which the ranks enter one after another; where it stands"
        " behind that block, let its end release the others after an error as well (try/finally around the yield)",
        culprits=case.culprits(inside),
        victims=outside,
        step=first.step,
        witnesses=witnesses,
    )


@once
def _inside(case: Case) -> tuple[tuple[int, ...], Frame] | None:
    """The ranks inside such a block and its line, if all others wait at its entry."""
    stacks = {rank: case.ranks[rank].evidence.main_stack for rank in case.blocked}
    entries = {stack: _is_entering(stack) for stack in set(stacks.values())}
    outside = [rank for rank, stack in stacks.items() if entries[stack] and _in_a_collective(case, rank)]
    inside = [rank for rank in stacks if rank not in set(outside) and _in_a_collective(case, rank)]
    if not outside or not inside or len(inside) + len(outside) < len(case.ranks):
        return None
    ours, theirs = ({stacks[rank] for rank in ranks} for ranks in (outside, inside))
    lines = {at_the_entry_of_its_block(one, other) for one in ours for other in theirs}
    line = lines.pop()
    return (tuple(inside), line) if line is not None and not lines else None


def _is_entering(stack: tuple[Frame, ...]) -> bool:
    return any(frame.function.endswith(("__enter__", "__aenter__")) for frame in stack)


def _in_a_collective(case: Case, rank: int) -> bool:
    return case.blocked[rank].activity.in_collective and not case.blocked[rank].to_a_peer
