"""What several rules say of loops: how they end, and of ranks that made fewer turns, for each cause that may be why."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import now_at
from hangwatch.facts.differences.parting import parting
from hangwatch.facts.loops.turns import FewerTurns, drew_alike, fewer_turns
from hangwatch.facts.loops.ways_out import likely_way, may_begin_elsewhere, said_at, tries_again_at, ways_out
from hangwatch.facts.messages.peer_totals import said_unserved
from hangwatch.model import Certainty, LoopFacts, Status, StepName
from hangwatch.ranks.own_steps import steps_end
from hangwatch.rules.finding import Finding

_WITHOUT_LOADER = (
    "let all ranks make as many turns: agree on their number first (all_reduce of it, op=dist.ReduceOp.MIN), or vote in"
    " each turn whether all go on"
)
_RESUMED = (
    "let the loop begin at one step on all ranks: broadcast the one that rank 0 resumes from; where it is right, agree"
    " on the number of turns first (all_reduce of it, op=dist.ReduceOp.MIN)"
)
_NO_RETRY = (
    "never repeat a call on one rank alone: let all ranks vote on a retry, or agree on the number of turns first"
    " (all_reduce of it, op=dist.ReduceOp.MAX)"
)


def left_after_fewer_turns(case: Case, cause: str, *, of_few: bool = False) -> Finding | None:
    """Ranks are past their loop after fewer turns than the others, in the way that `cause` explains; else None.

    Where most ranks are past it, the few in it make a turn too many: told with `of_few` alone.
    """
    short = fewer_turns(case)
    if short is None or drew_alike(case, short) or tries_again_at(case, short) is not None:
        return None
    if _parted_before(case, short):
        return None
    way = likely_way(case, short)
    by_number = way.cause == "uneven-steps"  # the loop shows no way out but its end: no rank decided to leave it
    if (len(short.inside) if by_number else 2 * len(short.inside)) < len(short.left):
        return _more_turns(case, short, cause) if of_few else None
    first = case.ranks[short.left[0]]
    if way.cause != cause:
        return None
    count = short.made.get(first.rank)
    after = f" after {words.plural(count, 'step')}" if count is not None else ""
    made = (
        _past_it(short)
        if short.within_batch
        else f"{words.verb(len(short.left), 'has', 'have')} left the loop{_at(short)}{after}"
    )
    failed = not case.blocked
    others, already = still_inside(case, short, count)
    if short.over:
        most = max(short.made[rank] for rank in short.inside)
        others, already = f"{case.name(short.inside)} made {words.plural(most, 'step')}", ""
    without = f" and failed without {words.verb(len(short.left), 'it', 'them')}"
    return Finding(
        cause,
        Certainty.LIKELY,
        f"{case.name(short.left, capital=True)} {made}{now_at(case, short.left, first.where)};"
        f" {others}{without if failed else already}{way.why}.",
        fix=_fix(case, cause, short.loop),
        culprits=() if _began_apart(short) else case.culprits(short.left, way.the_only),
        step=_step(case, short, cause),
        evidence=(
            *(_counted(case, short, rank) for rank in sorted(short.begun)[: words.SHOWN]),
            *standing(case, short),
            *_lacking_messages(case, short),
            *ways_out(short.loop),
        ),
        status=Status.FAILED if failed else None,
        not_causes=way.not_causes,
    )


def _parted_before(case: Case, short: FewerTurns) -> bool:
    """The ranks' calls differ in an earlier turn: since then they stand where mispaired calls let them."""
    found = parting(case)
    return found is not None and bool(short.begun) and found.divergence.step < min(short.begun.values()) - 1


def still_inside(case: Case, short: FewerTurns, count: int | None) -> tuple[str, str]:
    """`ranks 0 and 2 have begun 9`, where those that left made `count` steps, and whether that is more: " already".

    Counts on both sides: steps are numbered from 0, so that the last of 80 steps is step 79.
    """
    failed, one = not case.blocked, len(short.inside) == 1
    if count is None or short.now < count:
        are = ("was" if one else "were") if failed else ("is" if one else "are")
        return f"{case.name(short.inside)} {are} still in it", ""
    have = "had" if failed else "has" if one else "have"
    return f"{case.name(short.inside)} {have} begun {short.now + 1:,}", " already"


