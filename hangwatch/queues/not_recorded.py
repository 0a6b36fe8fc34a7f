"""What the records do not hold of a call, so that calls which look alike in them need not be alike."""

from __future__ import annotations

from hangwatch.model import Alternative, Certainty

from .matching import kind_of
from .stuck import Stuck

_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})


def lacking(root: Stuck) -> str:
    """What ranks may have given otherwise, in words; "" where the records hold all that the calls must share."""
    if root.peers or root.call is None:
        return ""
    kind = kind_of(root.call)
    if kind in _ROOTED:
        return "which rank each of them names as its root (src or dst)"
    return "how many elements each rank sends to which (split sizes)" if kind == "all_to_all" else ""


def alternatives(root: Stuck) -> tuple[Alternative, ...]:
    """That the calls do not fit in what is not recorded."""
    lacks = lacking(root)
    if not lacks:
        return ()
    said = f"these records do not hold {lacks}: where ranks differ in it, the call does not complete either"
    return (Alternative("collective-mismatch", Certainty.UNDETERMINED, said),)
