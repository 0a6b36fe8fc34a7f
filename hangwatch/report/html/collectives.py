"""Process groups: how far each rank is, and the last calls lined up by number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hangwatch.model import Collective, GroupHead, Incident
from hangwatch.report import words
from hangwatch.report.html.markup import ROWS, Child, Html, join, table, tag
from hangwatch.report.html.ranks import own_frame

LAST = 12  # numbers of a group that are shown
GROUPS = 32

Key = tuple[str, tuple[int, ...]]


def groups(incident: Incident) -> Html:
    """Ranks that are equally far in a group share a row."""
    heads: dict[Key, dict[tuple[int, int, int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    names: dict[Key, GroupHead] = {}
    for rank in incident.ranks:
        for head in rank.collectives.heads:
            names[head.key] = head
            far = (head.issued, head.completed, head.sent, head.received)
            heads[head.key][far].append(rank.rank)
    rows = [
        (_name(names[key]), words.ranks(ranks), _count(far[0]), _count(far[1]), far[2] or None, far[3] or None)
        for key, by_head in heads.items()
        for far, ranks in sorted(by_head.items())
    ]
    return table(("group", "ranks", "issued", "completed", "sent", "received"), rows)


def _name(head: GroupHead) -> str:
    extra = ", ".join(part for part in (head.description, head.backend) if part)
    return f"{head.name}{f' ({extra})' if extra else ''} of {words.ranks(head.members)}"


def _count(count: int) -> str:
    return "none" if count < 0 else str(count)


def lined_up(incident: Incident) -> Html:
    """The last numbers of each group: what the ranks issued under them. Numbers on which the ranks differ stand out."""
    calls: dict[str, dict[int, dict[str, list[tuple[int, Collective]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for rank in incident.ranks:
        for call in rank.collectives.recent:
            calls[call.group][call.seq][_call(call)].append((rank.rank, call))
    return join(_group(name, numbers, len(calls) > 1) for name, numbers in sorted(calls.items())[:GROUPS])


def _group(name: str, numbers: dict[int, dict[str, list[tuple[int, Collective]]]], named: bool) -> Html:
    members = {rank for variants in numbers.values() for issued in variants.values() for rank, _ in issued}
    rows: list[tuple[Child, ...]] = []
    marked: list[bool] = []
    for number in sorted(numbers)[-LAST:]:
        new = list(_rows(number, numbers[number], members))
        rows += new
        marked += [len(new) > 1] * len(new)
    head = ("number", "call", "ranks", "from", "completed")
    return join((tag("h3", f"Group {name}") if named else None, table(head, rows[-ROWS:], marked[-ROWS:])))


def _rows(
    number: int, variants: dict[str, list[tuple[int, Collective]]], members: set[int]
) -> Iterator[tuple[Child, ...]]:
    """A row for each variant of one number, and one for the ranks that have not come to it."""
    for said, issued in variants.items():
        calls = [call for _, call in issued]
        arrived = {rank for rank, _ in issued}
        members = members - arrived
        yield number, said, words.ranks(arrived), _sites(calls), _completed(calls)
    if members:
        yield number, tag("em", "not yet there, or overwritten"), words.ranks(members), None, None


def _call(call: Collective) -> str:
    shapes = ", ".join("x".join(map(str, size)) or "scalar" for size in call.sizes)
    types = ", ".join(dict.fromkeys(call.dtypes))
    peer = "" if call.peer is None else f" (rank {call.peer})"
    return f"{call.op}{peer}{f' [{shapes}]' if shapes else ''}{f' {types}' if types else ''}"


def _sites(calls: list[Collective]) -> Html | None:
    found = dict.fromkeys(words.place(own) for call in calls if (own := own_frame(call.frames)))
    return tag("code", ", ".join(list(found)[:4])) if found else None


def _completed(calls: list[Collective]) -> str:
    states = {call.retired for call in calls}
    return "some" if len(states) > 1 else {True: "yes", False: "no", None: ""}[states.pop()]
