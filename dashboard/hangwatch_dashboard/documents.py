"""Stored incidents and judgements, in the present format whichever version of hangwatch has stored them."""

from __future__ import annotations

import zlib
from typing import Any

from hangwatch.model import SCHEMA, Incident, Judgement
from hangwatch.report import versions
from hangwatch.wire import codec
from hangwatch_dashboard.store.text import pack, unpack


def document(packed: bytes) -> dict[str, Any]:
    """An incident as plain data."""
    return versions.upgraded(unpack(packed))


def text(packed: bytes) -> bytes:
    """An incident as JSON. One of the present format is not parsed for it: it may be large."""
    found = zlib.decompress(packed)
    return found if SCHEMA.encode() in found else zlib.decompress(pack(document(packed)))


def incident(packed: bytes) -> Incident:
    """An incident as a record."""
    return codec.decode(Incident, document(packed), lenient=True)


def judgement(packed: bytes) -> Judgement:
    """What was judged of a run."""
    return codec.decode(Judgement, versions.upgraded(unpack(packed)))


def summary(packed: bytes) -> dict[str, Any]:
    """IncidentSummary."""
    return upgraded_summary(unpack(packed))


def of_node(found: Incident) -> Incident:
    """An incident that a node has sent, which may run an older version of hangwatch."""
    if found.schema not in versions.READABLE or found.schema == SCHEMA:
        return found
    sent = codec.encode(found)
    del sent["verdict"]["hang"]
    return codec.decode(Incident, versions.upgraded(sent), lenient=True)


def job_summary(packed: bytes) -> dict[str, Any]:
    """JobSummary, as it was last stored."""
    found: dict[str, Any] = unpack(packed)
    last = found.get("incident")
    return found | {"incident": upgraded_summary(last)} if last else found


def upgraded_summary(found: dict[str, Any]) -> dict[str, Any]:
    """An IncidentSummary with both answers and its place in it."""
    found = {"place": "", "group": "", "judged_by": ""} | found
    return found if "hang" in found else found | versions.answers(found.get("certainty"), found.get("status"))
