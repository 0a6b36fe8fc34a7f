"""The ranks: a cell each, a row each, who waits for whom, and what they said last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangwatch.model import ChainEnd, ExceptionFacts, Frame, Incident, RankReport, StepTimes, Wait, every_rank
from hangwatch.report import words
from hangwatch.report.html.markup import Child, Html, block, details, join, table, tag
from hangwatch.stacks.frames import user_frame
from hangwatch.words import verb

CELLS = 4096  # more ranks are said in words
# Each role has a sign besides its colour, for those who cannot tell the colours apart.
SIGNS = {"culprit": "✖", "home": "◈", "missing": "∅", "victim": "…", "moving": "▸", "other": "·"}
LEGEND = {
    "culprit": "at fault",
    "home": "one of its processes is at fault",
    "missing": "never came",
    "victim": "waits because of it",
    "moving": "still moves",
    "other": "other",
}


def roles(incident: Incident) -> dict[int, str]:
    """What part each rank plays, also those that never came."""
    result = dict.fromkeys(every_rank(incident.job.world_size), "missing")
    for rank in incident.ranks:
        result[rank.rank] = "moving" if rank.moved else "other"
    result.update((rank, "victim") for rank in incident.verdict.victims)
    blamed = sorted(incident.verdict.culprits, key=lambda who: who.process == "rank")  # a rank's own fault counts last
    named = ((who.rank, "culprit" if who.process == "rank" else "home") for who in blamed if who.rank is not None)
    result.update((rank, role) for rank, role in named if result.get(rank) != "missing")
    return result


def grid(incident: Incident) -> Html:
    """One cell a rank, node by node; too many ranks are said in words."""
    parts = roles(incident)
    if len(parts) < 2 or len(parts) > CELLS:
        return _in_words(parts) if parts else Html("")
    hosts: dict[str, list[int]] = {}
    known = {rank.rank: rank.host for rank in incident.ranks}
    for rank in sorted(parts):
        hosts.setdefault(known.get(rank, ""), []).append(rank)
    nodes = (_node(host, ranks, parts) for host, ranks in hosts.items())
    return join((tag("div", *nodes, class_="grid"), _legend(set(parts.values()))))


def _node(host: str, ranks: list[int], parts: dict[int, str]) -> Html:
    cells = (
        tag("i", tag("b", SIGNS[parts[rank]]), rank, class_=parts[rank], title=f"rank {rank}: {LEGEND[parts[rank]]}")
        for rank in ranks
    )
    return tag("div", tag("span", host or "no node"), *cells, class_="node")


def _legend(used: set[str]) -> Html:
    entries = (
        tag("li", tag("b", sign), f" {LEGEND[role]}", class_=role) for role, sign in SIGNS.items() if role in used
    )
    return tag("ul", *entries, class_="legend")


def _in_words(parts: dict[int, str]) -> Html:
    said = ((role, [rank for rank, part in parts.items() if part == role]) for role in SIGNS)
    lines = (tag("li", f"{words.ranks(ranks)}: {LEGEND[role]}", class_=role) for role, ranks in said if ranks)
    return tag("ul", *lines, class_="plain")


def table_of(incident: Incident) -> Html:
    """One row a rank: those at fault first, and ranks that are alike left for the JSON where there are too many."""
    parts = roles(incident)
    order = {role: place for place, role in enumerate(SIGNS)}
    ranks = sorted(incident.ranks, key=lambda rank: (order[parts[rank.rank]], rank.rank))
    head = ("rank", "node", "pid", "phase", "epoch", "batch", "step", "where", "waits for", "still for", "step time")
    rows = [_row(rank, parts[rank.rank]) for rank in ranks]
    return table(head, rows, [parts[rank.rank] == "culprit" for rank in ranks])


def _row(rank: RankReport, role: str) -> tuple[Child, ...]:
    progress = rank.progress
    step = None if progress is None or progress.step < 0 else progress.step
    return (
        join((tag("b", SIGNS[role], class_=f"sign {role}"), f" {rank.rank}")),
        rank.host,
        rank.pid,
        rank.phase,
        progress.epoch if progress else None,
        progress.batch if progress else None,
        step,
        _where(rank),
        rank.waiting_for,
        words.duration(rank.still_s) if rank.still_s else "",
        _times(rank.reading.times) if rank.reading else None,
    )


def _where(rank: RankReport) -> Html | None:
    main = next((stack.frames for stack in rank.stacks if stack.main), ())
    own = own_frame(main)
    return tag("code", f"{words.place(own)} {own.function}", title=f"{own.file}:{own.line}") if own else None


def _times(times: StepTimes) -> str:
    """1.4 s (12 % data)"""
    if not times.steps or times.total_s <= 0:
        return ""
    each = times.total_s / times.steps
    said = words.duration(each) if each >= 1 else f"{each * 1000:.0f} ms"
    return f"{said} ({100 * times.data_s / times.total_s:.0f} % data)"


def own_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame of the user's code or of a package, else the innermost one."""
    return user_frame(frames) or next(iter(frames), None)


def waits(incident: Incident) -> Html:
    """The chain of waits in the sentences of `words.chain`, with its end: ranks that wait alike share a line."""
    parts = roles(incident)
    lines = [_edge(edge, parts) for edge in words.edges(incident.verdict)]
    pids = {who.pid for who in incident.verdict.culprits if who.process != "rank" and who.pid is not None}
    lines += [_end(end, parts, end.pid in pids) for end in incident.verdict.ends]
    return tag("ol", *lines, class_="chain") if lines else Html("")


def _end(end: ChainEnd, parts: dict[int, str], at_fault: bool) -> Html:
    name = tag("b", words.ranks(end.ranks), class_=_role(end.ranks, parts))
    said = words.end(end).removeprefix(words.ranks(end.ranks))
    before, process, after = said.partition(end.awaits) if at_fault and end.awaits else (said, "", "")
    return tag("li", name, before, tag("b", process, class_="culprit") if process else None, after)


def _edge(edge: Wait, parts: dict[int, str]) -> Html:
    whom = tag("b", words.ranks(edge.awaited), class_=_role(edge.awaited, parts)) if edge.awaited else None
    return tag(
        "li",
        tag("b", words.ranks(edge.waiting), class_=_role(edge.waiting, parts)),
        f" {verb(len(edge.waiting), 'waits', 'wait')}",
        join((" for ", whom)) if whom else None,
        f" in {edge.what}",
        join((" (", tag("code", words.place(edge.where), title=edge.where.file), ")")) if edge.where else None,
    )


def _role(ranks: Iterable[int], parts: dict[int, str]) -> str:
    found = {parts.get(rank, "missing") for rank in ranks}
    return found.pop() if len(found) == 1 else "other"


def outputs(incident: Incident) -> Html:
    """Exceptions, crash traces and the last lines of logs, of the ranks that have some."""
    return join(part for rank in incident.ranks[:64] for part in _outputs(rank))


def _outputs(rank: RankReport) -> Iterator[Html]:
    if rank.exception:
        yield details(_exception_line(rank.rank, rank.exception), block(_trace(rank.exception)), open_=True)
    if rank.crash_trace:
        yield details(f"rank {rank.rank}: crash trace", block(rank.crash_trace))
    if rank.last_output.strip():
        yield details(f"rank {rank.rank}: last output", block(rank.last_output))


def _exception_line(rank: int, error: ExceptionFacts) -> str:
    return f"rank {rank}: {error.type}: {error.message} ({error.thread})"


def _trace(error: ExceptionFacts) -> str:
    return "\n".join(f"{frame.file}:{frame.line} in {frame.function}" for frame in error.frames[::-1])
