"""At which hosts the warnings of NCCL point: they tell a peer's address, which NCCL's first lines there have told."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hangwatch import words

from .model import Logs

_ADDRESS = re.compile(r"\w:((?:\d{1,3}\.){3}\d{1,3}|\[?[0-9a-f:]{4,}\]?)<\d+>")
_PEER = re.compile(r"\bpeer (\S+?)<\d+>")


def note(host: str, text: str, logs: Logs) -> None:
    """Keep the addresses that a host uses, as in `Bootstrap: Using eth0:10.3.3.5<0>`."""
    for address in _ADDRESS.findall(text):
        logs.addresses.setdefault(address, set()).add(host)


def of(text: str) -> str:
    """The peer that a warning names, by address or name; "" where it names none."""
    found = _PEER.search(text)
    return found[1] if found else ""


def told(logs: Logs) -> Iterator[str]:
    """ranks 8 and 15 lost their connection to 10.3.3.5, which is gpu-305: a sentence for each host."""
    found: dict[tuple[str, str], None] = {}
    for known in logs.warnings.values():
        for peer in known.peers:
            if known.pending and (host := _host(peer, logs)):
                found[peer, host] = None
    for peer, host in found:
        own = logs.ranks_on(host)
        whose = f" ({words.ranks(own)})" if own else ""
        address = f", at {peer}" if peer != host else ""
        yield f"the peer in these warnings is {host}{whose}{address}"


def _host(peer: str, logs: Logs) -> str:
    """The host of that address, where it is that of one only, or the peer's name where it is one."""
    known = logs.addresses.get(peer, set())
    if len(known) == 1:
        return next(iter(known))
    return peer if not known and logs.ranks_on(peer) else ""
