"""TCP connections of a process: its peers, and bytes that the other end has not acknowledged.

Source: /proc/PID/net/tcp{,6} (they follow the process's network namespace) and the inodes under /proc/PID/fd.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hangwatch.model import Socket
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.deadline import DeadlineError, within
from hangwatch_agent.shared.procfs import PROC, read_text, socket_inodes

STATES = {
    1: "established", 2: "syn-sent", 3: "syn-received", 4: "fin-wait-1", 5: "fin-wait-2", 6: "time-wait",
    7: "close", 8: "close-wait", 9: "last-ack", 10: "listen", 11: "closing", 12: "new-syn-received",
}  # fmt: skip


def sockets_of(pid: int, proc: Path = PROC, *, tables: Mapping[str, Socket] | None = None) -> tuple[Socket, ...]:
    """The TCP sockets that a process has open. Raises OSError.

    Args:
        pid: the process.
        proc: root of the proc file system.
        tables: what `table(pid)` gave for a process of the same network namespace, to read it only once.
    """
    known = table(pid, proc) if tables is None else tables
    return tuple(dict.fromkeys(known[inode] for inode in socket_inodes(pid, proc) if inode in known))


def table(pid: int, proc: Path = PROC) -> dict[str, Socket]:
    """All TCP sockets of the process's network namespace by inode, but those without one (time-wait).

    Raises OSError where not even the IPv4 table can be read; a kernel without IPv6 has no second one.
    """
    text = read_text(proc / str(pid) / "net" / "tcp")
    with contextlib.suppress(OSError):
        text += read_text(proc / str(pid) / "net" / "tcp6")
    return {inode: entry for inode, entry in _entries(text) if inode != "0"}


def network_namespace(pid: int, proc: Path = PROC) -> str:
    """A name for the process's network namespace, "" where it may not be read."""
    try:
        return str((proc / str(pid) / "ns" / "net").readlink())
    except OSError:
        return ""


def describe(pid: int, inode: str, proc: Path = PROC) -> str:
    """In words: "socket 10.0.0.1:4000 -> 10.0.0.2:29500", "unix socket /run/x", or "socket:[INODE]"."""
    try:
        if entry := table(pid, proc).get(inode):
            listens = entry.state == "listen"
            return f"socket {entry.local} " + ("(listening)" if listens else f"-> {entry.remote}")
        return _unix(pid, inode, proc)
    except OSError:
        return f"socket:[{inode}]"


def _unix(pid: int, inode: str, proc: Path) -> str:
    for line in read_text(proc / str(pid) / "net" / "unix").splitlines()[1:]:
        words = line.split(maxsplit=7)
        if len(words) > 6 and words[6] == inode:
            return f"unix socket {words[7]}" if len(words) > 7 else f"unix socket:[{inode}]"
    return f"socket:[{inode}]"


def listener_inodes(port: int, sockets: Mapping[str, Socket]) -> frozenset[str]:
    """The inodes of the sockets that listen on a port."""
    return frozenset(
        inode for inode, entry in sockets.items() if entry.state == "listen" and entry.local.endswith(f":{port}")
    )


@dataclass(frozen=True)
class Listener:
    """Whether a process listens on a port, and which: None for one that may not be inspected."""

    listening: bool
    pid: int | None = None


def listener(port: int, *, seen_from: int, proc: Path = PROC) -> Listener:
    """The process that listens on a TCP port in the network namespace of the process `seen_from`. Raises OSError.

    Processes of other users cannot be looked into without root: then `pid` is None although a process listens.
    """
    wanted = listener_inodes(port, table(seen_from, proc))
    if not wanted:
        return Listener(False)
    for pid in procfs.pids(proc):
        try:
            if wanted.intersection(socket_inodes(pid, proc)):
                return Listener(True, pid)
        except OSError:
            continue
    return Listener(True)


def resolve(host: str, timeout_s: float = 1.0) -> tuple[str, ...] | None:
    """The addresses of a host name, seen from this process; () for none, None where the resolver takes too long.

    getaddrinfo cannot be interrupted: a thread does it, and is left behind if it does not come back.
    """
    try:
        found = within(timeout_s, lambda: socket.getaddrinfo(host, None), "hangwatch-resolve")
    except DeadlineError:
        return None
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _entries(text: str) -> Iterator[tuple[str, Socket]]:
    for line in text.splitlines():
        words = line.split()
        try:
            if len(words) >= 10 and words[0].endswith(":"):
                yield words[9], _entry(words)
        except (ValueError, IndexError, struct.error):
            continue


def _entry(words: list[str]) -> Socket:
    transmit, receive = words[4].split(":")
    state = STATES.get(int(words[3], 16), words[3])
    listens = state == "listen"  # there the two queues count connections, not bytes
    return Socket(
        local=_address(words[1]),
        remote=_address(words[2]),
        state=state,
        unacknowledged=0 if listens else int(transmit, 16),
        unread=0 if listens else int(receive, 16),
        retransmits=int(words[6], 16),
    )


def _address(text: str) -> str:
    """ "0100007F:1F90" as "127.0.0.1:8080"; the words of an address stand in the machine's byte order."""
    address, port = text.split(":")
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    raw = struct.pack("<" + "I" * len(words) if sys.byteorder == "little" else ">" + "I" * len(words), *words)
    found = ipaddress.ip_address(raw)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    return f"[{found}]:{int(port, 16)}" if found.version == 6 else f"{found}:{int(port, 16)}"
