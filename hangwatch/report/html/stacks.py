"""Stacks: the merged tree of all ranks, and every thread of the ranks one by one."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.model import Frame, Incident, RankReport, StackNode, ThreadStack
from hangwatch.report import words
from hangwatch.report.html.markup import Html, details, join, tag
from hangwatch.report.html.ranks import own_frame, roles
from hangwatch.stacks.frames import origin

BRANCHES = 200
FRAMES = 6000  # of single threads; the JSON file has them all


def tree(incident: Incident) -> Html:
    """Frames that the same ranks share stand in one box; where ranks part, the boxes part."""
    parts = roles(incident)
    left = [BRANCHES]
    return join(_branch(node, parts, left) for node in incident.stack_tree)


def _branch(node: StackNode, parts: dict[int, str], left: list[int]) -> Html:
    if left[0] <= 0:
        return Html("")
    left[0] -= 1
    frames = [node.frame]
    while len(node.children) == 1 and node.children[0].ranks == node.ranks:
        (node,) = node.children
        frames.append(node.frame)
    ended = set(node.ranks) - {rank for child in node.children for rank in child.ranks}
    role = {parts.get(rank, "other") for rank in ended or node.ranks}
    style = role.pop() if len(role) == 1 and ended else "shared"
    return tag(
        "div",
        tag("p", _whose(node.ranks, ended), class_="whose"),
        _frames(frames, innermost=bool(ended), own_line=not any(map(_has_own, node.children))),
        tag("div", *(_branch(child, parts, left) for child in node.children), class_="children")
        if node.children
        else None,
        class_=f"branch {style}",
    )


def _whose(ranks: tuple[int, ...], ended: set[int]) -> str:
    count = f" ({len(ranks)})" if len(ranks) > 2 else ""
    some = f", of which {words.ranks(ended)} end here" if ended and len(ended) < len(ranks) else ""
    return f"{words.ranks(ranks)}{count}{some}"


def _of_user(frame: Frame) -> bool:
    return not frame.native and origin(frame.file) == "user"


def _has_own(node: StackNode) -> bool:
    """Whether the user's code goes on in this branch; then its line there is the one to look at."""
    return _of_user(node.frame) or any(map(_has_own, node.children))


def _frames(frames: list[Frame], innermost: bool, own_line: bool = True) -> Html:
    """Outermost first. The last one is where the ranks are; the user's innermost line is what they want to see."""
    own = own_frame(tuple(frames[::-1])) if own_line else None
    items = (
        tag(
            "li",
            tag("b", frame.function),
            tag("code", f"{_short(frame)}", title=frame.file),
            class_=_kind(frame, frame is own, innermost and place == len(frames) - 1),
        )
        for place, frame in enumerate(frames)
    )
    return tag("ol", *items, class_="frames")


def _kind(frame: Frame, own: bool, innermost: bool) -> str:
    kinds = ("own" if _of_user(frame) else "library", "here" if own else "", "innermost" if innermost else "")
    return " ".join(kind for kind in kinds if kind)


def _short(frame: Frame) -> str:
    """The path from the package on for libraries, whole for the user's own files."""
    path = frame.file.rpartition("-packages/")[2]
    return f"{path}:{frame.line}" if frame.line else path


def by_rank(incident: Incident) -> Html:
    """All threads of each rank and of its workers, those at fault first."""
    parts = roles(incident)
    ranks = sorted(incident.ranks, key=lambda rank: (parts[rank.rank] not in ("culprit", "home"), rank.rank))
    left = [FRAMES]
    shown = [_rank(rank, left) for rank in ranks if left[0] > 0 and (rank.stacks or rank.workers or rank.children)]
    rest = tag("p", "More threads are in the JSON file.", class_="more") if left[0] <= 0 else None
    return join((*shown, rest))


def _rank(rank: RankReport, left: list[int]) -> Html:
    own = _threads(rank.stacks, left)
    others = (
        details(_process_name(process.role, process.worker, process.facts.pid), _threads(process.stacks, left))
        for process in (*rank.workers, *rank.children)
        if process.stacks and left[0] > 0
    )
    pid = f", pid {rank.pid}" if rank.pid is not None else ""
    return details(f"rank {rank.rank}{pid}: {_count(rank.stacks)}", own, *others)


def _process_name(role: str, worker: int | None, pid: int) -> str:
    number = "" if worker is None else f" {worker}"
    return f"{role.replace('-', ' ')}{number}, pid {pid}"


def _count(stacks: tuple[ThreadStack, ...]) -> str:
    return "1 thread" if len(stacks) == 1 else f"{len(stacks)} threads"


def _threads(stacks: Iterable[ThreadStack], left: list[int]) -> Html:
    return join(_thread(stack, left) for stack in sorted(stacks, key=lambda stack: not stack.main) if left[0] > 0)


def _thread(stack: ThreadStack, left: list[int]) -> Html:
    left[0] -= len(stack.frames) + 1
    facts = [stack.name or f"thread {stack.thread_id}"]
    facts += ["holds the interpreter lock"] if stack.owns_gil else []
    facts += ["active"] if stack.active else []
    facts += [f"from {stack.source}"] if stack.source != "py-spy" else []
    return tag(
        "div", tag("p", ", ".join(facts), class_="whose"), _frames(list(stack.frames[:200])[::-1], innermost=True)
    )
