"""Tells people: one message an incident, one more when it recovers, by whatever apprise can reach.

Messages wait in the store, so a restart loses none and several dashboards send none twice. They are sent by a worker
of their own: a dead notifier delays only its own messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from hangwatch.model import Incident, Status
from hangwatch.report import words
from hangwatch.wire import codec
from hangwatch_dashboard import documents
from hangwatch_dashboard.config import ConfigError
from hangwatch_dashboard.metrics import Meters
from hangwatch_dashboard.store.rows import IncidentRow, MessageRow
from hangwatch_dashboard.store.store import Store

POLL_S = 1.0
SENDING_S = 120.0  # a message is ours for so long; then another process may try
MOST_ATTEMPTS = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 3600.0
LONGEST = 1500  # characters of a hostile sentence

# What apprise calls them, and services show as colours and signs.
FAILURE, WARNING, SUCCESS = "failure", "warning", "success"
_KINDS = {Status.RECOVERED: SUCCESS, Status.LINGERING: WARNING, Status.WAITING: WARNING}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Message:
    """What people read."""

    title: str
    body: str
    kind: str = FAILURE


class Notifier(Protocol):
    """Sends a message. Returns whether it went out; may block, may raise."""

    def __call__(self, message: Message) -> bool: ...


def message_of(incident: Incident, url: str) -> Message:
    """The sentence, the culprit, the fix and a link."""
    verdict = incident.verdict
    name = _plain(incident.job.name or incident.job.id, 100)
    parts = [
        _plain(verdict.summary or words.NO_VERDICT),
        f"fix: {_plain(verdict.fix)}" if verdict.fix else "",
        f"who: {_plain(words.culprits(verdict.culprits))}" if verdict.culprits else "",
        f"more: {url}/incidents/{incident.id}",
    ]
    kind = _KINDS.get(incident.status, FAILURE)
    return Message(f"{name}: {words.headline(incident)}", "\n".join(filter(None, parts)), kind)


def _plain(text: str, most: int = LONGEST) -> str:
    """One printable line without mentions of all: "@here" and "<!channel>" come from hostile ranks, too."""
    line = words.clipped(text, most)
    return line.replace("@", "@\N{ZERO WIDTH SPACE}").replace("<!", "<\N{ZERO WIDTH SPACE}!")


def apprise_notifier(urls: Sequence[str]) -> Notifier:
    """Sends by apprise. Raises ConfigError where it is not installed, or a URL means nothing to it."""
    try:
        import apprise
    except ImportError as error:
        raise ConfigError("telling people needs apprise: in a clone, pip install '.[notify]'") from error
    receivers = apprise.Apprise()
    for number, url in enumerate(urls, 1):
        if not receivers.add(url):
            raise ConfigError(
                f"address {number} of those to notify means nothing to apprise (it is not shown: it may hold a secret)"
            )

    def send(message: Message) -> bool:
        kind, form = apprise.NotifyType(message.kind), apprise.NotifyFormat.TEXT
        return bool(receivers.notify(body=message.body, title=message.title, notify_type=kind, body_format=form))

    return send


class Messenger:
    """Takes messages out of the store and sends them, one after the other."""

    def __init__(self, store: Store, notifier: Notifier, url: str, clock: Callable[[], float], meters: Meters) -> None:
        self._store, self._notifier, self._url, self._clock = store, notifier, url, clock
        self._meters = meters
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="hangwatch-notify")

    async def run(self) -> None:
        """Sends what is due until cancelled."""
        try:
            while True:
                try:
                    busy = await self.send_next()
                except Exception:
                    log.exception("sending messages failed")
                    busy = False
                if not busy:
                    await asyncio.sleep(POLL_S)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def send_next(self) -> bool:
        """Sends one message that is due. False if there is none."""
        row: MessageRow | None = await asyncio.wrap_future(self._store.claim_message(self._clock(), SENDING_S))
        if row is None:
            return False
        found = await self._store.ask(self._store.incident, row.incident)
        sent = found is None or await self._try(found)
        if found is not None:
            self._meters.notification("sent" if sent else "failed")
        if sent or row.attempts + 1 >= MOST_ATTEMPTS:
            if not sent:
                log.error("giving up on telling people of incident %s", row.incident)
                self._meters.notification("given_up")
            await asyncio.wrap_future(self._store.message_sent(row, self._clock()))
        else:
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**row.attempts)
            await asyncio.wrap_future(self._store.message_failed(row, self._clock() + pause))
        return True

    async def _try(self, found: IncidentRow) -> bool:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SENDING_S / 2):  # wait_for of Python 3.11 loses a cancellation as it is sent
                return await loop.run_in_executor(self._threads, self._send, found)
        except Exception as error:
            # A notifier is code of others that talks to a service of others.
            log.warning("telling people of incident %s failed: %s", found.id, type(error).__name__)
            return False

    def _send(self, found: IncidentRow) -> bool:
        document = documents.document(found.document)
        document |= {"ranks": document["ranks"][:1], "stack_tree": []}  # the words need no more of ten thousand
        return self._notifier(message_of(codec.decode(Incident, document, lenient=True), self._url))
