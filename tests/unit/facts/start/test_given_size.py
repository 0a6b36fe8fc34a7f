"""The world size that the program gives to init_process_group itself."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import Excerpt, Verdict
from hangwatch.stacks.frames import user_frame
from tests.unit.job import IN_STORE, judge, starting

WHERE = user_frame(IN_STORE)
BY_LAUNCHER: dict[str, Any] = {"environment": {"WORLD_SIZE": "1"}}


def judged(text: str, facts: dict[str, Any] = BY_LAUNCHER, size: int = 2) -> Verdict:
    """Rank 0 waits in init_process_group, at a line with this text; rank 1 never came."""
    assert WHERE is not None
    lines = ("    # world_size=9 once", *text.split("\n"))
    quoted = (Excerpt(WHERE.file, WHERE.line, WHERE.line - 1, lines),)
    return judge(starting(0, facts=facts), world_size=size, excerpts=quoted).verdict


@pytest.mark.parametrize(
    ("call", "size", "told"),
    [
        ('dist.init_process_group("gloo", world_size=2, rank=rank)', "2", "world_size=2, and"),
        ('dist.init_process_group(\n    "gloo",\n    world_size=2,\n)', "2", "world_size=2, and"),
        (
            "init_process_group(world_size=int(args.n), rank=0)",
            "int(args.n)",
            "world_size=int(args.n), which is 2, and",
        ),
    ],
)
def test_the_line_of_the_call_shows_it(call: str, size: str, told: str) -> None:
    verdict = judged(call)
    assert verdict.cause == "rendezvous-missing-ranks"
    assert any(f"is given {told} WORLD_SIZE is 1" in sentence for sentence in verdict.evidence)
    assert f"world_size=1, as many processes are started, in place of {size}, or leave" in verdict.fix
    assert verdict.fix.endswith("or start 2")


def test_without_a_launchers_size_there_is_none_to_fall_back_on() -> None:
    verdict = judged("dist.init_process_group('gloo', world_size=2)", {"environment": {}})
    assert "in place of 2; or start 2" in verdict.fix
    assert any(sentence.endswith("is given world_size=2") for sentence in verdict.evidence)


@pytest.mark.parametrize("line", ['dist.init_process_group("gloo")\nworld_size = 2', "join(world_size=2)"])
def test_elsewhere_it_is_none_of_that_call(line: str) -> None:
    verdict = judged(line, {"environment": {"WORLD_SIZE": "2"}})
    assert "start as many processes as WORLD_SIZE says" in verdict.fix
    assert "world_size=" not in " ".join(verdict.evidence)


def test_a_size_that_the_launcher_does_not_say_is_the_programs() -> None:
    verdict = judged("start(args)")
    assert "WORLD_SIZE is 1: the program itself gives init_process_group another world size, 2" in verdict.evidence
    assert (
        "give init_process_group world_size=1, as many processes are started, in place of 2; or start 2" in verdict.fix
    )
