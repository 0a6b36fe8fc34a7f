"""The merged stack tree of many ranks: where they all are, where they part, and which ones stand elsewhere.

Stacks are innermost first; the tree grows from the outermost frame. Ranks with equal frames share a node, so
16,000 ranks that wait in the same place make one branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hangwatch.model import Frame, RankEvidence, RankReport, StackNode

DEEPEST = 96  # a node is an object within an object in JSON, and readers of JSON do not nest without end
_OUTERMOST_KEPT = 16  # frames of a stack that is too deep: they say where the program is


def of_ranks(ranks: Iterable[RankEvidence | RankReport], main_only: bool = True) -> tuple[StackNode, ...]:
    """The tree of the ranks' main threads, or of all their threads."""
    return merged((rank.rank, stack.frames) for rank in ranks for stack in rank.stacks if stack.main or not main_only)


def merged(stacks: Iterable[tuple[int, tuple[Frame, ...]]]) -> tuple[StackNode, ...]:
    """The tree of (rank, frames innermost first). Siblings: most ranks first, then the lowest rank first."""
    root = _Branch()
    for frames, ranks in _by_frames(stacks).items():
        branch = root
        for frame in _shortened(frames)[::-1]:
            branch = branch.children.setdefault(frame, _Branch())
            branch.ranks.extend(ranks)
    return root.nodes()


def leaves(tree: Iterable[StackNode]) -> Iterator[tuple[tuple[Frame, ...], tuple[int, ...]]]:
    """Every distinct stack of the tree, outermost frame first, with the ranks whose stack ends there."""
    todo: list[tuple[tuple[Frame, ...], StackNode]] = [((node.frame,), node) for node in reversed(tuple(tree))]
    while todo:
        path, node = todo.pop()
        deeper = {rank for child in node.children for rank in child.ranks}
        if ended := tuple(rank for rank in node.ranks if rank not in deeper):
            yield path, ended
        todo.extend(((*path, child.frame), child) for child in reversed(node.children))


@dataclass
class _Branch:
    ranks: list[int] = field(default_factory=list)
    children: dict[Frame, _Branch] = field(default_factory=dict)

    def nodes(self) -> tuple[StackNode, ...]:
        nodes = [
            StackNode(frame, tuple(sorted(set(child.ranks))), child.nodes()) for frame, child in self.children.items()
        ]
        return tuple(sorted(nodes, key=lambda node: (-len(node.ranks), node.ranks)))


def _by_frames(stacks: Iterable[tuple[int, tuple[Frame, ...]]]) -> dict[tuple[Frame, ...], list[int]]:
    """Ranks by equal stack: with thousands of ranks there are only a few, and each is walked once."""
    groups: dict[tuple[Frame, ...], list[int]] = {}
    for rank, frames in stacks:
        if frames:
            groups.setdefault(frames, []).append(rank)
    return groups


def _shortened(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Runaway recursion without its middle."""
    if len(frames) <= DEEPEST:
        return frames
    innermost = frames[: DEEPEST - _OUTERMOST_KEPT - 1]
    left_out = Frame("", 0, f"({len(frames) - DEEPEST + 1} frames left out)")
    return (*innermost, left_out, *frames[-_OUTERMOST_KEPT:])
