"""A call left out by ranks that are past the place where the others wait."""

from __future__ import annotations

from itertools import takewhile

from hangwatch import words
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, ways_past
from hangwatch.facts.case import Case
from hangwatch.facts.loops.passed_call_site import passed_call_site
from hangwatch.facts.loops.turns import FewerTurns, drew_alike, fewer_turns
from hangwatch.facts.loops.ways_out import likely_way, ways_out
from hangwatch.model import Bypass, Certainty, LoaderFacts, LoopFacts, Status, StepName
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import left_after_fewer_turns
from hangwatch.stacks.frames import origin


def made_fewer_calls(case: Case) -> Finding | None:
    """Ranks made fewer calls with the same batches: those of a turn are missing in some step before."""
    short = fewer_turns(case)
    if short is None or not drew_alike(case, short) or len(short.left) > len(short.inside):
        return left_after_fewer_turns(case, "skipped-collective")
    rank, other = short.left[0], short.inside[0]
    apart, way = case.ledger.first_apart(rank, other), likely_way(case, short)
    skips = way.cause == "skipped-collective"
    passed = _ways_past(case, other) if case.blocked else ()
    in_it = f"in it{way.why if skips else ''}"
    name = StepName() if apart is None else apart.name
    when = f" Its calls differ for the first time in {words.step(name)}." if words.step(name) else ""
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{case.name(short.left, capital=True)} made fewer collectives than the others with as many batches, and"
        f" {words.verb(len(short.left), 'is', 'are')} past the loop{words.at(case.ranks[rank].where)};"
        f" {case.wait_words(short.inside) if case.blocked else f'{case.name(short.inside)} failed'} {in_it}.{when}"
        f"{_left_out(passed)}",
        culprits=case.culprits(short.left, (way.the_only if skips else None) or the_only(passed)),
        step=name,
        evidence=(
            *_drawn(case, short),
            *(
                (f"in {words.step(name)}, rank {rank} and rank {other} issued different numbers of collectives",)
                if apart is not None
                else ()
            ),
            *(ways_out(short.loop) if skips else ()),
            *evidence_of(passed),
        ),
        status=None if case.blocked else Status.FAILED,
    )


def _left_out(ways: tuple[Bypass, ...]) -> str:
    path = skip_path(ways)
    return f" One was left out{path}." if path else ""


def _drawn(case: Case, short: FewerTurns) -> tuple[str, ...]:
    """How many batches all of them have drawn from the loader of that loop."""
    sides = (*short.left, *short.inside)
    loaders = [_loader_of(case.ranks[rank], short.loop) for rank in sides]
    loader = loaders[0]
    if loader is None or any(each is None or each.drawn != loader.drawn for each in loaders):
        return ()
    ranks = case.name(sorted(sides))
    return (f"{ranks} have drawn {words.plural(loader.drawn, 'batch')} in epoch {loader.epoch}",)


def _loader_of(view: RankView, loop: LoopFacts | None) -> LoaderFacts | None:
    """The loader that is asked for batches at that loop; the one of the training where none is known to be."""
    return next((each for each in view.loaders if loop is not None and _is_at(each, loop)), view.loader)


def _is_at(loader: LoaderFacts, loop: LoopFacts) -> bool:
    return loader.where is not None and loader.where.source_line == loop.where.source_line


def passed_a_call(case: Case) -> Finding | None:
    """Ranks wait behind the call in which most of the others wait."""
    found = passed_call_site(case)
    if found is None or fewer_turns(case) is not None or len(found.past) > len(found.behind):
        return None
    past, behind = found.past, found.behind
    first, there = case.ranks[past[0]], case.usual_place(behind)
    one, ways, within = len(past) == 1, _ways_past(case, behind[0]), _calls_a_package(first)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{case.name(past, capital=True)} {'is' if one else 'are'} in {first.now.call or 'a later call'}"
        f" already{words.at(first.where)}{'' if within else ', where all ranks come'}; {case.wait_words(behind)} in the"
        f" earlier call{words.at(there)}, which {case.name(past)} passed{skip_path(ways)}.",
        culprits=case.culprits(past, the_only(ways)),
        step=first.step,
        evidence=(
            *(() if within else (_new_to_all(first),)),
            f"{case.name(past)} {'has' if one else 'have'} been at {words.place(there)} before, as the others",
            *evidence_of(ways),
        ),
    )


def _ways_past(case: Case, rank: int) -> tuple[Bypass, ...]:
    """How a turn can go on without the call in which `rank` waits; () where its loop may as well have been left.

    A comprehension, which is no loop of a statement, ends with its data alone.
    """
    loop, place = case.ranks[rank].now.loop, sites_of(case).now(rank)
    return ways_past(case, place) if place is not None and (loop is None or not loop.leaves) else ()


def _new_to_all(view: RankView) -> str:
    return f"no condition leads to {words.place(view.where)}, and no rank had been there before"


def _calls_a_package(view: RankView) -> bool:
    """The call is made by a package, such as a trainer, below the user's line: whose source may have conditions."""
    inner = takewhile(lambda frame: frame != view.where, view.evidence.main_stack)
    return any(origin(frame.file) == "package" for frame in inner)
