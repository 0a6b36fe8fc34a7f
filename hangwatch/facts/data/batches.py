"""Which batches each rank drew in each epoch: how many, whether its data ended, and which ranks drew fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Path, comes_before, from_one_line, path, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import reached_by_all
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.drawn import Drawn, drawn_by_epoch
from hangwatch.facts.data.drawn_together import ended_together
from hangwatch.facts.rank_end import ending
from hangwatch.model import Collective, Frame, LoopFacts, Phase
from hangwatch.ranks.sides import by_value, spread
from hangwatch.ranks.view import OVER, RankView
from hangwatch.stacks.activity import Doing, Within
from hangwatch.stacks.frames import origin


@dataclass(frozen=True)
class Uneven:
    """An epoch in which ranks drew different numbers of batches."""

    epoch: int
    drawn: Mapping[int, Drawn]
    short: tuple[int, ...]  # ended with fewer batches than others have drawn

    @property
    def left_with_data(self) -> tuple[int, ...]:
        """The short ranks that left the loop before their data had ended."""
        return tuple(rank for rank in self.short if not self.drawn[rank].exhausted)

    @property
    def fewest(self) -> int:
        return Counter(self.drawn[rank].count for rank in self.short).most_common(1)[0][0]

    @property
    def most(self) -> int:
        return max(drawn.count for drawn in self.drawn.values())


PAST_LAST_BATCH = frozenset({Phase.OPTIMIZER, Phase.EVAL, Phase.BETWEEN, Phase.DESTROYING, *OVER})


@once
def first_uneven(case: Case) -> Uneven | None:
    """The first epoch that ended on some ranks with fewer batches than others have drawn in it."""
    loaders = {view.rank: view.loader for view in case if view.loader is not None and view.loader.epoch >= 0}
    down = {view.rank for view in case if _went_out_with_an_error(view)}
    table = {
        rank: drawn_by_epoch(loader, failed=rank in down, past=case.ranks[rank].phase in PAST_LAST_BATCH)
        for rank, loader in loaders.items()
    }
    table = ended_together(table, case)
    for epoch in sorted({epoch for counts in table.values() for epoch in counts}):
        drawn = {rank: counts[epoch] for rank, counts in table.items() if epoch in counts}
        short = tuple(sorted(rank for rank, entry in drawn.items() if is_short(entry, drawn.values())))
        if not short or within_join(case, epoch, drawn) or met_behind_their_loops(case, drawn):
            continue
        if not rejoined(case, {r: r in short for r in drawn}):
            return Uneven(epoch, drawn, short)
    return None


def had_fewer(case: Case, rank: int) -> bool:
    """The rank's epoch ended before that of others: what it calls then is behind the loop, or of the next epoch."""
    uneven = first_uneven(case)
    return uneven is not None and rank in uneven.short


def _went_out_with_an_error(view: RankView) -> bool:
    """It raised, lost a peer, or ended with a code of its own. A signal ends a process where it stands, and no loop."""
    if view.lost_a_peer:
        return True
    if view.raised or not view.dead or view.finished:
        return view.raised
    process = view.evidence.process
    killed = process is not None and process.exit_code is not None and process.exit_code < 0
    return not killed or view.exception is not None


def is_short(mine: Drawn, everyone: Iterable[Drawn]) -> bool:
    """It ended with fewer than others drew, or have to draw, or left amid a batch that others still work on."""
    if not mine.ended:
        return False
    further = any(max(other.count, other.length) > mine.count for other in everyone if other.count >= mine.count)
    return further or (not mine.exhausted and any(not other.ended and other.count == mine.count for other in everyone))


def worked_on(view: RankView, uneven: Uneven) -> int:
    """The batches of that epoch that it began to work on: a trainer may have drawn one more, and thrown it away."""
    drawn = uneven.drawn[view.rank].count
    steps = view.evidence.board_steps
    batches = [entry.batch for entry in steps if entry.epoch == uneven.epoch and entry.batch is not None]
    begun = max(batches, default=-1) + 1
    return begun if begun == drawn - 1 else drawn


def within_join(case: Case, epoch: int, drawn: Iterable[int]) -> bool:
    """The ranks had issued the same numbers when the next epoch began: `Join` made up for the missing batches."""
    begun = {}
    for rank in drawn:
        steps = case.ranks[rank].evidence.board_steps
        entry = next((entry for entry in steps if entry.epoch == epoch + 1), None)
        if entry is not None:
            begun[rank] = tuple(sorted(entry.issued.items()))
    return len(begun) > 1 and len(begun) == len(list(drawn)) and len(set(begun.values())) == 1


