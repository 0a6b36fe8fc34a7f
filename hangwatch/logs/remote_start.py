"""Nodes on which a launcher could start nothing: in the words of ssh, and of the launchers that use it.

mpirun (ORTE in Open MPI 4, PRRTE since 5), pdsh, which DeepSpeed uses, and loops over ssh start a process on each node.
What ssh says is no failure of the job by itself: a program may have asked it for something else, and gone on.
"""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from .going_on import Turns
from .model import Logs

MARKS = (
    "Host key verification failed",
    "Permission denied (publickey",
    "ssh: connect to host ",
    "ssh: Could not resolve hostname",
    "_exchange_identification: ",
    "ssh exited with exit code 255",
    "was not reachable via ssh",
    "unable to reliably start one or more daemons",
    "daemon has unexpectedly failed after launch",
)
# pdsh puts the node before its lines, and other programs how bad it is.
_BY = r"^(?:pdsh@\S+: )?(?:(?!(?i:error|warning|fatal|ssh|info|debug)\b)(?P<node>[\w.-]+): )?"
_OF_SSH = tuple(
    re.compile(each)
    for each in (
        _BY + r"Host key verification failed\.",
        _BY + r"(?:(?:(?!git@)\S+@)(?P<other>[\w.-]+): )?Permission denied \(publickey",
        _BY + r"ssh: connect to host (?P<other>\S+) port \d+: \S",
        _BY + r"ssh: Could not resolve hostname (?P<other>[^\s:]+)",
        _BY + r"(?:ssh|kex)_exchange_identification: (?:Connection|read)",
    )
)
_OF_LAUNCHER = (
    re.compile(r"^pdsh@\S+: (?P<node>[\w.-]+): ssh exited with exit code 255"),
    re.compile(r"host=(?P<node>\S+) was not reachable via ssh"),
    re.compile(r"^(?:ORTE|PRTE|PRRTE) was unable to reliably start one or more daemons"),
    re.compile(r"^An? \S+ daemon has unexpectedly failed after launch"),
)
_OF_ANOTHER = re.compile(
    r"Could not read from remote repository|^rsync(?: error)?:|^lost connection"
)  # git, rsync, scp
_DAEMON = re.compile(r"^\s*Remote daemon: \[.*\] on node (\S+)")
_BLOCK = 12  # lines of mpirun's block on a daemon, in one of which its node is told
_AT_END = 3  # lines that may follow where no launcher says so: behind what ssh said, the program did something else
_SHOWN = 3
_FIXES = (
    ("Host key", "let {who} be known (ssh-keyscan {nodes} >> ~/.ssh/known_hosts)"),
    ("Permission denied", "let this host's key in on {who} (ssh-copy-id), without a passphrase"),
    ("Could not resolve", "see that the name of {who} is right in the list of hosts, and known to this one"),
    ("ssh: connect", "see that sshd runs on {who}, at that port, and that no firewall is between"),
)
_OTHER_FIX = (
    "see that {who} can be reached by ssh without a question, has the launcher's own files at the same path, and"
    " reaches this host"
)


class Lines:
    """Takes the lines of one log, one after another."""

    def __init__(self) -> None:
        self._block = 0
        self._behind, self._others = Turns(), 0

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if self._block and (daemon := _DAEMON.match(line)):
            self._block = 0
            logs.not_started[line.strip()] = daemon[1]
            return True
        self._block = max(self._block - 1, 0)
        if not any(mark in line for mark in MARKS):
            return False
        return self._of_launcher(line, logs) or self._of_ssh(line, logs)

    def _of_launcher(self, line: str, logs: Logs) -> bool:
        found = next(filter(None, (each.search(line) for each in _OF_LAUNCHER)), None)
        if found is None:
            return False
        logs.launch_failed[line.strip()] = None
        if node := found.groupdict().get("node"):
            logs.not_started[line.strip()] = node
        else:
            self._block = _BLOCK
        return True

    def _of_ssh(self, line: str, logs: Logs) -> bool:
        found = next(filter(None, (each.match(line) for each in _OF_SSH)), None)
        if found is None:
            return False
        named = found.groupdict()
        logs.not_started[line.strip()] = named.get("other") or named["node"] or ""
        self._others = 0
        return True

    def goes_on(self, line: str, logs: Logs) -> None:
        """An ordinary line: behind it nothing had failed, unless a launcher says so and the program does not count."""
        if not logs.not_started or not line.strip(" -"):
            return
        self._others += 1
        another = _OF_ANOTHER.search(line) or self._others > _AT_END
        if self._behind.take(line) or (another and not logs.launch_failed):
            logs.not_started.clear()
            logs.launch_failed.clear()


def judged(logs: Logs) -> Judgement | None:
    """The verdict on a start that failed; None where ranks have begun, or nothing of it is told."""
    if logs.ranks or logs.processes or not (logs.not_started or logs.launch_failed):
        return None
    nodes = sorted({node for node in logs.not_started.values() if node})
    said = tuple(dict.fromkeys((*logs.not_started, *logs.launch_failed)))
    who = words.listed(nodes) or "the other nodes"
    started = f"on {who}" if nodes else "on a node, which no line names"
    return Judgement(
        Status.FAILED,
        Stage.START,
        Verdict(
            cause="node-not-started",
            certainty=Certainty.LIKELY if logs.launch_failed else Certainty.UNDETERMINED,
            summary=f"The launcher could start nothing {started}: {said[0].rstrip('.')}.",
            fix=f"{_fix(said).format(who=who, nodes=' '.join(nodes) or 'NODE')}; try it: ssh -o BatchMode=yes"
            f" {nodes[0] if nodes else 'NODE'} true",
            culprits=tuple(Culprit(None, host=node) for node in nodes),
            evidence=said[1 : _SHOWN + 1],
        ),
    )


def _fix(said: tuple[str, ...]) -> str:
    return next((fix for words_of_it, fix in _FIXES if any(words_of_it in each for each in said)), _OTHER_FIX)
