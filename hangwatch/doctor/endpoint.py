"""The rendezvous that a launcher's command names, and whether this host can reach it."""

from __future__ import annotations

import socket
from collections.abc import Sequence

CONNECT_S = 3.0


def named(command: Sequence[str]) -> str:
    """HOST:PORT of `--rdzv-endpoint`, or of `--master-addr` and `--master-port`; "" where the command names none."""
    given = {name.replace("_", "-"): value for name, value in _options(command)}
    if place := given.get("--rdzv-endpoint"):
        return place if ":" in place else f"{place}:29400"
    if host := given.get("--master-addr"):
        return f"{host}:{given.get('--master-port', '29500')}"
    return ""


def ranks(command: Sequence[str]) -> int | None:
    """How many ranks a torchrun command asks for; None where it does not say so in plain numbers."""
    given = {name.replace("_", "-"): value for name, value in _options(command)}
    per_node, nodes = given.get("--nproc-per-node"), given.get("--nnodes", "1")
    return int(per_node) * int(nodes) if per_node and per_node.isdigit() and nodes.isdigit() else None


def _options(command: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for word, following in zip(command, [*command[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            pairs.append((name, value if equals else following))
    return pairs


def problem(place: str, timeout_s: float = CONNECT_S) -> str:
    """Why HOST:PORT cannot be reached from here, in words; "" where it answers."""
    host, _, port = place.rpartition(":")
    if not port.isdigit():
        return f"{place} is no HOST:PORT"
    return reach(host.strip("[]"), int(port), timeout_s)


def reach(host: str, port: int, timeout_s: float = CONNECT_S) -> str:
    """Connect, and say in words what became of it; "" where the port answers."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return ""
    except socket.gaierror as error:
        return f"the name {host} does not resolve ({error.strerror})"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s: a firewall drops the packets, or the host is dead"
    except ConnectionRefusedError:
        return "the connection is refused: no process listens there"
    except OSError as error:
        return (error.strerror or str(error)).lower()
