"""Groups of two backends, such as `cpu:gloo,cuda:nccl`, which torch makes where no backend is asked for.

Torch's number of such a group counts the calls of one backend. A call of the other one takes no number, and is told
only of a rank that is in it now, under the number that the first backend's next call will have.
"""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch.model import GroupHead

Inside = tuple[int, str]  # a rank, and the name of the group in which it is in a call
Heads = Mapping[int, GroupHead]  # of a group, by rank


def of_two_backends(head: GroupHead) -> bool:
    return "," in head.backend


def passed(inside: Mapping[Inside, Heads]) -> set[Inside]:
    """Those ranks whose call has a number that another member, in no such call, has counted: it may have made it too.

    Linear in the ranks.
    """
    groups = {id(heads): (name, heads) for (_, name), heads in inside.items()}
    most = {key: _most_outside(name, heads, inside) for key, (name, heads) in groups.items()}
    return {each for each, heads in inside.items() if most[id(heads)] >= heads[each[0]].issued}


def _most_outside(name: str, heads: Heads, inside: Mapping[Inside, Heads]) -> int:
    """What the members that are in no such call have counted, at most."""
    return max((head.issued for rank, head in heads.items() if (rank, name) not in inside), default=-1)
