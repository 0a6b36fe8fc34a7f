"""`make gpu` where there is no GPU: what it says, what it would play, and the page that it would write."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hangwatch.catalogue import BY_ID
from scripts.gpu import __main__ as run
from scripts.gpu import machine, rank, results
from scripts.gpu.cases import CASES, Case
from scripts.gpu.page import page
from scripts.gpu.play import RECIPE, Played, Player
from scripts.gpu.results import Result, Results

SCRIPTS = Path(run.__file__).parent


def torch(*, cuda: str | None = "13.0", gpu: bool = True, nccl: bool = True) -> Any:
    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(cuda=cuda),
        cuda=SimpleNamespace(is_available=lambda: gpu),
        distributed=SimpleNamespace(is_nccl_available=lambda: nccl),
    )


@pytest.mark.parametrize(
    ("parts", "said"),
    [({"cuda": None}, "built without CUDA"), ({"gpu": False}, "finds no GPU"), ({"nccl": False}, "built without NCCL")],
)
def test_what_is_missing_is_said_in_one_sentence(
    parts: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "_torch", lambda: torch(**parts))
    assert run.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("hangwatch: nothing was run on a GPU: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_a_python_without_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert machine.lacks(rehearse=False).startswith(f"torch is not installed for {sys.executable}")


def test_nothing_is_missing_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_torch", torch)
    assert machine.lacks(rehearse=False) == ""


def test_a_rehearsal_is_never_taken_for_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--rehearse"]) == 2
    assert "is no result" in capsys.readouterr().err


def test_every_case_is_one_that_the_program_has_and_expects_a_cause_of_the_catalogue() -> None:
    faults = {node.name for node in ast.walk(ast.parse((SCRIPTS / "train.py").read_text())) if hasattr(node, "name")}
    for case in CASES:
        assert set(case.causes) <= BY_ID.keys()
        assert case.fault in ("none", "uneven-steps", "skipped-backward", "loader-worker-blocked") or (
            f"do_{case.fault.replace('-', '_')}" in faults
        )
    assert len({case.title for case in CASES}) == len(CASES)
    assert sum(case.healthy for case in CASES) >= 4


def test_ranks_share_one_gpu_by_sockets_over_loopback() -> None:
    player = Player(ranks=3)
    environment, command = (
        player.environment({"TORCH_NCCL_ENABLE_TIMING": "1"}),
        player.command(CASES[1], "--steps", "9"),
    )
    assert RECIPE.items() <= environment.items()
    assert environment["GPU_RECIPE"] == "hostid"
    assert environment["TORCH_NCCL_ENABLE_TIMING"] == "1"
    assert "--nproc-per-node=3" in command
    assert command[-2:] == ["--steps", "9"]
    assert Player(recipe="multirank").environment({})["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    assert "NCCL_NET" not in Player(rehearse=True).environment({})


def test_jobs_at_the_same_time_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, str] = {"RANK": "2"}
    monkeypatch.setattr("os.environ", settings)
    monkeypatch.setattr("os.execv", lambda *_: None)
    places = set()
    for seat in range(3):
        settings |= {key: value for key, value in Player(seat=seat).environment({}).items() if key.startswith("GPU_")}
        rank.main()
        places.add(settings["NCCL_RAS_ADDR"])
    assert settings["NCCL_HOSTID"] == "h2"
    assert len(places) == 3


def test_programs_of_a_folder_are_cases(tmp_path: Path) -> None:
    told = {"name": "lone-sum", "script": "sum.py", "args": ["--fast"], "causes": ["early-exit"], "ranks": [2, 1]}
    (tmp_path / "cases.json").write_text(json.dumps([told]))
    (case,) = run.chosen(run.arguments(["--programs", str(tmp_path)]), Results())
    assert (case.title, case.causes, case.culprits, case.healthy) == ("lone-sum", ("early-exit",), (1, 2), False)
    assert Player().command(case)[-2:] == [str(tmp_path / "sum.py"), "--fast"]


def test_a_case_that_cannot_be_played_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN two cases at a time, of which one raises"""

    def play(player: Player, case: Case) -> Played:
        if case.title == "none":
            raise OSError("no space left on device")
        return Played(Result(case.title, case.causes, True))

    monkeypatch.setattr(Player, "play", play)
    kept = tmp_path / "gpu.json"
    code = run.main(["--rehearse", "--to", str(kept), "--jobs", "2", "--only", "none", "early-exit"])
    found = results.load(kept).cases
    assert code == 1
    assert "no space left" in found["none"].note
    assert found["early-exit"].right


RESULTS = Results(
    {"GPU": "NVIDIA H200", "torch": "2.13.0"},
    {
        "uneven-steps": Result("uneven-steps", ("uneven-steps",), True, "uneven-steps", "proven", "proven", (1,), 3.2),
        "none": Result("none", (), False, "device-stall", "likely", note="a | b", notes=("torch's dump: kept",)),
    },
    {"plain": [100.0, 102.0], "watched": [99.0, 98.0]},
    {"pairs": 10, "plain": 502.0, "added": 18.3, "added_low": 12.5, "added_high": 24.2, "added_processor": 20.2},
    {"utilisation": "100 %"},
)


def test_results_come_back_as_they_were_kept(tmp_path: Path) -> None:
    RESULTS.save(tmp_path / "gpu.json")
    assert results.load(tmp_path / "gpu.json") == RESULTS
    assert results.load(tmp_path / "missing.json") == Results()


def test_the_page_tells_misses_too() -> None:
    text = page(RESULTS)
    assert "1 of 2 are right." in text
    assert "| uneven-steps | uneven-steps | uneven-steps (proven) | proven | 1 | 3.2 s | yes |" in text
    assert "**no**: a / b" in text
    assert "- none: torch's dump: kept" in text
    assert "| watched | 2 | 98.5 | 98.0-99.0 | +2.5 % |" in text
    assert "The probe adds **18 us** to a step of 502 us (3.6 %; half of 10 pairs lie between 12 and 24 us)" in text


def test_what_the_probe_adds_is_measured_in_turns_in_one_process() -> None:
    command = [sys.executable, str(SCRIPTS / "in_turns.py"), "--device", "cpu", "--pairs", "2", "--steps", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    found = json.loads(done.stdout)
    assert set(found) == set(RESULTS.turns)
    assert 0 < found["plain"] < 1e6
    assert found["added_low"] <= found["added"] <= found["added_high"]


def test_before_the_first_run_the_page_says_so() -> None:
    assert "It has not run yet" in page(Results())


def test_only_what_is_missing_or_asked_for_is_played() -> None:
    known = replace(RESULTS)
    names = [case.title for case in run.chosen(run.arguments(["--missing"]), known)]
    assert "uneven-steps" not in names
    assert "early-exit" in names
    assert [case.fault for case in run.chosen(run.arguments(["--only", "stuck-kernel"]), known)] == ["stuck-kernel"] * 2
    assert not any(case.gpu_only for case in run.chosen(run.arguments(["--rehearse"]), known))
