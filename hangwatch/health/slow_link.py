"""Links between the nodes of a job over which data travel more slowly than over the others, or get lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from hangwatch.model import HealthWarning, Link, NodeFacts
from hangwatch.words import size

from .telling import warning

MUCH_SLOWER = 4.0  # times slower than the other links: 2 are usual where nodes stand in different racks
LEAST_BUSY_S = 1.0  # seconds of sending of a slow link: less may be a connection's slow start
LEAST_TICK_S = 0.004  # seconds: the kernel counts in ticks, and a fast link may have sent for less than one
LEAST_SENT = 1 << 20  # bytes, for the same reason, of any link: in a ring a fast one sends as much in less time
OTHER_LINKS = 2  # links to compare with: of two links nothing tells which is as it should be
LOST = 0.02  # share of the segments that were sent again: TCP is several times slower from 1 or 2 % on
LEAST_SEGMENTS = 2000  # of which a share can be told
LINKS_TOLD = 8  # slow links in the evidence


@dataclass(frozen=True)
class _Way:
    """A link between two nodes of the job."""

    sender: NodeFacts
    receiver: NodeFacts
    link: Link

    @property
    def ends(self) -> tuple[str, str]:
        return self.link.local, self.link.remote

    @property
    def rate(self) -> float:
        """Bytes a second of one connection, while it had something to send."""
        return self.link.sent / max(self.link.busy_s, LEAST_TICK_S)

    @property
    def lost(self) -> float:
        enough = self.link.segments >= LEAST_SEGMENTS
        return self.link.sent_again / self.link.segments if enough else 0.0

    def __str__(self) -> str:
        lost = f", {self.lost:.1%} of the segments sent again" if self.lost >= LOST else ""
        return (
            f"{self.sender.host} ({self.link.local}) to {self.receiver.host} ({self.link.remote}):"
            f" {_rate(self.rate)} in {self.link.busy_s:.1f} s of sending{lost}"
        )


class LinkWatch:
    """The slowest link of a job, told when two looks of its sender in a row show it, and until one does not."""

    def __init__(self) -> None:
        self._seen: _Way | None = None
        self.told: HealthWarning | None = None

    def note(self, nodes: Sequence[NodeFacts]) -> bool:
        """Takes what each node said last. Returns whether there is something new to be told."""
        before, told = self._seen, self.told
        found = _slow(nodes)
        self._seen = way = found[0][0] if found else None
        if way is None or before is None or way.ends != before.ends:
            self.told = None
        elif self.told is None and way.link != before.link:
            self.told = _warning(found)
        return self.told is not told


def _slow(nodes: Sequence[NodeFacts]) -> list[tuple[_Way, float | None]]:
    """The links that are much slower than the others, or lose much, the slowest first; with what is usual."""
    ways = list(_ways(nodes))
    found = [(way, usual) for way in ways if (usual := _usual(way, ways)) is not None or way.lost >= LOST]
    return sorted(found, key=lambda each: each[0].rate)


def _warning(found: Sequence[tuple[_Way, float | None]]) -> HealthWarning:
    way, usual = found[0]
    compared = "" if usual is None else f", the other links {_rate(usual)}"
    lost = f"; {way.lost:.1%} of its segments had to be sent again" if way.lost >= LOST else ""
    return warning(
        "slow-link",
        f"The link from {way.sender.host} to {way.receiver.host} carries {_rate(way.rate)}{compared}{lost}",
        {},
        about=way.sender.ranks,
        evidence=[str(each) for each, _ in found[:LINKS_TOLD]],
    )


def _ways(nodes: Sequence[NodeFacts]) -> Iterator[_Way]:
    """The links of which both ends are nodes of the job, and over which enough was sent."""
    owners = _owners(nodes)
    for node in nodes:
        for link in node.links:
            receiver = owners.get(link.remote, node)
            if receiver is not node and link.sent >= LEAST_SENT:
                yield _Way(node, receiver, link)


def _owners(nodes: Sequence[NodeFacts]) -> dict[str, NodeFacts]:
    """The node of each address from which one sends, but for addresses that several have, as those of containers."""
    having: dict[str, list[NodeFacts]] = {}
    for node in nodes:
        for address in {link.local for link in node.links}:
            having.setdefault(address, []).append(node)
    return {address: found[0] for address, found in having.items() if len(found) == 1}


def _usual(way: _Way, ways: Sequence[_Way]) -> float | None:
    """What the other links carry, where this one is much slower."""
    others = [each.rate for each in ways if each is not way]
    usual = median(others) if len(others) >= OTHER_LINKS else 0.0
    return usual if way.link.busy_s >= LEAST_BUSY_S and way.rate * MUCH_SLOWER <= usual else None


def _rate(rate: float) -> str:
    return f"{size(int(rate))}/s"
