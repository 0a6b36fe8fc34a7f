"""torch's desync report (TORCH_NCCL_DESYNC_DEBUG, the default before 2.1): which ranks were behind, by what each rank
had put into the store when its device started and finished a call. It numbers the ranks of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hangwatch import words
from hangwatch.model import Verdict

from .model import Logs

_NEVER = re.compile(r"ranks \[([\d, ]+)\] are the lagging ranks that caused this timeout")
_BEHIND = re.compile(r"\[([\d, ]+)\] finished collective #(\d+), but didn't join collective #(\d+)")


def take(line: str, logs: Logs) -> bool:
    """Keep what a line says. False for a line of no use."""
    if " collective" not in line:
        return False
    if never := _NEVER.search(line):
        said, ranks = "started no collective", never[1]
    elif behind := _BEHIND.search(line):
        said, ranks = f"finished collective {behind[2]} and did not start {behind[3]}", behind[1]
    else:
        return False
    logs.lagging.setdefault(said, set()).update(map(int, re.findall(r"\d+", ranks)))
    return True


def lagging(logs: Logs) -> set[int]:
    """The ranks that it names, where its numbers are those of the job: no line is of another group."""
    other = any(far.group != "0" and far.description != "default_pg" for far in logs.progress)
    return set() if other else {rank for ranks in logs.lagging.values() for rank in ranks}


def named(verdict: Verdict, logs: Logs) -> Verdict:
    """A verdict on ranks of which no other record is left, where the report tells how far they came."""
    behind = lagging(logs)
    blamed = {each.rank for each in verdict.culprits}
    if not behind or blamed != behind or verdict.cause != "undetermined":
        return verdict
    told = words.listed(f"{words.ranks(sorted(ranks))} {said}" for said, ranks in logs.lagging.items())
    who, wait = words.ranks(sorted(behind)), words.verb(len(verdict.victims), "waits", "wait")
    waiting = f"; {words.ranks(verdict.victims)} {wait} for that" if verdict.victims else ""
    return replace(
        verdict,
        summary=f"By torch's desync report {told}{waiting}.",
        fix=f"find out what {who} did after that: look at the stack or the last output of {who}",
        details=(),
    )


def evidence(logs: Logs) -> Iterator[str]:
    """Its sentences."""
    if lagging(logs):
        for said, ranks in logs.lagging.items():
            yield f"torch's desync report: {words.ranks(sorted(ranks))} {said}"
