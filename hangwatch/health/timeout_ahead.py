"""Ranks that wait, rightly, for a rank that works, and whose process group will end the wait before that rank comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.facts.case import Case, call_words
from hangwatch.model import HealthWarning, Snapshot
from hangwatch.ranks.view import RankView

USED = 1 / 2  # share of the timeout that has passed: earlier, most waits still end in time; later, little can be saved
LEAST_S = 10.0  # of waiting: shorter ones are in every log


@dataclass(frozen=True)
class Wait:
    """Ranks that have waited for `waited_s` for `awaited`, in a call that is ended after `timeout_s`."""

    ranks: tuple[int, ...]
    awaited: tuple[int, ...]
    call: str
    waited_s: float
    timeout_s: float

    @property
    def left_s(self) -> float:
        return self.timeout_s - self.waited_s


def timeout_ahead(snapshot: Snapshot) -> HealthWarning | None:
    """A warning where ranks have used up a share of their group's timeout, and the rank they wait for works.

    The evidence is of `snapshot.taken_at`, and so are the times: no other clock is asked.
    """
    case = Case(snapshot)
    if case.proven or case.any_rank_failed:
        return None
    due = [wait for wait in _waits(case) if wait.waited_s >= max(USED * wait.timeout_s, LEAST_S) and wait.left_s > 0]
    if not due:
        return None
    return _warning(case, min(due, key=lambda wait: wait.left_s))


def _waits(case: Case) -> Iterator[Wait]:
    """The waits of ranks of which every awaited rank is known, in no collective itself, and at work."""
    found: dict[tuple[str, tuple[int, ...]], list[tuple[int, float, float, str]]] = {}
    for rank, entry in case.blocked.items():
        group, need, since = entry.group, entry.need, _since(case, rank)
        timeout_s = _timeout(case.ranks[rank], group.name) if group is not None else None
        if group is None or need is None or since is None or timeout_s is None:
            continue
        waited_s = case.snapshot.taken_at - since
        found.setdefault((group.name, need.absent), []).append((rank, waited_s, timeout_s, call_words(entry)))
    for (_, awaited), each in found.items():
        if awaited and all(rank in case.ranks and _at_work(case, case.ranks[rank]) for rank in awaited):
            longest = max(each, key=lambda one: one[1] / one[2])
            yield Wait(tuple(one[0] for one in each), awaited, longest[3], longest[1], longest[2])


def _since(case: Case, rank: int) -> float | None:
    """When `rank` entered the call in which it stands; at the latest when it last moved."""
    entered = [call.at for call in case.ledger.open_calls(rank) if call.at]
    if entered:
        return max(entered)
    still_s = case.ranks[rank].evidence.still_s
    return case.snapshot.taken_at - still_s if still_s > 0 else None


def _timeout(view: RankView, group: str) -> float | None:
    return next((head.timeout_s for head in view.evidence.board_heads if head.name == group), None)


def _at_work(case: Case, view: RankView) -> bool:
    """It computes, moves data, or has children that do. One that sleeps may work as little as one that hangs."""
    return (
        view.rank not in case.blocked
        and not (view.dead or view.stopped or view.over or view.raised)
        and case.works(view)
    )


def _warning(case: Case, wait: Wait) -> HealthWarning:
    awaited = [case.ranks[rank] for rank in wait.awaited]
    waited, left, limit = map(words.duration, (wait.waited_s, wait.left_s, wait.timeout_s))
    have, work = words.verb(len(wait.ranks), "has", "have"), words.verb(len(awaited), "works", "work")
    summary = (
        f"{case.name(wait.ranks, capital=True)} {have} waited {waited} for {case.name(wait.awaited)}, which still"
        f" {work} in {_place(awaited[0])}; in {left} their process group's timeout ends them: raise timeout= of"
        " init_process_group, or do that work before"
    )
    return HealthWarning(
        kind="timeout-ahead",
        summary=summary,
        ranks=tuple(sorted((*wait.ranks, *wait.awaited))),
        evidence=(
            f"{case.name(wait.ranks)} {have} waited {waited} in {wait.call}",
            f"the timeout of that process group is {limit}",
            *(f"rank {view.rank} works: {_sign(view)}" for view in awaited[: words.SHOWN]),
        ),
        fix=cause("timeout-ahead").fix,
        at=case.snapshot.taken_at,
    )


def _place(view: RankView) -> str:
    where = view.where
    return f"{where.function}{words.at(where)}" if where is not None else "code of its own"


def _sign(view: RankView) -> str:
    process = view.evidence.process
    if view.busy and view.cpu is not None:
        return f"{view.cpu:.1f} s of processor time between two samples"
    if view.moves_data and process is not None:
        return f"{words.size(process.io_delta_bytes or process.written_delta_bytes or 0)} moved between two samples"
    return "its counters move" if view.evidence.moved else "a child process of it computes"
