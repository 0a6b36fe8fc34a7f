"""JSON Schema of the records that travel, from the same dataclasses that check them."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from hangwatch.model import Incident, NodeBatch, NodeCapture, NodeIncident, NodeReply
from hangwatch_dashboard.bodies import strict_adapter

KINDS: tuple[type, ...] = (Incident, NodeBatch, NodeCapture, NodeIncident, NodeReply)


def record_schemas(reference: str) -> dict[str, Any]:
    """Schemas by name; `reference` is how one refers to another, with "{model}" for its name."""
    inputs: list[Any] = [(kind, "validation", strict_adapter(kind)) for kind in KINDS]
    _, document = TypeAdapter.json_schemas(inputs, ref_template=reference)
    found: dict[str, Any] = document["$defs"]
    return found
