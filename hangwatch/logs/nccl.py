"""Lines of NCCL itself, written with NCCL_DEBUG=INFO (or WARN): set-up of communicators, networks, warnings."""

from __future__ import annotations

import re

from . import peers
from .kernel import pci_address
from .model import Communicator, Fault, Logs, Warned
from .system_errors import LIMIT

_LINE = re.compile(r"([\w.-]+):(\d+):\d+ \[\d+\] (?:.*? )?NCCL (INFO|WARN) (.*)")
_SETUP = re.compile(r"comm 0x[0-9a-f]+ rank (\d+) n[Rr]anks (\d+)(.*?)\s*-\s+Init (START|COMPLETE)")
_WENT_ON = re.compile(r"- (?:Init|Destroy) COMPLETE")  # of a process that warned before
_BUS = re.compile(r"busId ([0-9a-f]+)")
_IDENTIFIER = re.compile(r"commId (0x[0-9a-f]+)")
_SPLIT = re.compile(r"(?:splitCount|childCount) (\d+) color (-?\d+)")  # instead, since 2.22
_NETWORK = re.compile(r"NET/(\w+) : Using (.+)|Bootstrap ?: Using (\S+)")
_INTERFACE = re.compile(r"\[\d+\]([\w.-]+(?::\d+/\w+)?)|^([\w.-]+):")
_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\] (?:\[\w+\] )?via (\S+)")
# Warnings that speak of a network or a device that fails. Others are of the start, and mostly harmless.
_FAULTS = {
    Fault.DUPLICATE: re.compile(r"Duplicate GPU detected : rank (\d+) and rank (\d+)"),
    Fault.CUDA: re.compile(r"C(?:uda|UDA) (?:failure|error)|unhandled cuda|Xid|uncorrectable"),
    Fault.MEMORY: re.compile(r"/dev/shm|shared memory segment|posix_fallocate|No space left on device"),
    Fault.LIMIT: LIMIT,
    Fault.UNLIKE: re.compile(r"Message truncated : received \d+ bytes instead of \d+|Mismatched NCCL version"),
    Fault.PEER: re.compile(r"Connection (?:closed|reset)|closed by remote peer|reset by peer|remote process exited"),
    Fault.NETWORK: re.compile(
        r"Got completion .*(?:status|error)|NET/(?:IB|OFI)\b.*(?:error|fail|timeout|down|async event)"
        r"|[Ss]ocket.*(?:fail|timed out|clos|refused|error)"
        r"|Call to \w+ failed|Connection (?:refused|timed out)|No route to host|Network is unreachable"
        r"|timed out|unhandled|NVLink|peer access"
    ),
}
# NCCL leaves such a device out, or goes on with one that has changed so.
_HARMLESS = re.compile(
    r"Call to ibv_open_device failed"
    r"|async event : (?:GID table change|LID change|P_Key change|SM change|client re-?registration|port active)",
    re.IGNORECASE,
)
_NO_INTERFACE = re.compile(r"no (?:socket )?interface found")
_SETTING = re.compile(r"NCCL_SOCKET_IFNAME set (?:by environment )?to (\S+)")
_USING = re.compile(r"^Using network (\S+)")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_EVENT = re.compile(r"NET/IB\b.*async (?:event\b.*error|fatal)")  # as information in some versions
_ACTIVE = re.compile(r"async event : port active", re.IGNORECASE)
_UNNAMED = ("", 0)
MARKS = ("NCCL INFO", "NCCL WARN")
_OWN = re.compile(r"\[rank(\d+)\]:")
_GIDS = re.compile(r" (?:localGid|remoteGids?) ?\S*")  # long, and of no use to a reader beside the adapter's name
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?=>)")


def take(line: str, logs: Logs, rank: int | None = None) -> bool:
    """Keep what a line says; `rank` is that of the file, where its name tells. False for a line of no use."""
    if " NCCL " not in line:
        return False
    found = _LINE.search(line)
    if found is None:
        return False
    host, pid, level, text = found.groups()
    if level == "WARN" or _EVENT.search(text):
        return _warning((host, int(pid)), text, logs, rank)
    if _WENT_ON.search(text):
        for known in logs.warnings.values():
            known.pending.discard((host, int(pid)))
    if _ACTIVE.search(text):
        _active_again(host, logs)
    if setup := _SETUP.search(text):
        return _set_up((host, int(pid)), setup, logs)
    if channel := _CHANNEL.search(text):
        logs.transports[channel[1]] = logs.transports.get(channel[1], 0) + 1
        return True
    if network := _NETWORK.search(text):
        peers.note(host, text, logs)
        return _interfaces(host, network, logs)
    return _about((host, int(pid)), text, logs)


