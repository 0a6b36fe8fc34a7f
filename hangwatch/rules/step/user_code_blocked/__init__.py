"""One rank is behind and stands in code of the program, outside of every collective."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.loops.ways_out import ways_to_leave
from hangwatch.facts.processes.full_queue import full_queue
from hangwatch.facts.processes.overdue import overdue
from hangwatch.facts.processes.own_code import (
    IN_CODE,
    ended_children,
    how_stuck,
    status_of,
    stuck_children,
    tries_again,
)
from hangwatch.facts.processes.own_locks import own_locks
from hangwatch.facts.processes.pipes import awaits_its_own_input
from hangwatch.facts.processes.polled import looks_for, namesake, polled
from hangwatch.facts.processes.pools import taken_pool
from hangwatch.facts.processes.tasks import task_evidence
from hangwatch.facts.rank_end import error_at
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.user_code_blocked.advice import CLOSE_INPUT, READ_FIRST, advice
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import origin, user_frame

_PRIVATE = frozenset({Doing.LOCK, Doing.EVENTS, Doing.JOIN_CHILD, Doing.PIPE})  # waits within one process
_NUMBERED = re.compile(r"\d")


def user_code_blocked(case: Case) -> Finding | None:
    """An awaited rank stands in the program's own code: blocked, or in a loop; or all ranks do, each by itself."""
    awaited = case.views(sorted(case.awaited())) or _all_by_themselves(case)
    stuck = [view for view in awaited if _in_its_own_code(case, view) and not view.over and view.where is not None]
    if not stuck or len(stuck) != len(awaited) or all(case.waits.shows_device_wait(view) for view in stuck):
        return None
    if all(_is_ahead(case, view) for view in stuck):
        return None
    stuck = [view for view in stuck if not case.stands_where_others_wait(view)]
    if not stuck:
        return None
    culprits = [view.rank for view in stuck]
    victims = case.victims(culprits)
    first = stuck[0]
    waiting = f"{case.wait_words(victims)} for {words.verb(len(stuck), 'it', 'them')}" if victims else ""
    if _awaits_rank_zero(case, stuck) or _poll_together(case, stuck):
        return _polling(case, stuck, f"{waiting}{words.at(case.usual_place(victims))}")
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.say(culprits, 'is', 'are', capital=True)} {_adverb(case, stuck)} in"
        f" {_what(first)}{words.at(first.where)}: {_how_all(case, stuck)}"
        f"{f'; {waiting}' if waiting else ''}{words.at(case.usual_place(victims))}.",
        fix=_fix(case, stuck),
        culprits=case.culprits(culprits),
        victims=victims,
        step=first.step,
        evidence=(
            *(sentence for view in stuck[: words.SHOWN] for sentence in _evidence(case, view)),
            *_threads_ended(case, stuck),
        ),
        status=status_of(case, stuck),
        awaited=tuple(culprits),
    )


def _fix(case: Case, stuck: list[RankView]) -> str:
    if full_queue(case, stuck) is not None:
        return READ_FIRST
    first = stuck[0]
    return CLOSE_INPUT if awaits_its_own_input(case, first) else advice(first, _own_threads(first))


def _all_by_themselves(case: Case) -> list[RankView]:
    """All that have not ended, if none of them waits for another one: each is kept by its own process."""
    living = [view for view in case if not view.ended_well]
    private = all(view.steady and not view.works and view.now.doing in _PRIVATE for view in living)
    return living if private and not case.blocked and not any(view.dead or view.over for view in living) else []


def _in_its_own_code(case: Case, view: RankView) -> bool:
    return view.now.doing in IN_CODE or case.waits.runs_backward(view)


def _what(view: RankView) -> str:
    if view.now.doing is Doing.BACKWARD:
        return "its backward pass"
    return view.where.function if view.where else "?"


def _is_ahead(case: Case, view: RankView) -> bool:
    """It is in a later step than all that wait: it went on without what they wait for, wherever it stands now.

    Not where the steps of the one are batches and those of the others are none: it loads the data for all. Nor where it
    has made as many forward passes and updates as they: it has drawn a batch more, to see whether there is one.
    """
    now, waiting = view.step.step, case.views(case.blocked)
    alike = all((other.step.batch is None) is (view.step.batch is None) for other in waiting)
    later = now is not None and all(other.step.step is not None and other.step.step < now for other in waiting)
    return alike and later and bool(waiting) and not _as_far(view, waiting)


def _as_far(view: RankView, others: list[RankView]) -> bool:
    made = _made(view)
    return made is not None and all(_made(other) == made for other in others)


def _made(view: RankView) -> tuple[int, int] | None:
    """How many forward passes and updates a rank has made; None where it makes none that are counted."""
    progress = view.reading.progress if view.reading is not None else None
    if progress is None or not (progress.forwards and progress.optimizer_steps):
        return None
    return progress.forwards, progress.optimizer_steps


