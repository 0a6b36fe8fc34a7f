"""What the kernel counts for each TCP connection: bytes that have arrived at both ends, time spent sending, repeats.

Source: NETLINK_SOCK_DIAG (sock_diag(7)) with INET_DIAG_INFO, whose `struct tcp_info` stands in linux/tcp.h. The kernel
only ever appends to it. Any user may ask, of the network namespace of this process. Linux 4.10 or newer.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _ERROR, _DONE = 20, 2, 3  # types of a netlink message
_REQUEST_AND_DUMP = 0x301
_ESTABLISHED = 1
_INFO = 2  # INET_DIAG_INFO
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ASK = struct.Struct("=BBBBI48x")  # family, protocol, extensions, padding, states; any address
_MESSAGE = struct.Struct("=BBBB2s2s16s16s12xIIIII")  # inet_diag_msg: family ... ports, addresses ... inode
_ATTRIBUTE = struct.Struct("=HH")
_BYTES_ACKED, _DATA_SEGMENTS, _BUSY, _SENT_AGAIN = 120, 156, 168, 100  # offsets in tcp_info
_LEAST_INFO = 192  # bytes of a tcp_info that has them all
_ANSWER_S = 2.0  # for a part of the answer: the kernel gives it at once
_ROOM = 1 << 18  # bytes for one part of the answer: larger than the kernel makes them


@dataclass(frozen=True)
class Counters:
    """One established connection. Times in seconds, since it was made; addresses without the ports."""

    local: str
    remote: str
    acknowledged: int  # bytes that the other end has
    busy_s: float  # with data that the other end does not have yet
    no_room_s: float  # of these, because the other end had no room for more
    segments: int  # with data
    sent_again: int
    received: int = 0  # bytes from the other end


def tcp_counters() -> dict[str, Counters]:
    """The counters of all established connections of this network namespace, by inode. Raises OSError."""
    found: dict[str, Counters] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        found |= _of_family(family)
    return found


def _of_family(family: int) -> dict[str, Counters]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_S)
        ask = _ASK.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, 1 << _ESTABLISHED)
        kernel.sendto(_HEADER.pack(_HEADER.size + len(ask), _BY_FAMILY, _REQUEST_AND_DUMP, 1, 0) + ask, (0, 0))
        return dict(_answers(kernel))


def _answers(kernel: socket.socket) -> Iterator[tuple[str, Counters]]:
    while True:
        part = kernel.recv(_ROOM)
        for kind, body in _messages(part):
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = -struct.unpack_from("=i", body)[0]
                raise OSError(number, f"the kernel tells nothing of its TCP connections: {os.strerror(number)}")
            if (entry := _counters(body)) is not None:
                yield entry


def _messages(part: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(part):
        length, kind, *_ = _HEADER.unpack_from(part, at)
        yield kind, part[at + _HEADER.size : at + length]
        at += max(-(-length // 4) * 4, _HEADER.size)


def _counters(body: bytes) -> tuple[str, Counters] | None:
    if len(body) < _MESSAGE.size:
        return None
    family, *_, local, remote, _expires, _unread, _unsent, _user, inode = _MESSAGE.unpack_from(body)
    info = next((value for kind, value in _attributes(body[_MESSAGE.size :]) if kind == _INFO), b"")
    if len(info) < _LEAST_INFO or not inode:
        return None
    acknowledged, received = struct.unpack_from("=QQ", info, _BYTES_ACKED)
    (segments,), (again,) = (struct.unpack_from("=I", info, at) for at in (_DATA_SEGMENTS, _SENT_AGAIN))
    busy, no_room = struct.unpack_from("=QQ", info, _BUSY)
    ends = _address(family, local), _address(family, remote)
    return str(inode), Counters(*ends, acknowledged, busy / 1e6, no_room / 1e6, segments, again, received)


def _attributes(rest: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(rest):
        length, kind = _ATTRIBUTE.unpack_from(rest, at)
        yield kind, rest[at + _ATTRIBUTE.size : at + length]
        at += max(-(-length // 4) * 4, _ATTRIBUTE.size)


def _address(family: int, raw: bytes) -> str:
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(raw[:4]))
    found = ipaddress.IPv6Address(raw)
    return str(found.ipv4_mapped or found)
