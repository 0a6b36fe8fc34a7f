"""The ranks' diff: their recorded calls, lined up by call path, in the iterations in which they differ.

A history is what one rank called, iteration by iteration. A token of it is a call site (the group, the kind of
operation, the user's lines that led to it and the framework's function that made it), not a number: ranks that issued
equally many calls may still have made different ones. Each lane of ranks with equal histories is aligned with the
largest one. What a rank lacks is held against its own earlier iterations, what it has too much against all places where
any rank has ever been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import combinations, groupby

from hangwatch import words
from hangwatch.facts.call_site import Caller, Path, Site, framework, in_backward, recorded_site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, DiffCall, DiffIteration, DiffRow, Frame, RanksDiff, StepName
from hangwatch.ranks.shared_steps import StepKey, step_key

COMPARED = 32  # ranks, evenly spread: the others of a large job add nothing that a person could read
MOST_LANES = 6  # groups of equal ranks side by side: more are wider than a terminal or page
MOST_ROWS = 60  # of one iteration, before the rest is left out


@dataclass(frozen=True)
class Token:
    """What makes two calls the same one."""

    group: str
    site: Site


@dataclass(frozen=True)
class Made:
    """A call in a history, and how often it was made in a row."""

    token: Token
    call: DiffCall


History = dict[StepKey, list[Made]]
Lane = tuple[int, ...]
Tokens = tuple[tuple[Token, int], ...]  # calls, and how often each was made in a row
Row = list[Made | None]  # one of each lane
Place = tuple[Path, Caller]


@once
def ranks_diff(case: Case) -> RanksDiff | None:
    """How the recorded calls of the ranks differ; None where they do not, or fewer than two ranks have recorded any."""
    ranks = _compared(case)
    named = _all_named(case, ranks)
    histories = {rank: found for rank in ranks if (found := _history(case, rank, named))}
    shown = _differing(case, histories)
    if not shown:
        return None
    lanes = _lanes(histories, shown)
    names = _names(case, histories, named)
    aligned = (DiffIteration(names.get(key, StepName()), _rows(case, histories, lanes, key)) for key in shown)
    return RanksDiff(tuple(lanes), len(histories), tuple(aligned))


def _compared(case: Case) -> list[int]:
    """All ranks of a small job; of a large one those that differ or stand apart, and others evenly spread."""
    apart: dict[object, list[int]] = {}
    for view in case:
        apart.setdefault((view.now.doing, view.now.op, view.where), []).append(view.rank)
    smallest = sorted(apart.values(), key=len)[:MOST_LANES]
    odd = [rank for each in case.divergences[:1] for rank in (*each.short, *each.more)[: COMPARED // 4]]
    odd += [rank for ranks in smallest for rank in ranks[: COMPARED // 8]]
    spread = list(case.ranks)[:: max(len(case.ranks) // COMPARED, 1)]
    return sorted({*odd, *spread[:COMPARED]} & case.ranks.keys())


def _all_named(case: Case, ranks: Iterable[int]) -> bool:
    records = [steps for rank in ranks if (steps := case.ranks[rank].evidence.board_steps)]
    ends = [entry for steps in records for entry in (steps[0], steps[-1])]
    return bool(ends) and all(entry.epoch is not None and entry.batch is not None for entry in ends)


def _history(case: Case, rank: int, named: bool) -> History:
    """The calls of a rank by iteration. The oldest iteration is left out: the ring may have lost its beginning."""
    keys = {entry.step: step_key(entry, named) for entry in case.ranks[rank].evidence.board_steps}
    calls: dict[StepKey, list[Collective]] = {}
    for call in case.ledger.calls(rank).values():
        step = case.ledger.step_of(rank, call)
        if step is not None and step in keys:
            calls.setdefault(keys[step], []).append(call)
    oldest = min(calls, default=None)
    return {key: _made(case, rank, each) for key, each in calls.items() if key != oldest or len(calls) == 1}


def _made(case: Case, rank: int, calls: list[Collective]) -> list[Made]:
    inside = {(call.group, call.seq) for call in case.ledger.open_calls(rank)}
    entry = case.blocked.get(rank)  # backward has no call of its own that could be open
    if entry is not None and entry.group is not None and entry.seq:
        inside |= {(call.group, call.seq) for call in calls if call.group == entry.group.name and call.seq >= entry.seq}
    found = [_one(call, is_open=(call.group, call.seq) in inside) for call in calls]
    return [_in_a_row(list(same)) for _, same in groupby(found, key=lambda made: made.token)]


def _one(call: Collective, *, is_open: bool) -> Made:
    site = recorded_site(call)
    lines = tuple(Frame(file, line, "") for file, line in site.lines)
    where, via = (lines[0], lines[1:]) if lines else (None, ())
    token = Token(call.group, site._replace(kind="gradients" if in_backward(call) else site.kind or call.op))
    op = "gradients" if in_backward(call) else call.op
    return Made(token, DiffCall(op, call.group, where, via, open=is_open, caller=framework(site)))


def _in_a_row(same: list[Made]) -> Made:
    times, is_open = len(same), same[-1].call.open
    return replace(same[0], call=replace(same[0].call, times=times, open=is_open))


# ------------------------------------------------------------------------------------------ where they differ


def _differing(case: Case, histories: Mapping[int, History]) -> list[StepKey]:
    """The first iteration that all have on record and that differs, and the one in which the furthest rank stands."""
    if len(histories) < 2:
        return []
    shared = sorted(set.intersection(*(set(history) for history in histories.values())))
    first = next((key for key in shared if _differs(case, histories, key)), None)
    last = max(key for history in histories.values() for key in history)
    apart = _differs(case, histories, last)
    return list(dict.fromkeys([*([first] if first is not None else []), *([last] if apart else [])]))


def _differs(case: Case, histories: Mapping[int, History], key: StepKey) -> bool:
    """Two ranks called different things in the groups that both are members of."""
    tokens = {rank: _tokens(history.get(key, [])) for rank, history in histories.items()}
    if len(set(tokens.values())) < 2:
        return False
    return any(
        _within(case, one, other, tokens[one]) != _within(case, other, one, tokens[other])
        for one, other in combinations(tokens, 2)
        if tokens[one] != tokens[other]
    )


def _within(case: Case, rank: int, other: int, tokens: Tokens) -> Tokens:
    return tuple(each for each in tokens if _may_call(case, other, each[0].group, rank))


def _may_call(case: Case, rank: int, group: str, caller: int) -> bool:
    """`rank` is in a group of the name that `caller` calls; where the caller's is not known, any rank may be."""
    return case.ledger.group(rank, group) is not None or case.ledger.group(caller, group) is None