def standing(case: Case, short: FewerTurns) -> tuple[str, ...]:
    """Where both sides are, for loops whose steps are not counted."""
    if short.begun:
        return ()
    too = f"in a loop in which {case.say(short.left, 'has', 'have')} been too"
    sides = ((short.left, "outside of that loop"), (short.inside, too))
    return tuple(f"{case.name(ranks)} {_stand(case, ranks)} {what}{case.at_places(ranks)}" for ranks, what in sides)


def _stand(case: Case, ranks: tuple[int, ...]) -> str:
    if case.blocked:
        return words.verb(len(ranks), "stands", "stand")
    return "stood"


def _lacking_messages(case: Case, short: FewerTurns) -> Iterator[str]:
    """Those of the ranks that left the loop, for which other ranks wait."""
    for entry in case.blocked.values():
        call = entry.message
        if call is not None and call.peer in short.left and (lacking := said_unserved(case, call, entry.rank)):
            yield lacking


def _more_turns(case: Case, short: FewerTurns, cause: str) -> Finding:
    """Most ranks have left the loop: the few that are in it still make a turn more than the program has for all."""
    one, where = len(short.inside) == 1, words.at(case.usual_place(short.left))
    ended = all(case.ranks[rank].finished for rank in short.left)
    are = "were" if all(case.ranks[rank].dead for rank in short.left) else "are"
    behind = "have ended" if ended else f"{are} behind it{where}"
    now = f" and in step {short.now}" if short.begun else ""
    return Finding(
        cause,
        Certainty.LIKELY,
        f"{case.say(short.inside, 'is', 'are', capital=True)} still in the loop{_at(short)}{now},"
        f" and {case.name(short.left)} {behind}: {'it makes' if one else 'they make'} more turns than most ranks.",
        fix=_fix(case, cause, short.loop),
        culprits=case.culprits(short.inside),
        victims=case.victims(short.inside),
        step=case.step_of(short.inside),
        evidence=(
            *(_counted(case, short, rank) for rank in sorted(short.begun)[: words.SHOWN]),
            *standing(case, short),
            *ways_out(short.loop),
        ),
        status=case.failed_status,
    )


def _at(short: FewerTurns) -> str:
    return words.at(short.loop.where) if short.loop is not None else ""


def _began_apart(short: FewerTurns) -> bool:
    """Of two halves that may have begun at unlike steps neither is known to be the one that is wrong."""
    return short.loop is not None and may_begin_elsewhere(short.loop) and len(short.left) >= len(short.inside)


def _fix(case: Case, cause: str, loop: LoopFacts | None) -> str:
    if cause == "uneven-steps" and loop is not None and may_begin_elsewhere(loop):
        return _RESUMED
    return _WITHOUT_LOADER if cause == "uneven-steps" and all(view.loader is None for view in case) else ""


def _past_it(short: FewerTurns) -> str:
    """Ranks that never entered an inner loop are past it as well."""
    at = words.at(short.loop.where) if short.loop is not None else ""
    return f"{words.verb(len(short.left), 'is', 'are')} past the inner loop{at}"


def _step(case: Case, short: FewerTurns, cause: str) -> StepName:
    if short.within_batch:
        return case.step_of(short.left)
    first = short.left[0]
    return StepName() if cause == "skipped-collective" else StepName(None, None, short.made.get(first))


def _counted(case: Case, short: FewerTurns, rank: int) -> str:
    """`rank 1 made 6 steps` where the end of each was seen, else how many it began."""
    count = short.made.get(rank, short.begun[rank])
    made = rank in short.made and steps_end(case.ranks[rank])
    return f"rank {rank} {'made' if made else 'began'} {words.plural(count, 'step')}"


def equal_turns(loop: LoopFacts | None) -> str:
    """The fix for the loop that makes a call again: it may go through items of that rank's own."""
    if loop is None:
        return _NO_RETRY
    if loop.leaves and loop.swallows is None:
        return "let all ranks make equally many turns: reduce the value that ends the loop before it is asked"
    return (
        f"let all ranks make the same number of turns in the loop at {words.place(loop.where)}: they must agree on what"
        " it goes through, or on a retry, before they communicate in it"
    )


def decides(loop: LoopFacts) -> bool:
    """It ends at a condition, or with what it goes through, and is no retry after an error."""
    return loop.swallows is None and bool(loop.leaves or not loop.skips)


def which_ends(loop: LoopFacts) -> str:
    """What ended the loop, by its source: there may be several ways out, or none but its end."""
    if not loop.leaves:
        return "which ends with what it goes through, a number or items of each rank's own"
    return f"which can be left at {words.either(said_at(loop, way) for way in loop.leaves[: words.SHOWN])}"
