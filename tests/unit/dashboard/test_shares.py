"""Room for large bodies: who is let in, in which order, and that none of it is lost."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from hangwatch_dashboard import shares
from hangwatch_dashboard.bodies import LEAST_ROOM, BodyError, Raw, room_for
from hangwatch_dashboard.shares import Shares


class Clients:
    """Requests that hold room until they are told to leave. `let_in` has their names in the order of admission."""

    def __init__(self, room: int, each: int) -> None:
        self.shares = Shares(room, each)
        self.let_in: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}

    async def come(self, name: str, size: int = 1) -> None:
        """A request of the client that the first letter of `name` says."""
        self._leave[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._request(name, size))
        await self.settle()

    async def leave(self, name: str) -> None:
        self._leave[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _request(self, name: str, size: int) -> None:
        async with self.shares.place(name[0], size):
            self.let_in.append(name)
            await self._leave[name].wait()

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        # Nothing is held and nobody waits: whatever happened, all room is free again.
        assert (self.shares._total, self.shares._held, self.shares._waiting) == (0, {}, {})


def play(room: int, each: int, scene: Callable[[Clients], Awaitable[None]]) -> None:
    async def played() -> None:
        clients = Clients(room, each)
        try:
            await scene(clients)
        finally:
            await clients.end()

    asyncio.run(played())


def test_requests_of_one_client_come_in_their_order_as_room_gets_free() -> None:
    async def scene(clients: Clients) -> None:
        # GIVEN a client whose share is full, and three more requests of it
        for name in ("a1", "a2", "a3", "a4", "a5"):
            await clients.come(name)
        assert clients.let_in == ["a1", "a2"]
        # WHEN one place is free THEN one is let in, the first
        await clients.leave("a2")
        assert clients.let_in == ["a1", "a2", "a3"]
        await clients.leave("a1")
        assert clients.let_in == ["a1", "a2", "a3", "a4"]

    play(4, 2, scene)


def test_a_full_share_keeps_no_other_client_out() -> None:
    async def scene(clients: Clients) -> None:
        for name in ("a1", "a2", "a3", "b1"):
            await clients.come(name)
        assert clients.let_in == ["a1", "a2", "b1"]

    play(4, 2, scene)


def test_clients_take_turns() -> None:
    async def scene(clients: Clients) -> None:
        # GIVEN all room taken, and one client with many requests before the first of two others
        for name in ("x1", "y1", "a1", "a2", "a3", "b1", "c1"):
            await clients.come(name)
        assert clients.let_in == ["x1", "y1"]
        # WHEN room gets free again and again THEN the others need not wait for all that came before
        for name in ("x1", "y1", "a1", "b1"):
            await clients.leave(name)
        assert clients.let_in[2:] == ["a1", "b1", "c1", "a2"]

    play(2, 2, scene)


def test_many_small_ones_come_at_once_and_a_large_one_is_not_overtaken() -> None:
    async def scene(clients: Clients) -> None:
        for number in range(5):
            await clients.come(f"a{number}", 1)
        await clients.come("b1", 4)
        await clients.come("c1", 1)
        assert clients.let_in == ["a0", "a1", "a2", "a3", "a4"]
        # GIVEN a large one that waits for the room of three WHEN one is free THEN a small one does not take it
        await clients.leave("a0")
        assert "c1" not in clients.let_in
        await clients.leave("a1")
        assert clients.let_in[5:] == ["b1"]
        await clients.leave("a2")
        assert clients.let_in[5:] == ["b1", "c1"]

    play(7, 5, scene)


def test_what_is_larger_than_a_share_takes_a_whole_one() -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("a1", 100)
        await clients.come("a2")
        await clients.come("b1")
        assert clients.let_in == ["a1", "b1"]

    play(4, 2, scene)


def test_one_that_waits_too_long_is_refused_and_lets_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("x1", 3)
        monkeypatch.setattr(shares, "WAIT_S", 0.01)
        await clients.come("b1", 4)  # at the front, and larger than what is left
        monkeypatch.setattr(shares, "WAIT_S", 60.0)
        await clients.come("c1", 1)
        assert clients.let_in == ["x1"]
        with pytest.raises(BodyError) as refused:
            await clients.tasks["b1"]
        assert refused.value.status == 503
        await clients.settle()
        assert clients.let_in == ["x1", "c1"]

    play(4, 4, scene)


@pytest.mark.parametrize("before", [True, False])
def test_one_that_is_cancelled_as_it_is_let_in_gives_its_room_back(before: bool) -> None:
    """Just before, or let in already, where it has not run since."""

    async def scene(clients: Clients) -> None:
        async with clients.shares.place("b", 1):
            await clients.come("a1")
            await clients.come("a2")
            if before:
                clients.tasks["a1"].cancel()
        if not before:
            clients.tasks["a1"].cancel()
        await clients.settle()
        # THEN the next one has its room
        assert clients.let_in == ["a2"]

    play(1, 1, scene)


def test_a_thousand_are_woken_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one that leaves lets in one, and looks at no other: the queue may be as long as it will."""
    looks = 0
    ask = Shares._next

    def counting(own: Shares) -> str | None:
        nonlocal looks
        looks += 1
        return ask(own)

    monkeypatch.setattr(Shares, "_next", counting)

    async def hold(own: Shares) -> None:
        async with own.place("a", 1):
            await asyncio.sleep(0)

    async def played() -> None:
        own = Shares(8, 4)
        async with AsyncExitStack() as held:
            for _ in range(4):
                await held.enter_async_context(own.place("a", 1))
            waiting = [asyncio.create_task(hold(own)) for _ in range(1000)]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    asyncio.run(played())
    assert looks <= 4 * 1004