def _tokens(made: list[Made]) -> Tokens:
    return tuple((each.token, each.call.times) for each in made)


def _lanes(histories: Mapping[int, History], shown: list[StepKey]) -> list[Lane]:
    """Ranks with equal calls in all iterations that are shown; the largest lane first, the smallest left out."""
    found: dict[object, list[int]] = {}
    for rank, history in histories.items():
        found.setdefault(tuple(_tokens(history.get(key, [])) for key in shown), []).append(rank)
    return sorted((tuple(ranks) for ranks in found.values()), key=lambda lane: (-len(lane), lane))[:MOST_LANES]


def _names(case: Case, histories: Mapping[int, History], named: bool) -> dict[StepKey, StepName]:
    return {step_key(entry, named): entry.name for rank in histories for entry in case.ranks[rank].evidence.board_steps}


# ------------------------------------------------------------------------------------------ side by side


def _rows(case: Case, histories: Mapping[int, History], lanes: list[Lane], key: StepKey) -> tuple[DiffRow, ...]:
    """The calls of all lanes in one iteration, each lane aligned with the first."""
    columns = [histories[lane[0]].get(key, []) for lane in lanes]
    rows: list[Row] = [[made, *([None] * (len(lanes) - 1))] for made in columns[0]]
    order = _Order(histories, key)
    for index, column in enumerate(columns[1:], start=1):
        rows = _merged(rows, column, index, len(lanes), order)
    notes = _Notes(case, histories, lanes, key, rows)
    shared = _ambiguous(histories)
    return tuple(
        DiffRow(tuple(_shown(made, shared) for made in row), notes.of(index, row))
        for index, row in enumerate(rows[:MOST_ROWS])
    )


def _ambiguous(histories: Mapping[int, History]) -> frozenset[Place]:
    """The places that several call paths share, in any iteration: a note may say where no other rank ever was."""
    every = (made for history in histories.values() for calls in history.values() for made in calls)
    paths = {(_place(made), made.token.site.lines) for made in every}
    counts = Counter(place for place, _ in paths)
    return frozenset(place for place, count in counts.items() if count > 1)


def _place(made: Made) -> Place:
    """The innermost of the user's lines, and the function that made the call."""
    return made.token.site.lines[:1], made.token.site.caller


def _shown(made: Made | None, ambiguous: frozenset[Place]) -> DiffCall | None:
    """The call; its outer lines only where they tell it from another one at the same place."""
    if made is None:
        return None
    return made.call if _place(made) in ambiguous else replace(made.call, via=())


