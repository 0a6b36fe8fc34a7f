"""Small jobs by hand: programs as lists of acts, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.world.acts import Act, Collective, DeviceWait, End, Line, Peer, Slow, ThreadPlan
from hangwatch.world.calls import Comm
from hangwatch.world.machine import Machine
from hangwatch.world.places import Source

SOURCE = Source()
BARRIER = Collective("barrier", SOURCE.site("final"))
REDUCE = Collective("all_reduce", SOURCE.site("log"))
GATHER = Collective("all_gather", SOURCE.site("validate-gather"))
ITEM = DeviceWait(SOURCE.site("item"))
COMPUTE = Slow("compute", SOURCE.site("load"))
STUCK = Slow("lock", SOURCE.site("load"), forever=True)


def send(peer: int, handle: str = "") -> Peer:
    return Peer("send", peer, SOURCE.site("send"), handle=handle)


def recv(peer: int, handle: str = "") -> Peer:
    return Peer("recv", peer, SOURCE.site("recv"), handle=handle)


def job(
    *programs: Sequence[Act],
    backend: str = "gloo",
    groups: dict[str, tuple[int, ...]] | None = None,
    threads: dict[int, list[ThreadPlan]] | None = None,
    eager: bool = False,
    garbage: bool = False,
    slow_links: bool = False,
) -> Machine:
    """A job that has run until nothing can move at once; each program ends with the main program's end."""
    members = {"0": tuple(range(len(programs))), **(groups or {})}
    comms = [Comm(name, ranks, backend, eager, garbage) for name, ranks in members.items()]
    lines = [[Line(act) for act in (*program, End())] for program in programs]
    return Machine(lines, comms, threads=dict(threads or {}), slow_links=slow_links).run()


def states(machine: Machine) -> list[tuple[str, int | None]]:
    """State and exit code of each rank."""
    return [(rank.state, rank.code) for rank in machine.ranks]


WAITS = ("S", None)
ENDED = ("X", 0)