KIB = 1 << 10


@pytest.mark.parametrize(
    ("headers", "room"),
    [
        ({"content-length": "5000"}, LEAST_ROOM),
        ({"content-length": str(500 * KIB)}, 500 * KIB),
        ({}, 1024 * KIB),
        ({"content-length": "5000", "transfer-encoding": "chunked"}, 1024 * KIB),
        ({"content-length": "-1"}, 1024 * KIB),
        ({"content-length": "\N{SUPERSCRIPT TWO}"}, 1024 * KIB),
    ],
)
def test_a_body_gets_the_room_that_it_may_need(headers: dict[str, str], room: int) -> None:
    assert room_for({"content-type": "application/json", **headers}, 1024 * KIB) == room


@pytest.mark.parametrize("length", [str((1024 << 10) + 1), "0" * 20 + "5", "9" * 5000])
def test_a_body_that_says_it_is_too_large_gets_none(length: str) -> None:
    with pytest.raises(BodyError) as refused:
        room_for({"content-type": "application/json", "content-length": length}, 1024 * KIB)
    assert refused.value.status == 413


def lying(text: bytes, size: int) -> bytes:
    """A gzip member that says another size than it has."""
    return gzip.compress(text)[:-4] + size.to_bytes(4, "little")


def test_a_body_is_as_large_in_the_clear_as_its_sender_says_or_refused() -> None:
    assert Raw(b"12345", False, 100).clear_size == 5
    honest = Raw(gzip.compress(b"1" * 50), True, 100)
    assert (honest.clear_size, honest.in_the_clear()) == (50, b"1" * 50)
    # GIVEN a body that unfolds into more than it says WHEN it is decompressed THEN no more than that is
    for told in (0, 5, 49, 51):
        liar = Raw(lying(b"1" * 50, told), True, 100)
        assert liar.clear_size == told
        with pytest.raises(BodyError) as refused:
            liar.in_the_clear()
        assert refused.value.status == 400
    too_large = Raw(gzip.compress(b"1" * 101), True, 100)
    assert too_large.clear_size == 100
    with pytest.raises(BodyError) as refused:
        too_large.in_the_clear()
    assert refused.value.status == 413
