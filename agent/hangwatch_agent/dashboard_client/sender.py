"""Carries what is in the spool to the dashboard, in order, with patience for a dashboard that is away."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Callable

from hangwatch.model import NodeCommand, NodeReply
from hangwatch.wire import codec
from hangwatch_agent.dashboard_client.connection import Answer, Connection
from hangwatch_agent.dashboard_client.spool import Item, Spool

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
NEEDS_HELLO = 428

Say = Callable[[str], None]


class Sender:
    """Sends item after item. After a failure it rests, longer each time; nothing is lost but what the spool gives up.

    Args:
        complete: gives a waiting batch the hello that a dashboard without memory of this node asks for.
        introduce: a batch with nothing but the hello, to be sent ahead; None where there is none yet.
        obey: is given every command of the dashboard.
    """

    def __init__(
        self,
        post: Connection,
        spool: Spool,
        *,
        say: Say,
        clock: Callable[[], float],
        complete: Callable[[bytes], bytes],
        introduce: Callable[[], bytes | None],
        obey: Callable[[NodeCommand], None],
    ) -> None:
        self._connection, self._spool, self._say, self._clock = post, spool, say, clock
        self._complete, self._introduce, self._obey = complete, introduce, obey
        self.refused = 0
        self._failures = 0
        self._again_at = 0.0
        self._reachable: bool | None = None
        self._said: set[str] = set()

    @property
    def resting_s(self) -> float:
        """For how long nothing is to be sent."""
        return max(0.0, self._again_at - self._clock())

    def send(self, interrupted: Callable[[], bool] = lambda: False, *, at_once: bool = False) -> None:
        """Sends what waits until the spool is empty, the dashboard fails, or `interrupted()`."""
        if at_once:
            self._again_at = 0.0
        while self._clock() >= self._again_at and (item := self._spool.first()) is not None:
            if not self._send(item) or interrupted():
                return

    def _send(self, item: Item) -> bool:
        """Sends one item. False when the dashboard could not take it now."""
        try:
            body = item.read()
        except OSError:  # another process has cleaned up
            self._give_up(item)
            return True
        try:
            answer = self._exchange(item.kind, body)
        except (OSError, http.client.HTTPException) as error:
            self._failed(str(error) or type(error).__name__)
            return False
        return self._answered(item, answer)

    def _exchange(self, kind: str, body: bytes) -> Answer:
        answer = self._connection.send(kind, body)
        if kind == "batch" and any(command.kind == "hello" for command in _commands(answer)):
            return self._connection.send(kind, self._complete(body))
        if answer.status == NEEDS_HELLO and (greeting := self._introduce()) is not None:
            self._connection.send("batch", greeting)
            return self._connection.send(kind, body)
        return answer

    def _answered(self, item: Item, answer: Answer) -> bool:
        if answer.taken:
            self._spool.done(item)
            self._succeeded()
            for command in _commands(answer):
                self._obey(command)
            return True
        reason = f"{answer.status} {_reason(answer)}".strip()
        if answer.hopeless or answer.status == NEEDS_HELLO:
            self._give_up(item)
            self._say_once(f"hangwatch: the dashboard refuses what it is sent: {reason}")
            return True
        self._failed(reason, answer.retry_after_s)
        return False

    def _give_up(self, item: Item) -> None:
        self.refused += 1
        self._spool.done(item)

    def _succeeded(self) -> None:
        if self._reachable is False:
            self._say("hangwatch: the dashboard answers again")
        self._reachable, self._failures, self._again_at = True, 0, 0.0

    def _failed(self, reason: str, retry_after_s: float = 0.0) -> None:
        if self._reachable is not False:
            self._say(
                f"hangwatch: the dashboard {self._connection.address} cannot be reached ({reason}); the watch goes on"
            )
        self._reachable = False
        self._failures += 1
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 10))
        # Jitter: a thousand nodes must not come back in the same second.
        self._again_at = self._clock() + max(retry_after_s, pause * random.uniform(0.5, 1.0))

    def _say_once(self, line: str) -> None:
        if line not in self._said and len(self._said) < 20:
            self._said.add(line)
            self._say(line)


def _commands(answer: Answer) -> tuple[NodeCommand, ...]:
    """What a dashboard asks for with its answer; nothing where it is no answer to a batch."""
    if answer.status != 200:
        return ()
    try:
        return codec.loads(NodeReply, answer.body, lenient=True).commands
    except codec.WireError:
        return ()


def _reason(answer: Answer) -> str:
    try:
        return str(json.loads(answer.body)["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return ""
