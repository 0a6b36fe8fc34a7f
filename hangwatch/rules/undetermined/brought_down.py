"""Jobs that a backend brought down for a reason that is not known: its victims are not blamed."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.calls.last_calls import brought_down, end_sentences, endings_of, last_call
from hangwatch.facts.calls.skip_paths import passed_at, ways_past
from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import Parting, counted, parting
from hangwatch.facts.processes.process_end import (
    PEER,
    all_asked_to_end,
    death_time,
    end_of,
    ended_before_others,
    ended_for,
    how_it_ended,
)
from hangwatch.facts.rank_end import Why, key_words, told, was_refused, words_of
from hangwatch.model import Certainty, ExceptionFacts, Frame, Status, StepName
from hangwatch.ranks.last_words import Kind, LastWord, last_words
from hangwatch.ranks.missing_key import MissingKey, missing_key
from hangwatch.ranks.view import RankView
from hangwatch.rules.after_restart import FIX_RESTART
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import origin

_FIX_UNSEEN = "read the reports of the other nodes; with one report directory or a dashboard all are judged together"
_FIX_SEEN = "read the last lines of the output of {ranks}, and see how far it came"
_BY_GLOO = re.compile(r"gloo/transport/")  # its errors name the line of its own source


def never_enqueued(case: Case) -> Finding | None:
    """torch's NCCL watchdog ended ranks that waited: they waited for the ranks that had never enqueued the collective.

    Which ranks kept the others waiting is likely then, though why they did is not known. Where most members
    never enqueued it, the others may as well be alone in a call that is not due: none is blamed.
    """
    found = next(((view, word) for view in case for word in words_of(view) if _tells_work(word)), None)
    if found is None or not brought_down(case):
        return None
    view, word = found
    absent, members = _absent(case, view, word)
    few = 0 < 2 * len(absent) <= members
    aborted_ranks = [rank for rank, end in endings_of(case).items() if end.by_backend and rank not in absent]
    limit = f" within {words.duration(word.timeout_s)}" if word.timeout_s is not None else ""
    where = words.at(case.usual_place(absent))
    never = f"; {case.name(absent)} never called it{where}" if absent else "; which rank it waited for is not known"
    return Finding(
        "undetermined",
        Certainty.LIKELY if few else Certainty.UNDETERMINED,
        f"torch's NCCL watchdog ended {case.name(aborted_ranks or [view.rank])}, because {word.op or 'collective'}"
        f" {word.seq} did not complete{limit}{never}.",
        fix="look at what these ranks did instead, at the time of the call" if absent else "",
        culprits=case.culprits(absent if few else ()),
        victims=tuple(rank for rank in case.ranks if rank not in absent) if few else tuple(aborted_ranks),
        step=case.furthest_step(aborted_ranks or [view.rank]),
        evidence=(f"rank {view.rank} wrote: {word.line}",),
        status=Status.FAILED,
    )


def _tells_work(word: LastWord) -> bool:
    return word.kind is Kind.WATCHDOG and word.seq is not None


def _absent(case: Case, view: RankView, word: LastWord) -> tuple[list[int], int]:
    """Members that had not enqueued that number, by their boards, and of how many.

    None where the group is not told apart.
    """
    named = word.group.partition("(")[0]
    groups = [group for group in case.ledger.groups_of(view.rank) if named in ("", group.name)]
    if len(groups) != 1 or word.seq is None:
        return [], 0
    issued = {rank: groups[0].issued(rank) for rank in groups[0].members}
    absent = sorted(rank for rank, count in issued.items() if rank in case.ranks and (count or 0) < word.seq)
    return absent, len(issued)


def reason_not_known(case: Case) -> Finding | None:
    """A backend ended ranks, or connections broke, and nothing that is recorded says why: no rank is blamed."""
    ends = endings_of(case)
    if not brought_down(case) or any(view.ended_well for view in case) or _ended_from_outside(case):
        return None
    if case.absent and not any(end.by_backend for end in ends.values()):
        return None  # the rank of which nothing is known may be the one that ended first
    first = min(ends, key=lambda rank: (not ends[rank].by_backend, ends[rank].why is not Why.PEER, rank))
    view = case.ranks[first]
    last = last_call(case, view)
    inside = f" in {last.name or 'a collective'}{words.at(last.where)}" if last is not None else ""
    when = words.step(view.step)
    differed = _differed(case)
    ended = f"{told(view, ends[first])}{inside}{f', {when}' if when else ''}"
    reason = "the reason is not known: a call of any member of the group can be the cause"
    fix = "read the last lines of every rank's output; compare what the ranks call in this step"
    if differed:
        reason = f"before that, {differed}: which side is wrong is not known"
    elif was_refused(view):
        reason = "nothing listens there: it is the address of a rank that has ended, perhaps in an earlier attempt"
        fix = FIX_RESTART
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{words.ranks([first], capital=True)} {ended}; {reason}.",
        fix=fix,
        victims=tuple(case.ranks),
        step=view.step if when else StepName(),
        evidence=(*end_sentences(case), *((differed,) if differed else ()), *_passes(case)),
        status=Status.FAILED,
    )


def _exact(case: Case) -> Parting | None:
    found = parting(case)
    return found if found is not None and found.divergence.exact and not found.divergence.doubtful else None


def _passes(case: Case) -> tuple[str, ...]:
    """The ways past the call in which the ranks differ."""
    found = _exact(case)
    ways = ways_past(case, found.places[0]) if found is not None and found.places else ()
    return (passed_at(ways, "that call"),) if ways else ()


def _differed(case: Case) -> str:
    """How many collectives the ranks issued in the first whole step in which they differ, and from where."""
    found = _exact(case)
    if found is None:
        return ""
    place = (
        f" and differ in {found.places[0].kind}{words.at(Frame(*found.places[0].lines[0], ''))}" if found.places else ""
    )
    return f"{counted(case, found)}{place}"


def _ended_from_outside(case: Case) -> bool:
    """A rank was gone by SIGTERM before any other failed: the others lost it, and no backend ended anything."""
    ends = endings_of(case)
    if any(end.by_backend for end in ends.values()):
        return False
    lost = [error.at for rank, end in ends.items() if end.why is Why.PEER and (error := case.ranks[rank].exception)]
    asked = [death_time(case.ranks[rank]) for rank, end in ends.items() if end.why is Why.LAUNCHER]
    return bool(asked) and min(asked) <= min(lost, default=0.0)


def _all_lost_peers(dead: list[RankView]) -> bool:
    """Each failed because a connection of torch or its backend broke, and none of them broke it."""
    errors = [view.exception if ended_for(view) is Why.PEER else None for view in dead]
    return bool(errors) and all(error is not None and _of_torch(error) for error in errors)


def _of_torch(error: ExceptionFacts) -> bool:
    inside = bool(error.frames) and origin(error.frames[0].file) == "torch"
    return inside or _BY_GLOO.search(error.message) is not None


def lost_peers(case: Case) -> Finding | None:
    """Ranks that are seen from here failed in torch's communication, perhaps because of one that is not.

    A key of a store that was not set in time breaks no connection: of that, no reason is given.
    """
    dead = [view for view in case if view.dead or view.raised]
    if not case.absent or not _all_lost_peers(dead):
        return None
    errors = {view.rank: words.error(view.exception) for view in dead}
    absent, in_vain = words.ranks(case.absent), _waited_in_vain(dead)
    why = "" if in_vain else ": one of them ended first, or the network between broke"
    started = [each for each in case.snapshot.launched if each.rank in case.absent]
    seen = len({each.rank for each in started}) == len(case.absent)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(errors, capital=True)} {in_vain or _failed(dead)}. Nothing is known of {absent}{why}.",
        fix=_FIX_SEEN.format(ranks=absent) if seen else _FIX_UNSEEN,
        victims=tuple(case.ranks),
        step=case.furthest_step(list(errors)),
        evidence=(
            *(f"rank {rank} failed with {error}" for rank, error in list(errors.items())[: words.SHOWN]),
            *(f"rank {each.rank} was started here (pid {each.pid})" for each in started[: words.SHOWN]),
        ),
        status=Status.FAILED,
    )


def _waited_in_vain(dead: list[RankView]) -> str:
    """`gave up waiting for key 'a' of a store after 60 s, and failed`; "" where one failed for anything else."""
    missing = [missing_key(view.exception.message) if view.exception is not None else None for view in dead]
    waited = [each for each in missing if each is not None]
    if len(waited) < len(missing):
        return ""
    keys = MissingKey(tuple(dict.fromkeys(key for each in waited for key in each.keys)), waited[0].timeout_s)
    after = words.duration(keys.timeout_s) if len({each.timeout_s for each in waited}) == 1 else "their timeouts"
    return f"gave up waiting for {key_words(keys)} after {after}, and failed"


def _failed(dead: list[RankView]) -> str:
    """`lost the connection to another rank at [10.0.0.2]`, where the errors of all say so."""
    errors = [words.error(view.exception) for view in dead]
    if not all(any(word.kind is Kind.CONNECTION for word in last_words(error)) for error in errors):
        return f"failed in {words.verb(len(dead), 'its', 'their')} communication with other ranks"
    peers = sorted({peer for error in errors for peer in PEER.findall(error)})
    return f"lost the connection to another rank{f' at {words.listed(peers)}' if peers else ''}, and failed"


def ended_by_launcher(case: Case) -> Finding | None:
    """All ranks were ended from outside, and none of them is at fault."""
    if not all_asked_to_end(case):
        return None
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(list(case.ranks), capital=True)} were ended by SIGTERM, as a launcher or a scheduler does it; none"
        " of them had failed before.",
        fix="read what the launcher printed last: it lost its rendezvous, another node failed, or it was told to end",
        victims=tuple(case.ranks),
        step=case.furthest_step(list(case.ranks)),
        evidence=tuple(
            f"rank {view.rank} (pid {view.pid}) was {end_of(view.evidence.process)}"
            for view in list(case)[: words.SHOWN]
        ),
        status=Status.FAILED,
    )


def ended_by_peers(case: Case) -> Finding | None:
    """Ranks failed only because others had ended before them, as they should or for a reason that was not seen."""
    found = ended_before_others(case)
    if found is None:
        return None
    ended, dead = found
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(dead, capital=True)} failed because {case.name(ended)} had ended before:"
        " why they did not end together is not known.",
        victims=tuple(dead),
        step=case.furthest_step(dead),
        evidence=tuple(how_it_ended(view) for view in case.views((*ended, *dead))[: words.SHOWN]),
        status=Status.FAILED,
    )
