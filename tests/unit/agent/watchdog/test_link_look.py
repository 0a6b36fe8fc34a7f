"""Links by the kernel's counters: what is compared, added up, and left out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangwatch.model import Link
from hangwatch_agent.capture.proc.tcp_counters import Counters
from hangwatch_agent.watchdog.link_look import LinkLook

HERE, THERE = "10.0.0.1", "10.0.0.2"
MINE = Counters(HERE, THERE, 1000, 1.0, 0.25, 10, 1)


class Kernel:
    """Counters that a test sets; this process owns the sockets 1 and 2."""

    def __init__(self, **connections: Counters) -> None:
        self.known: Mapping[str, Counters] = {name.lstrip("_"): each for name, each in connections.items()}
        self.asked = 0
        self.look = LinkLook(self.tell, self.owned)

    def tell(self) -> Mapping[str, Counters]:
        self.asked += 1
        return self.known

    def owned(self, pid: int) -> Sequence[str]:
        return ["1", "2"] if pid == os.getpid() else []

    def __call__(self) -> tuple[Link, ...]:
        return self.look([os.getpid()])


def test_what_went_over_all_connections_between_two_looks_is_added_up() -> None:
    kernel = Kernel(_1=MINE, _2=MINE, _3=MINE)
    assert kernel() == (), "there is nothing to compare with"
    kernel.known = {name: replace(MINE, acknowledged=5000, busy_s=3.0, no_room_s=0.75, segments=50) for name in "123"}
    assert kernel() == (Link(HERE, THERE, 2, 8000, 3.0, 80, 0),)
    assert kernel() == (), "nothing went since then"


def test_connections_inside_of_the_machine_are_no_links() -> None:
    local = Counters(HERE, HERE, 0, 0.0, 0.0, 0, 0)
    kernel = Kernel(_1=local, _2=MINE)
    kernel()
    kernel.known = {"1": replace(local, acknowledged=9999, busy_s=9.0), "2": MINE}
    assert kernel() == ()


def test_a_socket_that_is_new_waits_for_the_next_look() -> None:
    kernel = Kernel()
    kernel()
    kernel.known = {"1": MINE}
    assert kernel() == ()
    kernel.known = {"1": replace(MINE, acknowledged=2000, busy_s=2.0)}
    (found,) = kernel()
    assert found.sent == 1000


def test_a_process_that_is_gone_has_no_sockets() -> None:
    def gone(pid: int) -> Sequence[str]:
        raise FileNotFoundError(pid)

    assert LinkLook(lambda: {"1": MINE}, gone)([os.getpid()]) == ()


def test_a_kernel_that_tells_nothing_is_asked_once() -> None:
    asked = []

    def refuse() -> Mapping[str, Counters]:
        asked.append(1)
        raise PermissionError

    look = LinkLook(refuse, lambda pid: [])
    assert [look([os.getpid()]) for _ in range(3)] == [()] * 3
    assert len(asked) == 1