def rejoined(case: Case, sides: Mapping[int, int]) -> bool:
    """Ranks of different sides wait in the same call behind their loops, for a rank that works.

    What one side has left out or done too often is made up for. `Join` does so: a rank without data makes the calls of
    the others, all of them in its last step. Within a loop it means nothing: there steps may be mispaired.
    """
    if not any(view.rank not in case.blocked and not view.dead and not view.over for view in case):
        return False
    places: dict[object, set[int]] = {}
    for rank, side in sides.items():
        inside = case.blocked.get(rank)
        if inside is None or inside.group is None or inside.seq is None or inside.where is None:
            continue
        loader = case.ranks[rank].loader
        if loader is not None and (loader.exhausted or loader.left):
            place = (inside.group.name, inside.seq, inside.where.file, inside.where.line)
            places.setdefault(place, set()).add(side)
    return any(len(found) > 1 for found in places.values())


def met_behind_their_loops(case: Case, drawn: Iterable[int]) -> bool:
    """All ranks are through with their loops, and have gone on from one call behind these, under one number on all.

    `Join` made up for the missing batches: else the calls would be mispaired there.
    """
    views = case.views(drawn)
    if not all(view.loader is not None and view.loader.exhausted for view in views):
        return False
    return any(
        site(call) is not None and all(_has_gone_on_from(case, view, call) for view in views)
        for call in case.ledger.calls(views[0].rank).values()
    )


def _has_gone_on_from(case: Case, view: RankView, like: Collective) -> bool:
    """In its last step it made the call of that number from the same place, behind its loop, and it is over."""
    call = case.ledger.call(view.rank, like.group, like.seq)
    if call is None or site(call) != site(like) or case.ledger.step_of(view.rank, call) != view.step.step:
        return False
    drawn = view.loader.where if view.loader is not None else None
    if drawn is None or any(frame.source_line == drawn.source_line for frame in call.frames):
        return False
    made = case.ledger.calls(view.rank).values()
    return view.over or view.finished or any((other.at or 0.0) > (call.at or 0.0) for other in made)


def is_fed(view: RankView, uneven: Uneven) -> bool:
    """It trained without a batch of its own loader: its batches come from elsewhere, such as another rank's loader."""
    drawn = uneven.drawn.get(view.rank)
    return drawn is not None and not drawn.count and forwards(view) > 0


def forwards(view: RankView) -> int:
    return view.reading.progress.forwards if view.reading is not None else 0


def drawn_words(case: Case, uneven: Uneven) -> tuple[str, ...]:
    fed = {view.rank: view for view in case if is_fed(view, uneven)}
    sentences = [
        f"rank {rank} made {words.plural(forwards(view), 'forward')}, with no batch of its own loader"
        for rank, view in list(fed.items())[: words.SHOWN]
    ]
    drawn = {rank: each for rank, each in uneven.drawn.items() if rank not in fed}
    counts = {rank: (each.count, each.ended, each.exhausted, each.beside) for rank, each in drawn.items()}
    for (count, ended, exhausted, beside), ranks in sorted(by_value(counts).items()):
        its = "its loader was" if len(ranks) == 1 else "their loaders were"
        its = "another loader, which the same loop draws from, was" if beside else its
        end = f" and {its} then exhausted" if exhausted else " and left the loop" if ended else " so far"
        sentences.append(f"{case.name(ranks)} drew {words.plural(count, 'batch')} in epoch {uneven.epoch}{end}")
    return (*sentences, *_resumed_words(case, uneven))


def resumed_earlier(case: Case, uneven: Uneven) -> tuple[int, ...]:
    """Ranks that began that epoch at an earlier batch than the short ones, which had drawn before what they lack."""
    starts = _starts(case, uneven)
    short, others = ([rank for rank in starts if (rank in uneven.short) is mine] for mine in (True, False))
    later = bool(short and others) and min(starts[rank] for rank in short) > max(starts[rank] for rank in others)
    return tuple(others) if later else ()


def _starts(case: Case, uneven: Uneven) -> dict[int, int]:
    """The batch at which each rank's iterator of that epoch began; 0 where it was not resumed."""
    loaders = {rank: loader for rank in uneven.drawn if (loader := case.ranks[rank].loader) is not None}
    return {rank: each.resumed_at for rank, each in loaders.items() if each.epoch == uneven.epoch}


def _resumed_words(case: Case, uneven: Uneven) -> tuple[str, ...]:
    """Where iterators of that epoch were resumed at different batches: from which one each rank went on."""
    found = by_value(_starts(case, uneven))
    if len(found) < 2:
        return ()
    starts = [f"{case.name(ranks)} at batch {batch}" for batch, ranks in sorted(found.items())]
    return (f"their loaders began that epoch at different batches: {words.listed(starts)}",)


def now_at(case: Case, ranks: Sequence[int], where: Frame | None) -> str:
    """Where the first of the ranks that have left the loop is, as the rest of a sentence on all of them."""
    view, one = case.ranks[ranks[0]], len(ranks) == 1
    if view.dead:
        return " and exited" if view.finished or view.where is None else f" and ended at {words.place(view.where)}"
    if view.returned:
        return (
            " and returned from the function that it runs" if one else " and returned from the function that they run"
        )
    if view.over:
        return " and is at its end" if one else " and are at their ends"
    loop = view.loader.where if view.loader is not None else None
    if where is None or (loop is not None and loop.source_line == where.source_line):
        return ""  # below a trainer's `fit` that line tells nothing more
    return (
        f" and ended at {words.place(where)}"
        if case.stood
        else f", and {'is' if one else 'are'} now at {words.place(where)}"
    )


