"""From the id of a cause alone its rule, its words, its page and its script are found."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import hangwatch
from hangwatch.catalogue import CATALOGUE, Cause
from hangwatch.gallery import CASES
from hangwatch.judge import ORDER


class NoScript(NamedTuple):
    """A cause without a script in the gallery: why, and which tests show its evidence and what looks like it."""

    why: str
    evidence: tuple[str, str]  # file below tests/, and the start of the test's name
    look_alike: tuple[str, str]


ROOT = Path(hangwatch.__file__).parent
CAUSES = [cause for cause in CATALOGUE if cause.stage is not None]
WARNINGS = [cause for cause in CATALOGUE if cause.stage is None and cause.id != "undetermined"]
EMITTING = ("rules", "health")  # the rooms whose modules make findings and warnings
DEVICE, HEALTH = "unit/rules/device", "unit/health"
NO_SCRIPT = {  # why nothing here can make them happen; the test of the evidence, and that of what looks like it
    "duplicate-gpu": NoScript(
        "NVML tells which GPU a rank is bound to",
        (f"{DEVICE}/test_duplicate_gpu.py", "test_two_ranks_on_one_gpu"),
        (f"{DEVICE}/test_duplicate_gpu.py", "test_ranks_that_share_a_gpu_on_purpose"),
    ),
    "gpu-fault": NoScript(
        "a GPU that is lost, by NVML and the kernel's log",
        (f"{DEVICE}/test_gpu_fault.py", "test_a_gpu_that_is_lost"),
        (f"{DEVICE}/test_device_stall.py", "test_the_mistake_of_a_program_is_no_fault_of_its_gpu"),
    ),
    "interconnect-stall": NoScript(
        "links between GPUs, by NVML's figures",
        (f"{DEVICE}/test_interconnect_stall.py", "test_gpus_that_do_not_reach_each_other"),
        (f"{DEVICE}/test_interconnect_stall.py", "test_a_first_collective_for_which_the_gpus_do_not_all_wait"),
    ),
    "node-lost": NoScript(
        "a second machine that goes with its watchdog (tests/integration/dashboard/test_hosts.py has namespaces)",
        ("unit/rules/step/test_node_lost.py", "test_all_ranks_wait_for_those_of_a_silent_node"),
        ("unit/rules/step/test_node_lost.py", "test_a_watchdog_that_went_long_before_explains_nothing"),
    ),
    "gpu-memory-imbalance": NoScript(
        "NVML tells which process holds memory on which GPU",
        (f"{HEALTH}/test_gpu_memory_imbalance.py", "test_a_process_with_memory_on_anothers_gpu"),
        (f"{HEALTH}/test_gpu_memory_imbalance.py", "test_memory_where_it_belongs"),
    ),
    "gpu-leftover-process": NoScript(
        "NVML tells which process holds memory on which GPU",
        (f"{HEALTH}/test_gpu_leftover_process.py", "test_a_rank_of_another_run_whose_launcher_is_gone"),
        (f"{HEALTH}/test_gpu_leftover_process.py", "test_what_may_be_there_on_purpose_is_not_told"),
    ),
    "slow-link": NoScript(
        "links between machines (tests/integration/dashboard/test_hosts.py has namespaces)",
        (f"{HEALTH}/test_slow_link.py", "test_a_link_that_is_much_slower_than_the_others"),
        (f"{HEALTH}/test_slow_link.py", "test_links_between_racks_may_be_slower"),
    ),
}
each_cause = pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
each_warning = pytest.mark.parametrize("cause", WARNINGS, ids=lambda cause: cause.id)
each_of_the_catalogue = pytest.mark.parametrize("cause", CATALOGUE, ids=lambda cause: cause.id)


@cache
def emitted(path: Path) -> frozenset[str]:
    """The ids of causes that a module of the rules names, and not only to compare them with what it was asked for."""
    tree = ast.parse(path.read_text())
    known = {cause.id for cause in CATALOGUE}
    compared = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    named = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in compared)
    return frozenset(each for each in named if isinstance(each, str) and each in known)


@each_cause
def test_its_rule_stands_in_the_file_of_its_name(cause: Cause) -> None:
    asked = {rule.__module__ for rule in ORDER}
    assert any(f"{module}.".startswith(f"{cause.rules}.") for module in asked)


@each_cause
def test_its_rule_has_a_test_file_of_its_name(cause: Cause) -> None:
    name = f"test_{cause.id.replace('-', '_')}.py"
    assert (Path(__file__).parent / "rules" / str(cause.stage) / name).is_file()


@each_warning
def test_a_warning_has_a_test_file_of_its_name(cause: Cause) -> None:
    assert (Path(__file__).parent / "health" / f"test_{cause.id.replace('-', '_')}.py").is_file()


@each_of_the_catalogue
def test_one_module_of_its_name_emits_it_and_no_other(cause: Cause) -> None:
    own = ROOT.parent / cause.rules.replace(".", "/")
    files = [path for room in EMITTING for path in (ROOT / room).rglob("*.py") if cause.id in emitted(path)]
    assert files
    assert [path for path in files if path != own.with_suffix(".py") and own not in path.parents] == []
    assert not (own.is_dir() and own.with_suffix(".py").exists())


def test_no_finding_or_warning_is_made_outside_of_these_modules() -> None:
    judging = [path for room in ("facts", "judge", "report") for path in (ROOT / room).rglob("*.py")]
    assert [path for path in judging if {"Finding", "HealthWarning"} & called(path)] == []
    assert "Finding" in called(ROOT / "rules" / "undetermined" / "__init__.py")


def called(path: Path) -> set[str]:
    """The names that a module calls, without what stands before their last dot."""
    functions = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in functions}


@each_of_the_catalogue
def test_its_page_has_a_section(cause: Cause) -> None:
    text = (ROOT.parent / "docs" / "causes.md").read_text()
    assert re.search(rf"^#+ .*{re.escape(cause.id)}", text, re.MULTILINE)


@pytest.mark.parametrize("cause", [*CAUSES, *WARNINGS], ids=lambda cause: cause.id)
def test_its_script_is_in_the_gallery(cause: Cause) -> None:
    shown = any(case.cause == cause.id for case in CASES)
    assert shown or cause.id in NO_SCRIPT


@pytest.mark.parametrize("name", NO_SCRIPT)
def test_what_has_no_script_has_a_case_of_its_evidence_and_a_look_alike(name: str) -> None:
    entry = NO_SCRIPT[name]
    assert entry.why
    assert not any(case.cause == name for case in CASES), "it has a script: it needs no reason"
    for file, test in (entry.evidence, entry.look_alike):
        text = (ROOT.parent / "tests" / file).read_text()
        found = [part for part in text.split("\ndef ") if part.startswith(test)]
        assert found, f"{file} has no {test}"
    file, test = entry.evidence
    whole = (ROOT.parent / "tests" / file).read_text()
    assert f'"{name}"' in next(part for part in whole.split("\ndef ") if part.startswith(test))
