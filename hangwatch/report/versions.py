"""Incident documents of earlier formats, brought to the present one.

Format 1 had one certainty for two questions, and its "proven" spoke for the hang: no rank could ever move again. What
it proved of the cause is unknown, so the cause becomes likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hangwatch.model import SCHEMA, Certainty, Status

READABLE = ("hangwatch.incident/1", SCHEMA)
_CALLED_HUNG = (Status.HUNG, Status.LINGERING, Status.RECOVERED)  # what has recovered was called hung before


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """An incident, or a judgement, in the present format. Documents that are no such thing are left as they are."""
    result = dict(document)
    if result.get("schema", SCHEMA) in READABLE and "schema" in result:
        result["schema"] = SCHEMA
    verdict = result.get("verdict")
    if isinstance(verdict, Mapping) and "hang" not in verdict:
        result["verdict"] = _verdict(verdict, result.get("status"))
    return result


def _verdict(verdict: Mapping[str, Any], status: object) -> dict[str, Any]:
    return {**verdict, **answers(verdict.get("certainty"), status), "argument": []}


def answers(certainty: object, status: object) -> dict[str, Any]:
    """The two answers, `hang` and `certainty`, that the one certainty of format 1 stands for."""
    proven = certainty == Certainty.PROVEN
    hang = Certainty.PROVEN if proven else Certainty.LIKELY
    return {
        "hang": str(hang) if status in _CALLED_HUNG else None,
        "certainty": str(Certainty.LIKELY) if proven else certainty,
    }
