"""Environment variables that the program names and that are not the same on all ranks, as where nodes are set up apart.

Only digests of the values are known. That some differ is as it should be: the rank's own number, devices and host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.case import Case, once
from hangwatch.ranks.sides import by_value

_OWN = re.compile(
    r"RANK|LOCAL_?ID|PROC_?ID|TASK_?ID|NODE|HOST|ADDR|PORT|DEVICE|GPU|SESSION|PID|TMP|TEMP|SCRATCH|SEED|INDEX|REPLICA"
    r"|SHARD|POD|WORKER|OUTPUT|LOG|^PWD$"
)
_MOST_SIDES = 4  # of ranks with one value; more are each rank's own


@dataclass(frozen=True)
class Unlike:
    """A variable, and the ranks by what they have of it, the fewest first; `unset` are those that have none."""

    name: str
    sides: tuple[tuple[int, ...], ...]
    unset: tuple[int, ...]

    @property
    def told(self) -> str:
        what = f"the environment variable {self.name}, which the program names,"
        some = [each for each in self.sides if each != self.unset]
        listed = words.listed([words.ranks(each) for each in self.sides])
        if self.unset and len(some) == 1:
            return f"{what} is not set on {words.ranks(self.unset)}"
        return f"{what} differs between {listed}"


@once
def unlike_variables(case: Case) -> tuple[Unlike, ...]:
    known = {view.rank: view.evidence.variables for view in case if view.evidence.variables is not None}
    names = sorted({name for variables in known.values() for name in variables if not _OWN.search(name.upper())})
    found = []
    for name in names:
        sides = by_value({rank: variables.get(name, "") for rank, variables in known.items()})
        if 1 < len(sides) <= _MOST_SIDES and (len(sides) < len(known) or len(known) == 2):
            ordered = sorted((tuple(ranks) for ranks in sides.values()), key=lambda ranks: (len(ranks), ranks))
            found.append(Unlike(name, tuple(ordered), tuple(sides.get("", ()))))
    return tuple(found)


def separating(case: Case, ranks: set[int]) -> list[Unlike]:
    """Those by which `ranks` differ from all others; all of them where `ranks` are all or none."""
    found = unlike_variables(case)
    if not ranks or ranks >= set(case.ranks):
        return list(found)
    return [each for each in found if all(ranks >= {*side} or ranks.isdisjoint(side) for side in each.sides)]
