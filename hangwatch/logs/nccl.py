"""Lines of NCCL itself, written with NCCL_DEBUG=INFO (or WARN): set-up of communicators, networks, warnings."""

from __future__ import annotations

import re

from .model import Communicator, Logs

_LINE = re.compile(r"(\S+?):\d+:\d+ \[\d+\] (?:.*? )?NCCL (INFO|WARN) (.*)")
_SETUP = re.compile(
    r"comm 0x[0-9a-f]+ rank (\d+) n[Rr]anks (\d+).*?(?:commId (0x[0-9a-f]+))?\s+-\s+Init (START|COMPLETE)"
)
_NETWORK = re.compile(r"NET/(\w+) : Using (.+)|Bootstrap : Using (\S+)")
_INTERFACE = re.compile(r"\[\d+\]([\w.-]+(?::\d+/\w+)?)|^([\w.-]+):")
_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\] (?:\[\w+\] )?via (\S+)")
# Warnings that speak of a network or a device that fails. Others are of the start, and mostly harmless.
_FAULT = re.compile(
    r"Got completion .*(?:status|error)|NET/IB.*(?:error|fail|timeout|down|async event)"
    r"|[Ss]ocket.*(?:fail|timed out|clos|reset|refused|error)"
    r"|Call to \w+ failed|Cuda failure|Connection (?:reset|refused|timed out|closed)|timed out|unhandled"
    r"|Xid|NVLink|peer access"
)
MARKS = ("NCCL INFO", "NCCL WARN")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?=>)")


def take(line: str, logs: Logs) -> bool:
    """Keep what a line says. False for a line of no use."""
    if " NCCL " not in line:
        return False
    found = _LINE.search(line)
    if found is None:
        return False
    host, level, text = found.groups()
    if level == "WARN":
        return _warning(host, text, logs)
    if setup := _SETUP.search(text):
        return _set_up(host, setup, logs)
    if channel := _CHANNEL.search(text):
        logs.transports[channel[1]] = logs.transports.get(channel[1], 0) + 1
        return True
    if network := _NETWORK.search(text):
        return _interfaces(host, network, logs)
    return False


def _set_up(host: str, found: re.Match[str], logs: Logs) -> bool:
    rank, size, identifier, word = int(found[1]), int(found[2]), found[3] or "", found[4]
    known = logs.communicators.setdefault(f"{identifier}/{size}", Communicator(identifier, size))
    if word == "START":
        known.begun[rank] = host
    else:
        known.begun.setdefault(rank, host)
        known.complete.add(rank)
    return True


def _interfaces(host: str, found: re.Match[str], logs: Logs) -> bool:
    for pair in _INTERFACE.findall(found[2] or found[3] or ""):
        logs.networks.setdefault(host, set()).add(next(filter(None, pair)))
    return True


def _warning(host: str, text: str, logs: Logs) -> bool:
    if not _FAULT.search(text):
        return False
    said = f"{host}: {_NUMBERS.sub('N', text).strip()}"
    logs.warnings[said] = logs.warnings.get(said, 0) + 1
    return True
