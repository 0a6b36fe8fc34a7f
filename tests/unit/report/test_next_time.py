"""What to check first next time: each class where its facts are there, nothing where they are not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

from hangwatch import doctor
from hangwatch.catalogue import BY_ID, CATALOGUE
from hangwatch.doctor import families
from hangwatch.doctor.loader import checks as loader_checks
from hangwatch.health import FORECASTS
from hangwatch.model import (
    CaptureNote,
    Certainty,
    ExceptionFacts,
    Frame,
    GpuFacts,
    HealthWarning,
    Incident,
    LockFile,
    NextCheck,
    NodeFacts,
    ProcessEvidence,
    ProcessFacts,
)
from hangwatch.report import markdown, next_time, terminal
from hangwatch.settings import Settings
from tests import examples

ENDS = "training is over: the doctor runs no code behind init_process_group, and a program ends only there"
OWN_CALLS = "only the training itself makes these calls; while it runs, hangwatch compares them and warns"
OWN_CODE = "code of the program, which no check runs"
NO_CHECK = {  # causes of a hang that nothing would have shown before, and why
    "stale-file-lock": "which lock files a program will ask for is not known before it does",
    "early-exit": OWN_CALLS,
    "skipped-collective": OWN_CALLS,
    "rank-local-decision": "the value that decides is known only in the step that needs it",
    "rank-zero-only-collective": OWN_CALLS,
    "group-order-cycle": OWN_CALLS,
    "concurrent-collectives": OWN_CALLS,
    "point-to-point-deadlock": OWN_CALLS,
    "rank-frozen": "a process is stopped from outside, or by storage that answered until then",
    "slow-checkpoint": "how long a checkpoint takes shows only where one is written",
    "compile-skew": "how long a rank compiles shows only where it does",
    "signal-handler-deadlock": OWN_CODE,
    "gil-held": OWN_CODE,
    "user-code-blocked": OWN_CODE,
    "exit-non-daemon-thread": ENDS,
    "exit-child-process": ENDS,
    "exit-queue-feeder": ENDS,
    "exit-atexit-handler": ENDS,
    "exit-destructor": ENDS,
    "exit-orphan-holds-pipe": ENDS,
    "exit-destroy-asymmetric": ENDS,
    "exit-launcher-order": ENDS,
    "output-pipe-full": "a pipe fills only when as much is written as training writes",
}


def incident(cause: str, **changes: Any) -> Incident:
    """A hang of four ranks with loaders on two hosts, and this cause."""
    known = replace(examples.uneven_steps(), warnings=(), capture=(), divergences=())
    verdict = replace(known.verdict, cause=cause)
    return replace(known, verdict=verdict, **changes)


def without_loaders(known: Incident) -> Incident:
    return replace(known, ranks=tuple(replace(rank, loader=()) for rank in known.ranks))


def on_one_host(known: Incident) -> Incident:
    return replace(known, ranks=tuple(replace(rank, host="node-a") for rank in known.ranks))


def named(found: Iterable[NextCheck]) -> list[str]:
    return [each.check for each in found]


GPU = NodeFacts("node-a", gpus=(GpuFacts(0, "GPU-0", "H200"),))
KILLED = NodeFacts("node-a", oom_kills=1)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("launch-mismatch", ["ranks"]),
        ("rendezvous-missing-ranks", ["ranks"]),
        ("rendezvous-unreachable-master", ["master"]),
        ("rendezvous-port-conflict", ["master"]),
        ("rendezvous-duplicate-rank", ["ranks"]),
        ("node-not-started", ["launch"]),
        ("new-group-mismatch", ["plans-differ"]),
        ("uneven-steps", ["uneven-forecast", "loader lengths"]),
        ("node-lost", ["links", "network"]),
        ("network-partition", ["links", "network"]),
        ("interconnect-stall", ["links", "network"]),
        ("duplicate-gpu", ["gpus"]),
        ("loader-worker-blocked", ["loader stalls"]),
        ("loader-fork-deadlock", ["loader spawn"]),
        ("loader-worker-died", ["loader memory"]),
        ("file-descriptors-exhausted", ["system", "loader open files"]),
        ("shared-memory-exhausted", ["system"]),
        ("rank-zero-only-collective", []),  # nothing could have been known before
        ("exit-non-daemon-thread", []),
        ("", []),
    ],
)
def test_a_cause_leads_to_the_checks_that_would_have_shown_it(cause: str, expected: list[str]) -> None:
    assert named(next_time.checks(incident(cause))) == expected


@pytest.mark.parametrize(
    "cause", ["loader-worker-blocked", "loader-fork-deadlock", "loader-worker-died", "uneven-steps"]
)
def test_no_loader_is_walked_that_was_not_seen(cause: str) -> None:
    assert next_time.checks(without_loaders(incident(cause))) == ()


@pytest.mark.parametrize("cause", ["node-lost", "network-partition", "interconnect-stall"])
def test_one_host_has_no_links_to_others(cause: str) -> None:
    assert next_time.checks(on_one_host(incident(cause))) == ()


@pytest.mark.parametrize("cause", ["device-stall", "gpu-fault"])
def test_gpus_are_checked_where_there_are_some(cause: str) -> None:
    assert named(next_time.checks(incident(cause, nodes=(GPU,)))) == ["gpus"]
    assert next_time.checks(incident(cause, nodes=())) == ()


def raised(known: Incident, kind: str, message: str, *frames: Frame) -> Incident:
    exception = ExceptionFacts(kind, message, frames)
    return replace(known, ranks=(replace(known.ranks[0], exception=exception), *known.ranks[1:]))


IN_LOADER = (Frame("/home/ann/data.py", 12, "__getitem__"), Frame("/v/torch/utils/data/_utils/fetch.py", 52, "fetch"))


def test_an_exception_leads_to_what_would_have_shown_it() -> None:
    known = incident("exception-on-one-rank", nodes=())
    assert named(next_time.checks(raised(known, "OutOfMemoryError", "CUDA out of memory. Tried ..."))) == ["gpus"]
    assert named(next_time.checks(raised(known, "ModuleNotFoundError", "No module named 'x'"))) == ["versions"]
    assert named(next_time.checks(raised(known, "ValueError", "bad card", *IN_LOADER))) == ["loader errors"]
    assert next_time.checks(raised(known, "ValueError", "bad loss", Frame("/home/ann/train.py", 9, "main"))) == ()


def test_equal_lengths_were_no_forecast() -> None:
    known = incident("uneven-steps")
    even = tuple(replace(rank, loader=tuple(replace(one, length=251) for one in rank.loader)) for rank in known.ranks)
    assert named(next_time.checks(replace(known, ranks=even))) == ["loader lengths"]


def test_memory_is_looked_at_where_the_kernel_killed_for_it() -> None:
    assert named(next_time.checks(incident("rank-died", nodes=(KILLED,)))) == ["loader memory"]
    assert next_time.checks(incident("rank-died", nodes=(NodeFacts("node-a", oom_kills=0),))) == ()


def with_worker(known: Incident, state: str = "S", *locks: LockFile) -> Incident:
    worker = ProcessEvidence("loader-worker", ProcessFacts(99, state), lock_files=locks)
    return replace(known, ranks=(replace(known.ranks[0], workers=(worker,)), *known.ranks[1:]))


def with_python(known: Incident, version: str) -> Incident:
    reading = known.ranks[0].reading
    assert reading is not None
    reading = replace(reading, identity=replace(reading.identity, python_version=version))
    return replace(known, ranks=tuple(replace(rank, reading=reading) for rank in known.ranks))


def test_a_launch_that_started_no_rank_is_checked_as_a_launch() -> None:
    assert named(next_time.checks(incident("launch-mismatch", ranks=()))) == ["launch"]


def test_a_lock_is_looked_for_where_the_dataset_takes_it() -> None:
    known = incident("lock-held-by-process")
    lock = LockFile("/data/index.db", 4711, True, 20.0)
    assert named(next_time.checks(with_worker(known, "S", lock))) == ["loader stalls"]
    assert next_time.checks(known) == ()  # the rank's own code takes it, and no check runs that


def test_storage_is_looked_at_where_it_holds_a_worker() -> None:
    known = incident("loader-worker-frozen")
    assert named(next_time.checks(with_worker(known, "D"))) == ["loader stalls"]
    assert next_time.checks(with_worker(known, "T")) == ()  # it was stopped, by no fault of the data


def test_python_warns_of_forks_in_versions_that_do() -> None:
    known = incident("fork-deadlock")
    assert named(next_time.checks(with_python(known, "3.12.1"))) == ["PYTHONWARNINGS"]
    assert next_time.checks(with_python(known, "3.11.7")) == ()
    assert next_time.checks(with_python(known, "")) == ()


@pytest.mark.parametrize("cause", ["gradient-sync-mismatch", "collective-mismatch", "data-dependent-graph"])
def test_models_that_differ_were_a_forecast(cause: str) -> None:
    known = incident(cause)
    assert next_time.checks(known) == ()
    reading = known.ranks[0].reading
    assert reading is not None
    other = replace(reading, identity=replace(reading.identity, plan={"parameters": "abc"}))
    ranks = (replace(known.ranks[0], reading=other), *known.ranks[1:])
    assert named(next_time.checks(replace(known, ranks=ranks))) == ["plans-differ"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("uneven-forecast", "uneven-forecast"),
        ("plans-differ", "plans-differ"),
        ("sampler-full-copy", "loader shares"),
        ("sampler-world-mismatch", "loader shares"),
        ("set-epoch-missing", "loader set_epoch"),
        ("nccl-environment", "settings"),
        ("gpu-memory-imbalance", "gpus"),
        ("gpu-leftover-process", "gpus"),
    ],
)
def test_a_warning_of_the_run_leads_to_its_check(kind: str, expected: str) -> None:
    known = incident("user-code-blocked")
    assert next_time.checks(known) == ()
    assert named(next_time.checks(replace(known, warnings=(HealthWarning(kind, "..."),)))) == [expected]


def test_evidence_that_was_missing_can_be_had_next_time() -> None:
    known = incident("undetermined", capture=(CaptureNote("stacks", False, "permission denied"),))
    known = replace(known, verdict=replace(known.verdict, certainty=Certainty.UNDETERMINED))
    assert named(next_time.checks(known)) == ["system"]
    only_dumps = replace(known, capture=(), ranks=tuple(replace(rank, reading=None) for rank in known.ranks))
    assert named(next_time.checks(only_dumps)) == ["report-dir"]
    assert next_time.checks(replace(known, capture=())) == ()


def test_the_command_is_the_jobs_own_launch_or_its_hosts() -> None:
    known = incident("rendezvous-missing-ranks")
    own = replace(known, job=replace(known.job, command="torchrun --nnodes 2 train.py"))
    secret = replace(known, job=replace(known.job, command="torchrun train.py --token ***"))
    assert next_time.checks(own)[0].command == "hangwatch doctor -- torchrun --nnodes 2 train.py"
    assert next_time.checks(secret)[0].command == "hangwatch doctor --nproc 2 --hosts node-a,node-b"
    alone = replace(on_one_host(secret), job=replace(known.job, command="train.py", world_size=4))
    assert next_time.checks(alone)[0].command == "hangwatch doctor --nproc 4"


def test_the_list_is_short_and_names_each_check_once() -> None:
    warnings = tuple(HealthWarning(kind, "...") for kind in BY_ID if BY_ID[kind].stage is None)
    found = next_time.checks(incident("file-descriptors-exhausted", warnings=warnings))
    assert len(found) == next_time.MOST
    assert len({(each.command, each.check) for each in found}) == len(found)


# ---------------------------------------------------------------- what it names is there


def test_every_cause_of_the_table_is_in_the_catalogue() -> None:
    assert set(next_time.BY_CAUSE) <= set(BY_ID)


@pytest.mark.parametrize("cause", [each.id for each in CATALOGUE if each.stage is not None])
def test_every_cause_of_a_hang_has_a_check_or_a_reason(cause: str) -> None:
    assert (cause in next_time.BY_CAUSE) != (cause in NO_CHECK)


def test_every_check_that_it_names_exists() -> None:
    source = Path(next_time.__file__).read_text()
    modules = [import_module(f"{families.__name__}.{each.name}") for each in iter_modules(families.__path__)]
    known = {module.FAMILY for module in modules if hasattr(module, "FAMILY")}
    told = set(re.findall(r'(?:_doctor\(incident, |_one\()"(\w+)"', source))
    assert told
    assert told <= known
    of_loaders = set(re.findall(r'(?:_loader\(incident, |_of_loader\()"([\w ]+)"', source))
    in_checks = set(re.findall(r'FAMILY, "([\w ()]+)"', Path(loader_checks.__file__).read_text()))
    assert of_loaders
    assert of_loaders <= in_checks
    assert set(re.findall(r'_abort\("([\w-]+)"', source)) <= FORECASTS
    assert "report_dir" in {each.name for each in fields(Settings)}
    assert callable(doctor.run)


# ---------------------------------------------------------------- how it is told


def test_it_is_told_in_order_on_the_terminal_and_in_markdown() -> None:
    known = incident("uneven-steps")
    known = replace(known, check_next=next_time.checks(known))
    text = terminal.next_time(known)
    assert "next time, check first" in text
    assert text.index("1. hangwatch run --on-forecast abort") < text.index("2. hangwatch doctor loader train.py:NAME")
    assert "`hangwatch run --on-forecast abort -- COMMAND` (uneven-forecast)" in markdown.render(known)
    none = replace(known, check_next=())
    assert terminal.next_time(none) == ""
    assert "Next time" not in markdown.render(none)


def test_a_hostile_command_stays_text_and_harms_no_shell() -> None:
    known = incident("rendezvous-missing-ranks")
    known = replace(known, job=replace(known.job, command="torchrun \x1b[31m train.py; rm -rf ~ $(date) `date`"))
    known = replace(known, check_next=next_time.checks(known))
    text = terminal.next_time(known)
    assert "\x1b" not in text
    assert "'train.py;' rm -rf '~' '$(date)' '`date`'" in text
    assert "`date`" not in markdown.render(known)
