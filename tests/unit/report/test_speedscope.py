"""The merged stacks for speedscope."""

from __future__ import annotations

import json
from dataclasses import replace

from hangwatch.report import speedscope
from tests import examples


def test_each_distinct_stack_is_a_sample_as_heavy_as_it_has_ranks() -> None:
    document = json.loads(speedscope.render(examples.uneven_steps(world_size=8)))
    frames = document["shared"]["frames"]
    (profile,) = document["profiles"]
    assert profile["weights"] == [7, 1]
    assert profile["endValue"] == 8
    said = [[frames[index]["name"] for index in sample] for sample in profile["samples"]]
    assert said[0][:3] == ["<module>", "main", "train"]
    assert said[0][-1] == "ranks 0-2 and 4-7"
    assert said[1][-2:] == ["barrier", "rank 3"]
    assert frames[0] == {"name": "<module>", "file": "/home/mia/vision/train.py", "line": 96}


def test_an_incident_without_stacks_is_an_empty_profile() -> None:
    document = json.loads(speedscope.render(replace(examples.uneven_steps(), stack_tree=())))
    assert document["profiles"][0]["samples"] == []