def _awaits_rank_zero(case: Case, stuck: list[RankView]) -> bool:
    """They sleep where rank 0 never comes, and rank 0 waits for them: they may ask for what it should do.

    Whether it has failed to, they look in the wrong place, or try something of their own again, is not known.
    """
    return 0 in case.blocked and all(view.rank != 0 and view.sleeps and view.now.guard == "rank" for view in stuck)


def _poll_together(case: Case, stuck: list[RankView]) -> bool:
    """Several ranks sleep between two looks of one loop, and the other ranks wait for them.

    What none of the several ranks gets is no fault of each: a file that another rank should write, or a service.
    """
    places = {view.where for view in stuck}
    return len(stuck) > 1 and len(places) == 1 and bool(case.blocked) and all(map(_polls, stuck))


def _polls(view: RankView) -> bool:
    """It sleeps in a loop of the very function in which it stands, by its source: a long sleep may be its own."""
    loop, where = view.now.loop, view.where
    return view.sleeps and loop is not None and where is not None and loop.where.scope == where.scope


def _polling(case: Case, stuck: list[RankView], waiting: str) -> Finding:
    ranks, first = [view.rank for view in stuck], stuck[0]
    here = words.at(first.where)
    if looks := _of_other_names(stuck) or _of_other_folders(stuck):
        return _looking(case, stuck, looks, waiting)
    guarded = " under a condition on the rank," if first.now.guard == "rank" else ""
    others = case.name([0] if _awaits_rank_zero(case, stuck) else sorted(case.blocked))
    return Finding(
        "user-code-blocked",
        Certainty.UNDETERMINED,
        f"{case.say(ranks, 'sleeps', 'sleep', capital=True)} again and again{here},{guarded}"
        f" until another rank, or something outside of the job, has done what {_asked(first)}; {waiting}.",
        fix=f"see what should end that loop; if it is for {others} to do, an error may have been caught there, or it"
        " was undone (a file removed) before all had looked",
        victims=tuple(case.ranks),
        step=first.step,
        evidence=(
            *ways_to_leave(first.now.loop),
            *(sentence for view in stuck[: words.SHOWN] for sentence in _evidence(case, view)),
        ),
        status=status_of(case, stuck),
        awaited=tuple(ranks),
    )


def _of_other_names(stuck: list[RankView]) -> str:
    """`rank 1 for /data/a.pt and rank 2 for /data/b.pt`, where they look for files, of which each has its own."""
    files = {view.rank: file for view in stuck if (file := polled(view)) is not None and not file.exists}
    if len(files) < len(stuck) or len({file.path for file in files.values()}) < 2:
        return ""
    named = words.listed(f"rank {rank} for {file.path}" for rank, file in [*files.items()][: words.SHOWN])
    return f"look for files of different names that are not there{words.at(stuck[0].where)}: {named}"


def _of_other_folders(stuck: list[RankView]) -> str:
    """`looks for /tmp/a/done, and one of that name came to /tmp/b`, where the rank that makes it has another folder."""
    files = [file for view in stuck if (file := polled(view)) is not None]
    folders = {namesake(file) for file in files}
    if len(files) < len(stuck) or len(folders) != 1 or not (folder := folders.pop()):
        return ""
    looks = words.verb(len(stuck), "looks", "look")
    return (
        f"{looks} for {files[0].path}, which is not there{words.at(stuck[0].where)}; one of that name came to {folder}"
    )


def _looking(case: Case, stuck: list[RankView], looks: str, waiting: str) -> Finding:
    ranks, first = [view.rank for view in stuck], stuck[0]
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} {looks}; {waiting}.",
        fix="make the path alike on all ranks: hash() of a text, a time, a pid or a temporary folder (mkdtemp) differs"
        " from process to process; or broadcast the path from the rank that makes the file",
        victims=tuple(case.ranks),
        step=first.step,
        evidence=tuple(sentence for view in stuck[: words.SHOWN] for sentence in _evidence(case, view)),
        status=status_of(case, stuck),
        awaited=tuple(ranks),
    )


def _asked(view: RankView) -> str:
    """`` `while not flag.exists()` waits for``, where that is the only way out of its loop."""
    ways = view.now.loop.ways_out if view.now.loop is not None else ()
    return f"`{ways[0].text}` waits for" if len(ways) == 1 else "it has not done"


def _adverb(case: Case, stuck: list[RankView]) -> str:
    return "stuck" if status_of(case, stuck) is Status.HUNG else "still"


