"""What walks over a loader say, where something is wrong and where nothing is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.doctor.loader.checks import all_checks
from hangwatch.doctor.loader.model import Epoch, Walk

MIB = 1 << 20
EPOCH = Epoch(10, True, 1.0, 0.1, 0.02, 0.01, ("a", "b"), ("(4, 8)",), (4,), 0, 100 * MIB, 12)


def walk(rank: int, purpose: str = "rank", **parts: Any) -> Walk:
    made = Walk(
        rank,
        2,
        purpose,
        length=10,
        batch_size=4,
        sampler="DistributedSampler",
        shuffles=True,
        dataset="Images",
        dataset_length=80,
        order=tuple(range(rank, 80, 2)),
        set_epoch=True,
        fingerprint="f",
        epochs=(EPOCH,) * 3,
    )
    return replace(made, **parts)


WELL = (walk(0), walk(1), walk(0, "again"), walk(0, "again"), walk(0, "pace", workers=1), walk(0, "pace"))


def wrong(*walks: Walk) -> dict[str, str]:
    return {check.name: check.found for check in all_checks(walks or WELL) if check.state in ("warn", "fail")}


def epochs(*changes: dict[str, Any]) -> tuple[Epoch, ...]:
    return tuple(replace(EPOCH, **each) for each in changes)


def test_a_loader_that_is_well() -> None:
    assert wrong() == {}
    assert {check.state for check in all_checks(WELL)} == {"ok"}


@pytest.mark.parametrize(
    ("name", "said", "walks"),
    [
        ("made", "ranks 0-1: no such file", (walk(0, problem="no such file"), walk(1, problem="no such file"))),
        (
            "errors",
            "rank 1, epoch 0, batch 3: ValueError: x",
            (walk(0), walk(1, epochs=epochs({"drawn": 3, "problem": "ValueError: x"}))),
        ),
        (
            "lengths",
            "rank 1 has 9 batches an epoch, others up to 10",
            (walk(0), walk(1, length=9, epochs=epochs({"drawn": 9}))),
        ),
        ("lengths", "rank 0 has 9 batches", (walk(0, length=9, epochs=epochs({"ended": False})), walk(1))),
        (
            "len()",
            "says 10 batches, the loader gives 20",
            (walk(0, epochs=epochs({"drawn": 20})), walk(1, epochs=epochs({"drawn": 20}))),
        ),
        (
            "shares",
            "every rank draws all 80 samples",
            (walk(0, order=tuple(range(80))), walk(1, order=tuple(range(80)))),
        ),
        ("shares", "40 of 120 draws", (walk(0, order=tuple(range(60))), walk(1, order=tuple(range(20, 80))))),
        (
            "shares",
            "40 of 80 samples are drawn by no rank",
            (walk(0, order=tuple(range(20))), walk(1, order=tuple(range(20, 40)))),
        ),
        ("shares", "every rank gets the same 10 batches", (walk(0, iterable=True), walk(1, iterable=True))),
        ("None", "2 batches of rank 1 are None", (walk(0), walk(1, epochs=epochs({"nones": 2})))),
        ("batch size", "3, 4", (walk(0), walk(1, epochs=epochs({"sizes": (3, 4)})))),
        ("shapes", "2 different shapes", (walk(0), walk(1, epochs=epochs({"shapes": ("(4, 9)",)})))),
        ("set_epoch", "does not change the order", (walk(0, set_epoch=False), walk(1))),
        (
            "memory",
            "grows by 100 MiB an epoch on rank 1",
            (walk(0), walk(1, epochs=epochs({"memory": 100 * MIB}, {"memory": 200 * MIB}, {"memory": 300 * MIB}))),
        ),
        (
            "open files",
            "12, 14, 19",
            (walk(0), walk(1, epochs=epochs({"descriptors": 12}, {"descriptors": 14}, {"descriptors": 19}))),
        ),
        ("stalls", "took 5.0 s, most take 10 ms", (walk(0), walk(1, epochs=epochs({"slowest_s": 5.0})))),
        ("start", "the first batch took 60 s", (walk(0), walk(1, epochs=epochs({"first_s": 60.0})))),
        ("spawn", "dataset: lambda", (walk(0, spawn_problem="dataset: lambda"), walk(1))),
        ("repeatable", "1 of 2 batches differ", (*WELL[:3], walk(0, "again", epochs=epochs({"digests": ("a", "x")})))),
        (
            "workers",
            "2 workers give 10.0 batches/s, 4 give 90.0",
            (*WELL[:2], walk(0, "pace"), walk(0, "pace", workers=4, epochs=epochs({"took_s": 0.2}))),
        ),
    ],
)
def test_what_is_wrong(name: str, said: str, walks: tuple[Walk, ...]) -> None:
    found = wrong(*walks)
    assert name in found, found
    assert said in found[name]


@pytest.mark.parametrize(
    "walks",
    [
        (walk(0, order=tuple(range(40))), walk(1, order=tuple(range(40)), fingerprint="g")),  # data of its own
        (walk(0, order=tuple(range(41))), walk(1, order=tuple(range(40, 80)))),  # padded to equal lengths
        (walk(0), walk(1, epochs=epochs({"memory": 100 * MIB}, {"memory": 200 * MIB}, {"memory": 201 * MIB}))),  # warm
        (walk(0, set_epoch=None), walk(1)),
        (*WELL[:2], walk(0, "pace"), walk(0, "pace", workers=0)),  # none at all is no faster
    ],
)
def test_what_is_innocent(walks: tuple[Walk, ...]) -> None:
    assert wrong(*walks) == {}
