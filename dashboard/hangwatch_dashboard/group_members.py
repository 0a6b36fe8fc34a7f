"""The members of a group, which travel as text."""

from __future__ import annotations

import functools

from hangwatch.model import GroupMembers
from hangwatch.wire import members


@functools.lru_cache(maxsize=64)
def members_of(group: GroupMembers) -> tuple[int, ...]:
    """The ranks of a group, in its order."""
    return members.parse(group.members)
