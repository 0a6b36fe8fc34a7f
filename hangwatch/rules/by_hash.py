"""What is said of calls that differ where a hash decides about them: no rank is the odd one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import Path
from hangwatch.facts.calls.hash_order import by_hash
from hangwatch.facts.case import Case
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding

_FIX = (
    "let no hash decide what the ranks do together: go through sorted(...), or choose by an index; or set"
    " PYTHONHASHSEED to the same number for all ranks"
)


def with_its_hash(case: Case, found: Finding, cause: str, ways: Mapping[int, Path]) -> Finding:
    """`found`, of `cause`, with the line that decides by a hash about the calls to which each rank's lines lead."""
    hashed = by_hash(case, ways.values())
    if hashed is None:
        return found
    return replace(
        found,
        cause=cause,
        certainty=Certainty.LIKELY,  # the source gives hints, and never proof
        summary=f"{found.summary.removesuffix('.')}. `{hashed.text}` ({words.place(hashed.where)}) goes by hashes,"
        " which differ from process to process, but for numbers.",
        fix=_FIX,
        culprits=case.culprits(ways, hashed.where),
        victims=tuple(rank for rank in case.blocked if rank not in ways),
    )
