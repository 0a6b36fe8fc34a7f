"""Scores added up, kept, shown and published."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.commands import main
from hangwatch.commands.benchmark.world_page import page
from hangwatch.world import Outcome, Score
from hangwatch.world.tally import Tally, dump, load, over, share, tally

RIGHT = Score(1, "stopped", "rank-frozen", "gloo", 4, Outcome.RIGHT, false_proof=False, said="rank-frozen")
FALSE = Score(2, "none", "", "nccl", 3, Outcome.INNOCENT, false_proof=True, said="early-exit", alive=True)
PROVEN = Score(3, "extra", "collective-mismatch", "gloo", 64, Outcome.PROVEN_INNOCENT, false_proof=False, said="x")


def added(*scores: Score) -> Tally:
    found = Tally()
    for each in scores:
        found.add(each)
    return found


def test_what_must_not_be_is_kept_with_its_seed() -> None:
    found = added(RIGHT, FALSE, PROVEN)
    assert [(failure.seed, failure.what) for failure in found.failures] == [
        (2, "false proof"),
        (3, "innocent proven guilty"),
    ]
    assert (found.false_proofs, found.proven_innocents, found.alive, found.programs) == (1, 1, 1, 3)


def test_rows_are_causes_backends_and_bands_of_sizes() -> None:
    found = added(RIGHT, FALSE, PROVEN)
    assert [name for name, _ in found.rows("cause")] == ["collective-mismatch", "none", "rank-frozen"]
    assert [name for name, _ in found.rows("backend")] == ["gloo", "nccl"]
    assert [name for name, _ in found.rows("size")] == ["3-4", "more"]
    assert share(dict(found.rows("backend"))["gloo"], Outcome.RIGHT) == "50.0"


@pytest.mark.untraced
def test_parts_add_up_to_the_whole() -> None:
    whole, parts = tally(range(120)), Tally()
    for part in over(0, 120, jobs=1):
        parts.merge(part)
    assert parts == whole


def test_results_are_kept_and_published(tmp_path: Path) -> None:
    found = added(RIGHT, FALSE, PROVEN)
    dump(found, tmp_path / "world.json")
    text = page(load(tmp_path / "world.json"))
    assert "| false proofs of a hang | 1 |" in text
    assert "| `rank-frozen` | 1 | 100.0 |" in text


def test_bench_prints_the_shares_and_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bench", "--world", "60", "--jobs", "1", "--json", str(tmp_path / "world.json")])
    found = load(tmp_path / "world.json")
    assert code == (1 if found.failures else 0)
    assert "60 programs from seed 0 on" in capsys.readouterr().out
    assert found.programs == 60


def test_bench_replays_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--world", "1", "--seed", "3"]) in (0, 1)
    assert capsys.readouterr().out.startswith("seed 3: ")


def test_bench_refuses_a_world_without_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--world", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
