"""Errors of the system in NCCL's words: a limit of the rank's own host, or a way to another host that does not exist.

NCCL reports both as `ncclSystemError`, with the error's text behind the call that met it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """What a host or container gives no more of, in the words of an error, and how to have more of it."""

    text: re.Pattern[str]
    said: str
    fix: str
    cause: str = "exception-on-one-rank"


_LIMITS = (
    Limit(
        re.compile(r"Too many open files"),
        "its process may open no more files or sockets",
        "raise the limit of open files there (ulimit -n, --ulimit nofile=...), or open fewer: loader workers, datasets",
        "file-descriptors-exhausted",
    ),
    Limit(
        re.compile(r"pthread_create failed"),
        "its host or container lets it start no further thread",
        "raise the limit of threads there (ulimit -u, the pids limit of the container), or start fewer: loader workers,"
        " OMP_NUM_THREADS",
    ),
    Limit(
        re.compile(r"ibv_\w+ failed.*Cannot allocate memory"),
        "its network adapter may lock no more memory",
        "raise the limit of locked memory there (ulimit -l unlimited, --ulimit memlock=-1, LimitMEMLOCK of slurmd)",
    ),
    Limit(
        re.compile(r"Cannot allocate memory"),
        "its host or container has no memory left",
        "give it more memory, or use less: loader workers, prefetched batches, pinned memory",
    ),
)
LIMIT = re.compile("|".join(each.text.pattern for each in _LIMITS))
_ADDRESS = r"(?:to (?P<to>[\d.]+|[0-9a-fA-F:]+)<\d*N?>.*)?"
_NO_WAY = re.compile(_ADDRESS + r"(?:No route to host|Network is unreachable)")
_REFUSED = re.compile(_ADDRESS + r"Connection refused")
_QUEUE_PAIR = re.compile(r"ibv_modify_qp failed")
_DOCKER = "172.17."  # addresses of docker's own bridge, unless it is configured otherwise


def limit(text: str) -> Limit | None:
    """The limit that an error tells of; None where it is another one."""
    return next((each for each in _LIMITS if each.text.search(text)), None)


def way_out(text: str) -> str:
    """What to do where another host was not reached, by the error's own word; "" where that does not tell."""
    if found := _NO_WAY.search(text):
        bridge = f" ({found['to']} is one of docker's bridge)" if (found["to"] or "").startswith(_DOCKER) else ""
        return (
            f"let NCCL use an interface whose addresses all hosts can reach{bridge}: NCCL_SOCKET_IFNAME=eth0, or"
            " NCCL_SOCKET_IFNAME=^docker0,lo"
        )
    if found := _REFUSED.search(text):
        return (
            f"see whether the process at {found['to'] or 'that address'} still ran then (the logs of all ranks); if it"
            " did, look at the firewall and at NCCL_SOCKET_IFNAME"
        )
    if _QUEUE_PAIR.search(text):
        return (
            "look at the ports and routes of both ends (ibstat, show_gids); with RoCE set NCCL_IB_GID_INDEX alike on"
            " all hosts, and NCCL_IB_HCA to the adapters that reach each other"
        )
    return ""