def _active_again(host: str, logs: Logs) -> None:
    """A port of the host that was lost has come back."""
    for text, known in logs.warnings.items():
        if known.host == host and "async event" in text:
            known.pending.clear()


def _about(process: tuple[str, int], text: str, logs: Logs) -> bool:
    """What a process uses, which tells of a fault where there is one, and of nothing else."""
    if network := _USING.search(text):
        logs.used_networks[process] = network[1]
    elif version := _VERSION.search(text):
        logs.versions[process] = version[1]
    elif setting := _SETTING.search(text):
        logs.interface_names[process] = setting[1]
    return False


def _set_up(process: tuple[str, int], found: re.Match[str], logs: Logs) -> bool:
    rank, size, word = int(found[1]), int(found[2]), found[4]
    identifier = _named(found[3])
    logs.processes[process] = max(logs.processes.get(process, (0, 0)), (size, rank))
    if bus := _BUS.search(found[3]):
        logs.gpus[process] = pci_address(bus[1])
    known = logs.communicators.setdefault(f"{identifier}/{size}", Communicator(identifier, size))
    known.processes[rank] = process
    if word == "START":
        known.begun[rank] = process[0]
    else:
        known.begun.setdefault(rank, process[0])
        known.complete.add(rank)
    return True


def _named(said: str) -> str:
    """What tells a communicator from others: its id, or the count and the color of the split that made it."""
    identifier, split = _IDENTIFIER.search(said), _SPLIT.search(said)
    if split:
        return f"of split {split[1]} (color {split[2]})"
    return identifier[1] if identifier else ""


def _interfaces(host: str, found: re.Match[str], logs: Logs) -> bool:
    for pair in _INTERFACE.findall(found[2] or found[3] or ""):
        logs.networks.setdefault(host, set()).add(next(filter(None, pair)))
    return True


def _warning(process: tuple[str, int], text: str, logs: Logs, rank: int | None) -> bool:
    if _NO_INTERFACE.search(text):
        logs.no_interface.processes[process] = None
        logs.no_interface.ranks.update(() if rank is None else (rank,))
        return True
    known = _kept(process, text, logs, rank)
    if known is not None:
        known.processes[process] = None
    return known is not None


def _kept(process: tuple[str, int], text: str, logs: Logs, rank: int | None) -> Warned | None:
    fault, found = next(
        ((fault, found) for fault, each in _FAULTS.items() if (found := each.search(text))), (None, None)
    )
    if fault is None or found is None:
        return None
    host = process[0]
    said = _GIDS.sub("", f"{host}: {text}" if host else text)
    known = logs.warnings.setdefault(_NUMBERS.sub("N", said).strip(), Warned(fault, host=host))
    known.count += 1
    if peer := peers.of(text):
        known.peers[peer] = None
    if not _HARMLESS.search(text):
        known.pending.add(process)
    if fault is Fault.DUPLICATE:
        known.ranks.update(map(int, found.groups()))
    elif rank is not None:
        known.ranks.add(rank)
    return known


class LastError:
    """Takes the lines of a log: behind `Last error:`, torch's exception repeats the last warning that NCCL kept."""

    def __init__(self) -> None:
        self._due: set[str] = set()  # prefixes of the ranks whose last error comes next: ranks write into one file

    def take(self, line: str, logs: Logs, rank: int | None) -> bool:
        """Keep what a line says. False for a line of no use."""
        prefix = _OWN.match(line)
        whose = prefix[0] if prefix else ""
        due = whose in self._due
        self._due.discard(whose)
        if line.rstrip().endswith("Last error:"):
            self._due.add(whose)
        if not due:
            return False
        said = line[prefix.end() :].strip() if prefix else line.strip()
        rank = int(prefix[1]) if prefix else rank
        if rank is not None and _NO_INTERFACE.search(said):
            logs.no_interface.ranks.add(rank)
            return True
        return _kept(_UNNAMED, said, logs, rank) is not None
