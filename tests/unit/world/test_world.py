"""Whole worlds: the same from the same seed, sound without faults, and the truth as a person would tell it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.catalogue import BY_ID
from hangwatch.wire import codec
from hangwatch.world import Played, play
from hangwatch.world.faults import RECIPES, Injector
from hangwatch.world.machine import Machine
from hangwatch.world.oracle import finished
from hangwatch.world.program import Design, design, programs
from hangwatch.world.tell import tell

ROOT = Path(__file__).parents[3]
SEEDS = st.integers(0, 1 << 40)


@cache
def first() -> tuple[Played, ...]:
    """The first 300 worlds."""
    return tuple(play(seed) for seed in range(300))


def digest(seeds: range) -> str:
    """Of all evidence and truth of these seeds."""
    text = json.dumps([[codec.encode((played := play(seed)).snapshot), repr(played.truth)] for seed in seeds])
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_seed_gives_the_same_world_in_every_process() -> None:
    code = "from tests.unit.world.test_world import digest; print(digest(range(40)))"
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == digest(range(40))


@pytest.mark.untraced
@settings(max_examples=60, derandomize=True)
@given(SEEDS)
def test_a_program_without_faults_ends(seed: int) -> None:
    dice = random.Random(seed)
    plan = design(dice)
    machine = Machine(programs(plan), plan.comms(), hosts=plan.hosts, dice=dice, slow_links=plan.slow_links).run()
    while machine.finish():
        machine.run()
    assert finished(machine)


@pytest.mark.untraced
@settings(max_examples=100, derandomize=True)
@given(SEEDS)
def test_a_job_that_cannot_go_on_has_ended_or_has_a_fault(seed: int) -> None:
    truth = play(seed).truth
    assert truth.alive or truth.finished or truth.fired


@pytest.mark.untraced
def test_the_causes_that_faults_accept_are_those_of_the_catalogue() -> None:
    named = {cause for played in first() for fault in played.faults for cause in fault.causes}
    assert named <= set(BY_ID)


def test_every_fault_takes_effect_in_some_world() -> None:
    kinds = {fault.kind for played in first() for fault in played.truth.fired}
    assert len(kinds) > len(RECIPES)
    assert {"skipped by most", "helper thread", "uploader thread", "monitored barrier", "bucket order"} <= kinds


def test_worlds_have_all_kinds_of_programs() -> None:
    plans = [played.plan for played in first()]
    assert {plan.backend for plan in plans} == {"gloo", "nccl", "cpu:gloo,cuda:nccl"}
    assert {plan.loader for plan in plans} == {"iterated", "counted", "none"}
    flags = [entry.name for entry in fields(Design) if entry.type == "bool"]
    assert all({getattr(plan, flag) for plan in plans} == {True, False} for flag in flags)
    assert max(plan.size for plan in plans) == 64


def test_a_job_is_told_with_its_truth_and_its_verdict() -> None:
    text = tell(play(3))
    assert text.startswith("seed 3: ")
    assert "truth: the job" in text
    assert "verdict: " in text


def test_every_recipe_is_a_fault_of_the_injector() -> None:
    assert all(hasattr(Injector, recipe.__name__) for recipe, _ in RECIPES)