def _merged(rows: list[Row], column: list[Made], index: int, width: int, order: _Order) -> list[Row]:
    """`rows` with the calls of one more lane: beside the same call where there is one, else in rows of their own."""
    there, here = [_token(row) for row in rows], [made.token for made in column]
    found: list[Row] = []
    for kind, first, last, start, end in SequenceMatcher(None, there, here, autojunk=False).get_opcodes():
        theirs = [list(row) for row in rows[first:last]]
        if kind == "equal":
            for row, made in zip(theirs, column[start:end], strict=True):
                row[index] = made
            found += theirs
            continue
        mine: list[Row] = [[made if place == index else None for place in range(width)] for made in column[start:end]]
        mine_first = kind == "replace" and order.comes_first(here[start], there[first])
        found += [*mine, *theirs] if mine_first else [*theirs, *mine]
    return found


def _token(row: Row) -> Token:
    return next(made.token for made in row if made is not None)


class _Order:
    """Which of two different calls at one place comes first, as far as earlier iterations show it."""

    def __init__(self, histories: Mapping[int, History], key: StepKey) -> None:
        self._past = [
            [made.token for made in calls]
            for history in histories.values()
            for other, calls in sorted(history.items(), reverse=True)
            if other < key
        ]

    def comes_first(self, one: Token, other: Token) -> bool:
        """`one` comes before `other` in an iteration that has both; else it is the one that no rank ever made."""
        both = next((calls for calls in self._past if one in calls and other in calls), None)
        if both is not None:
            return both.index(one) < both.index(other)
        return not any(one in calls for calls in self._past) and any(other in calls for calls in self._past)


class _Notes:
    """What is remarkable in the rows of one iteration."""

    def __init__(
        self, case: Case, histories: Mapping[int, History], lanes: list[Lane], key: StepKey, rows: list[Row]
    ) -> None:
        self._case, self._histories, self._lanes, self._key = case, histories, lanes, key
        self._ends = [_end(rows, index) for index in range(len(lanes))]
        self._mispaired: set[str] = set()  # groups in which calls are mispaired

    def of(self, index: int, row: Row) -> str:
        """The note of the row at `index`; "" where nothing is remarkable. Ask from the first row on."""
        token = _token(row)
        without = self._members_without(row, token)
        lacking = [lane for lane in without if not self._before(lane, index)]
        late = [lane for lane in without if self._before(lane, index)]
        if not lacking:
            return self._not_reached(late) if late else self._of_common(row, token)
        self._mispaired.add(token.group)
        having = [rank for lane, made in enumerate(row) if made is not None for rank in self._lanes[lane]]
        return self._of_missing(token, self._lanes[lacking[0]], having)

    def _members_without(self, row: Row, token: Token) -> list[int]:
        """The lanes that have not made that call, though their ranks are members of its group."""
        caller = next(self._lanes[lane][0] for lane, made in enumerate(row) if made is not None)
        without = [lane for lane, made in enumerate(row) if made is None]
        return [lane for lane in without if _may_call(self._case, self._lanes[lane][0], token.group, caller)]

    def _of_common(self, row: Row, token: Token) -> str:
        if token.group in self._mispaired:
            return "mispaired from here on"
        return "not equally often" if len({made.call.times for made in row if made is not None}) > 1 else ""

    def _of_missing(self, token: Token, first: Lane, having: list[int]) -> str:
        if before := _earlier(self._histories, first, token, self._key):
            earlier = words.plural(before, "earlier iteration")
            return f"missing on {self._case.name(first)}, which made this call in {earlier}"
        if not any(_ever(history, token) for rank, history in self._histories.items() if rank not in having):
            return f"only {self._case.name(having)}: no other rank was ever here"
        return f"not on {self._case.name(first)}"

    def _not_reached(self, late: list[int]) -> str:
        ranks = sorted(rank for lane in late for rank in self._lanes[lane])
        return f"{self._case.name(ranks)} {words.verb(len(ranks), 'has', 'have')} not come here yet"

    def _before(self, lane: int, index: int) -> bool:
        """The lane stands in an earlier call of this iteration, or in an earlier iteration."""
        end, made = self._ends[lane]
        if made is None:
            return max(self._histories[self._lanes[lane][0]]) < self._key
        return made.call.open and end < index


def _end(rows: list[Row], lane: int) -> tuple[int, Made | None]:
    """The last call of a lane in these rows, and its index."""
    found = [(index, row[lane]) for index, row in enumerate(rows) if row[lane] is not None]
    return found[-1] if found else (-1, None)


def _earlier(histories: Mapping[int, History], lane: Lane, token: Token, key: StepKey) -> int:
    """In how many earlier iterations the ranks of a lane made that call."""
    past = (made for other, made in histories[lane[0]].items() if other < key)
    return sum(any(each.token == token for each in made) for made in past)


def _ever(history: History, token: Token) -> bool:
    """It was at that place, be it for another group."""
    return any(each.token.site == token.site for made in history.values() for each in made)