def at_its_loader(view: RankView) -> Frame | None:
    """The line that iterated over its data, where a rank has ended and no stack says more."""
    return view.loader.where if view.where is None and view.loader is not None else None


def has_left_loop(case: Case, view: RankView) -> bool:
    """It is at its end, its loader has ended, or it stands outside of every loop where it has never been before."""
    if view.raised or view.lost_a_peer:
        return False  # an error took it out, from wherever it was
    if view.over or view.finished:
        return True
    if view.now.in_loop is not None:
        return not view.now.in_loop
    if view.main.doing in (Doing.JOIN_THREADS, Doing.JOIN_CHILD):
        return True
    if view.loader is not None or view.rank not in case.blocked or not view.now.in_collective:
        return False  # where its host waits for its device is no place of a call
    if Within.BACKWARD in view.now.within:
        return False  # what DDP issues there is of a step, and on no board
    if any(from_one_line(view.evidence.main_stack, other) for other in _stacks_in_calls(case)):
        return False  # a trainer calls both from there: nothing shows that its loop lies behind that rank
    return view.rank != 0 and not sites_of(case).regular(view.rank)


@once
def _stacks_in_calls(case: Case) -> set[tuple[Frame, ...]]:
    """The stacks of some ranks that wait: those of a large job are alike."""
    return {case.ranks[rank].evidence.main_stack for rank in spread(case.blocked)}


def has_left_inner_loop(case: Case, view: RankView) -> bool:
    """`has_left_loop`, or it is around or behind the loop of all others, at a line that every rank reaches.

    Of several ranks around that loop the others may as well be in the next turn of what lies around both, unless all
    draw from one epoch of a loader and these are there for the first time. A rank that its backend ended, or that lost
    a peer, stood in a call until then, as those do that still wait.
    """
    if has_left_loop(case, view):
        return True
    mine = view.now.loop
    if mine is None or not reached_by_all(case, view) or not _in_a_call(case, view):
        return False
    others = [(loop, there) for loop, there in _loops_in_calls(case) if loop != mine]
    here = path(view.evidence.main_stack)
    if any(origin(frame.file) == "package" for frame in view.evidence.main_stack):
        here = ()  # a trainer's loop may lie around both
    alone = sum(times for (loop, _), times in _loops_in_calls(case).items() if loop == mine) < 2
    alone = alone or (_draw_from_one_epoch(case, view) and sites_of(case).regular(view.rank) is False)
    return bool(others) and all(
        (alone and mine.where in loop.outer) or _is_behind(mine, here, loop, there) for loop, there in others
    )


def _draw_from_one_epoch(case: Case, view: RankView) -> bool:
    """All ranks in another loop than `view` are in the epoch of the same loader from which it drew last."""
    mine = _epoch_of(view)
    others = (each for each in case if each.now.loop is not None and each.now.loop != view.now.loop)
    return mine is not None and all(_epoch_of(each) == mine for each in others)


def _epoch_of(view: RankView) -> tuple[int, int] | None:
    return (view.loader.index, view.loader.epoch) if view.loader is not None and view.loader.drawn else None


def _is_behind(mine: LoopFacts, here: Path, loop: LoopFacts, there: Path) -> bool:
    """Its loop follows that one in the source, and no loop around both brings ranks from the one to the other again."""
    return {mine.where, *mine.outer}.isdisjoint((loop.where, *loop.outer)) and comes_before(there, here)


@once
def _loops_in_calls(case: Case) -> Counter[tuple[LoopFacts, Path]]:
    """The loops in which ranks stand in a call, and where: few, however many ranks there are."""
    return Counter(
        (loop, path(view.evidence.main_stack))
        for view in case
        if (loop := view.now.loop) is not None and _in_a_call(case, view)
    )


def _in_a_call(case: Case, view: RankView) -> bool:
    """It waits in a call, or it stood in one when it ended for what another rank had done."""
    return view.rank in case.blocked or (view.now.in_collective and ending(view).of_another)


def loop_of_the_others(case: Case, left: Container[int]) -> LoopFacts | None:
    """What the source shows of the loop that ranks have left: those that are still in it stand there."""
    inside = (view for view in case if view.rank not in left)
    return next((view.now.loop for view in inside if view.now.loop is not None), None)


def runs_below_a_package(case: Case, left: Container[int]) -> bool:
    """The loop that ranks have left is a trainer's: whether an error ended it cannot be read in the user's source."""
    inside = [view for view in case if view.rank not in left and view.now.loop is None]
    return any(origin(frame.file) == "package" for view in inside for frame in view.evidence.main_stack)
