"""The ranks meet in the job's own store, at MASTER_ADDR:MASTER_PORT, as the training would."""

from __future__ import annotations

import contextlib
import importlib
import json
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hangwatch.doctor import endpoint

CONNECT_S, JOIN_S, ANSWER_S = 10.0, 12.0, 5.0
PREFIX = "hangwatch-doctor"


class SharedFolder:
    """What the ranks tell each other. `roster` are the ranks that take part; one of the first to come calls it.

    Args:
        own: this rank's facts as a dictionary, which others will read.
        deadline: of time.monotonic(), for everything but `gather`.
    """

    def __init__(self, own: dict[str, Any], deadline: float) -> None:
        self._own, self._deadline = own, deadline
        self.own_rank: int = own["rank"]
        self.store: Any = None
        self.state = ""
        self.roster: tuple[int, ...] = ()
        self.twice: tuple[int, ...] = ()
        self.facts: dict[int, dict[str, Any]] = {}
        self.token = b""
        self.place: int | None = None  # our number in the roster

    @property
    def connected(self) -> bool:
        return self.store is not None

    @property
    def hosts(self) -> dict[int, str]:
        return {rank: self.facts[rank].get("host", "") for rank in self.roster}

    def connect(self) -> None:
        """Raises RuntimeError where the store cannot be reached; `state` says why."""
        dist: Any = importlib.import_module("torch.distributed")  # not all of its names are public

        host, _, port = self._own["master"].rpartition(":")
        if not host or not port.isdigit():
            self.state = f"MASTER_ADDR:MASTER_PORT is {self._own['master']!r}"
            raise RuntimeError(self.state)
        serves = self.own_rank == 0 and not self._own["store_elsewhere"]
        try:
            self._serving = dist.TCPStore(
                host, int(port), None, serves, timedelta(seconds=CONNECT_S), wait_for_workers=False
            )
        except Exception as error:
            self.state = self._why(error, host, int(port), serves)
            raise RuntimeError(self.state) from None
        self._serving.set_timeout(timedelta(seconds=ANSWER_S))
        self.store, self.state = dist.PrefixStore(PREFIX, self._serving), "reached"

    @staticmethod
    def _why(error: Exception, host: str, port: int, serves: bool) -> str:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        if serves and ("EADDRINUSE" in str(error) or "address already in use" in str(error).lower()):
            return f"port {port} is taken on this host, where rank 0 must listen"
        return endpoint.reach(host, port) or first[:300]

    def meet(self) -> None:
        """Tell of ourselves, wait for all ranks, and take the roster that the first to come has written."""
        number = self.store.add(f"came/{self.own_rank}", 1)
        place = f"facts/{self.own_rank}" if number == 1 else f"again/{self.own_rank}/{number}"
        self.store.set(place, json.dumps(self._own))
        if number == 1 and self.store.add("first", 1) == 1:
            self.store.set("roster", json.dumps(self._call_roll()))
        self._until(lambda: self.store.check(["roster"]), min(JOIN_S + ANSWER_S, self._deadline - time.monotonic()))
        called = json.loads(self.store.get("roster"))
        self.roster, self.twice = tuple(called["ranks"]), tuple(called["twice"])
        self.token = bytes.fromhex(called["token"])
        self.facts = {rank: json.loads(self.store.get(f"facts/{rank}")) for rank in self.roster}
        if number == 1 and self.own_rank in self.roster:
            self.place = self.roster.index(self.own_rank)

    def _call_roll(self) -> dict[str, Any]:
        world = range(self._own["world_size"])
        seconds = min(JOIN_S, (self._deadline - time.monotonic()) / 3)
        with contextlib.suppress(TimeoutError):
            self._until(lambda: self.store.check([f"facts/{rank}" for rank in world]), seconds)
        came = {rank: self.store.add(f"came/{rank}", 0) for rank in world}
        here = [rank for rank in world if came[rank] and self.store.check([f"facts/{rank}"])]
        twice = [rank for rank in world if came[rank] > 1]
        return {"ranks": here, "twice": twice, "token": secrets.token_hex(16)}

    def note(self, stage: str) -> None:
        """Where we are, for the others to see if we do not come to the end."""
        if self.store is not None:
            with contextlib.suppress(Exception):
                self.store.set(f"stage/{self.own_rank}", stage)

    def gather(self, own: dict[str, Any], deadline: float) -> list[dict[str, Any]]:
        """Leave what we have found, wait for what the others leave, and return it; ours is not in it.

        Who serves the store stays until all have read.
        """
        if self.place is not None:
            self.store.set(f"facts/{self.own_rank}", json.dumps(own))
            self.store.set(f"done/{self.own_rank}", "1")
        done = [f"done/{rank}" for rank in self.roster]
        with contextlib.suppress(TimeoutError):
            self._until(lambda: self.store.check(done), deadline - 1.0 - time.monotonic())
        others: list[dict[str, Any]] = []
        if self.place is not None and self._first_of_host():
            others += [self._left_by(rank) for rank in self.roster if rank != self.own_rank]
            others += self._came_again()
        if self.place is not None:
            self.store.add("read", 1)
        with contextlib.suppress(TimeoutError):
            self._until(lambda: self.store.add("read", 0) >= len(self.roster), deadline - time.monotonic())
        return others

    def _first_of_host(self) -> bool:
        host = self.facts[self.own_rank].get("host")
        return self.own_rank == min(rank for rank, name in self.hosts.items() if name == host)

    def _left_by(self, rank: int) -> dict[str, Any]:
        left: dict[str, Any] = json.loads(self.store.get(f"facts/{rank}"))
        left.pop("listens_at", None)
        if not left.get("complete") and self.store.check([f"stage/{rank}"]):
            stage = self.store.get(f"stage/{rank}").decode()
            left["stages"] = [*left.get("stages", ()), {"name": stage, "problem": "was not finished in time"}]
            left["sequence"] = 0
        return left

    def _came_again(self) -> list[dict[str, Any]]:
        """What those processes have told whose rank was taken."""
        keys = [f"again/{rank}/{number}" for rank in self.twice for number in range(2, 5)]
        again: list[dict[str, Any]] = [json.loads(self.store.get(key)) for key in keys if self.store.check([key])]
        for each in again:
            each.pop("listens_at", None)
        return again

    @staticmethod
    def _until(wanted: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not wanted():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s")
            time.sleep(0.05)