def _how_all(case: Case, stuck: list[RankView]) -> str:
    """`it sleeps`, of several `each sleeps`, or `rank 3 sleeps` where they differ."""
    child = awaits_its_own_input(case, stuck[0])
    if child is not None and len(stuck) == 1:
        return f"it reads the output of its {child.as_child}, and only this rank could write there, or close it"
    if (queue := full_queue(case, stuck)) is not None:
        return f"{'it' if len(stuck) == 1 else 'each'} {queue.told}"
    how = how_stuck(stuck[0])
    alike = all(how_stuck(view) == how for view in stuck)
    who = "it" if len(stuck) == 1 else "each" if alike else f"rank {stuck[0].rank}"
    explained = own_locks(stuck[0]) is not None or taken_pool(stuck[0]) is not None
    threads = _own_threads(stuck[0]) if len(stuck) == 1 and not explained else []
    beside = f", while {threads[0]}" if len(threads) == 1 else ""  # it waits for that one, most likely
    return f"{who} {how.removeprefix('it ')}{_for_the_ended(stuck)}{beside}"


def _for_the_ended(stuck: list[RankView]) -> str:
    """`, perhaps for its child process 91, which has ended (exit code 1)`; a dead process gives and takes nothing."""
    ended = ended_children(stuck[0])
    if not all(map(ended_children, stuck)):
        return ""
    how, one = words.ended(ended[0].exit_code), len(ended) == 1
    if len(stuck) > 1:
        return f", perhaps for a child process of its own that has ended (on rank {stuck[0].rank}: {how})"
    which = f"child process {ended[0].pid}, which has" if one else f"{len(ended)} child processes that have"
    return f", perhaps for its {which} ended ({how if one else f'the first: {how}'})"


def _evidence(case: Case, view: RankView) -> list[str]:
    found = [f"rank {view.rank} stands at {words.place(view.where)} and is in no collective"]
    found += filter(None, (looks_for(view),))
    found += task_evidence(view)
    ended = _children_ended(view)
    found += [sentence for sentence, failed in ended if failed]  # what it waits for may have been lost with them
    if view.cpu is not None:
        found.append(f"its process used {view.cpu:.2f} s of processor time between two samples")
    if view.steady and view.cpu is not None and not view.busy:
        found.append("two samples of its stack agree")
    if view.busy and (late := overdue(view)) is not None:
        found.append(late.sentence(view))
    for child, now in stuck_children(view)[: words.SHOWN]:
        line = case.text_of(now.where)
        here = words.place(now.where or now.frame)
        found.append(f"its child process {child.facts.pid} stands at {here}{f' (`{line}`)' if line else ''}")
    found += [sentence for sentence, failed in ended if not failed]
    threads = _own_threads(view)
    found += threads if len(threads) > 1 else []  # a single one is told at once
    if view.in_kernel is not None and view.in_kernel.system_call:
        found.append(f"its main thread is in the system call {view.in_kernel.system_call}")
    error = view.exception
    if error is not None and tries_again(view, error) and not view.progressed_since(error):
        found.append(f"it tries again after {error_at(error)}")
    return found


def _children_ended(view: RankView) -> list[tuple[str, bool]]:
    """Which of its children have ended, and whether by a signal or an error."""
    zombies = [child.facts for child in view.evidence.children if child.role == "child" and child.facts.state == "Z"]
    told = [(f"its child process {each.pid} has ended ({words.ended(each.exit_code)})", each) for each in zombies]
    return [(sentence, bool(each.exit_code)) for sentence, each in told[: words.SHOWN]]


def _own_threads(view: RankView) -> list[str]:
    """Where the program's other threads stand: a rank that waits for a lock or a queue waits for one of them."""
    if view.now.doing is not Doing.LOCK and not view.sleeps_privately:
        return []
    stood = [(stack.name, user_frame(stack.frames)) for stack in view.evidence.stacks if not stack.main]
    own = [(name, where) for name, where in stood if where is not None and origin(where.file) == "user"]
    return [f"its thread {name!r} is in {where.function}{words.at(where)}" for name, where in own[: words.SHOWN]]


def _threads_ended(case: Case, stuck: list[RankView]) -> list[str]:
    """Threads that all the other ranks have and a stuck one has not: it may wait for what one of them gave it."""
    blamed = {view.rank for view in stuck}
    others = [view for view in case if view.rank not in blamed and not view.dead and view.evidence.stacks]
    everywhere = frozenset.intersection(*map(_threads, others)) if others else frozenset[str]()
    healthy = case.name([view.rank for view in others])
    return [
        f"thread {name!r} runs on {healthy}, and not on rank {view.rank}"
        for view in stuck[: words.SHOWN]
        if view.evidence.stacks
        for name in sorted(everywhere - _threads(view))
    ]


def _threads(view: RankView) -> frozenset[str]:
    """Names that the program gave its threads; numbered names only tell which was started first."""
    names = {stack.name for stack in view.evidence.stacks if not stack.main and stack.source == "py-spy"}
    return frozenset(name for name in names if name and not _NUMBERED.search(name) and not name.startswith("hangwatch"))
