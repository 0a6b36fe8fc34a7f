"""The merged stacks as a file for speedscope: one sample per distinct stack, as heavy as it has ranks.

Format: https://www.speedscope.app/file-format-schema.json, a "sampled" profile without a unit.
"""

from __future__ import annotations

import json

from hangwatch.model import Frame, Incident
from hangwatch.report import words
from hangwatch.stacks import tree as stack_tree

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render(incident: Incident) -> str:
    """The incident's merged stacks as speedscope JSON; below each stack stand the ranks that are in it."""
    places: dict[Frame, int] = {}
    samples: list[list[int]] = []
    weights: list[int] = []
    for path, ranks in stack_tree.leaves(incident.stack_tree):
        who = Frame("", 0, words.ranks(ranks))
        samples.append([places.setdefault(frame, len(places)) for frame in (*path, who)])
        weights.append(len(ranks))
    profile = {
        "type": "sampled",
        "name": f"{incident.job.name or incident.job.id}: ranks per stack",
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    document = {
        "$schema": SCHEMA,
        "name": f"hangwatch {incident.id}",
        "exporter": "hangwatch",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(frame) for frame in places]},
        "profiles": [profile],
    }
    return json.dumps(document) + "\n"


def _frame(frame: Frame) -> dict[str, str | int]:
    result: dict[str, str | int] = {"name": frame.function}
    if frame.file:
        result["file"] = frame.file
    if frame.line:
        result["line"] = frame.line
    return result
