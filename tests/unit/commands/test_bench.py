"""The benchmark without its jobs: what is planned, how runs are judged, how results are kept and shown."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hangwatch.commands import main
from hangwatch.commands.benchmark import figures, gallery, measure, page, peers, rest, scale, score, table
from hangwatch.commands.benchmark.gallery import Play
from hangwatch.commands.benchmark.results import Control, Figure, Machine, PeerRun, Results, Run, dump, load
from hangwatch.errors import HangwatchError
from hangwatch.gallery import CASES, Case
from hangwatch.report.incident import snapshot_of
from tests import examples

RUN = Run("frozen", "rank-frozen", 2, "hung", (1,))
RIGHT = replace(
    RUN,
    cause="rank-frozen",
    status="hung",
    certainty="proven",
    hang="proven",
    named=(1,),
    processes=("rank",),
    accused=(1,),
    detected_after_s=3.0,
    seconds=12.0,
)
WAITING = Run("slow", "slow-checkpoint", 2, "waiting", (0,))
CASE = Case("frozen", "rank-frozen", "rank_frozen.py", ranks=3, culprit=1)
MACHINE = Machine("2026-11-20 20:00 UTC", "0.1.0", "2.13.0", "3.12", "Linux", 2, 0.5)


def results() -> Results:
    return Results(
        machines={"accuracy": MACHINE, "peers": MACHINE, "figures": MACHINE},
        runs=[RIGHT, replace(RIGHT, detected_after_s=5.0), RUN],
        controls=[Control("frozen", "rank-frozen", 1800.0), Control("frozen", "rank-frozen", 1800.0, "early-exit")],
        peers=[PeerRun("frozen", "rank-frozen", peers.DEFAULT, 20.0, (1,), (0, 1), "RuntimeError: <b> | `x`")],
        figures=[
            Figure("throughput", 0.995, "", 0.99, at_least=True),
            Figure("hooks", 6.0, "us", 5.0),
            Figure("lost", None, "", 0.0, note="no such file"),
        ],
        skipped={"partition": "needs root"},
    )


def test_the_culprit_moves_from_round_to_round() -> None:
    plays = gallery.plan([CASE], 3, controls=True)
    assert [play.culprit for play in plays if not play.healthy] == [1, 2, 0]
    assert [play.title for play in plays][:2] == ["frozen rank 1", "frozen healthy"]


def test_a_case_without_a_culprit_to_choose_is_played_as_it_is() -> None:
    assert gallery.plan([replace(CASE, culprit=None)], 2, controls=False)[1].culprit is None


def test_faults_of_one_script_share_a_look_alike() -> None:
    plays = gallery.plan([CASE, replace(CASE, name="other", args=("--how", "other"))], 1, controls=True)
    assert sum(play.healthy for play in plays) == 1


def test_a_case_without_look_alike_has_no_control() -> None:
    assert len(gallery.plan([replace(CASE, healthy_args=())], 1, controls=True)) == 1


def test_what_the_machine_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert gallery.missing(replace(CASE, needs=("root",))) == "needs root"
    assert gallery.missing(replace(CASE, needs=("iproute2",))) == "needs root and iproute2"
    assert gallery.missing(CASE) == ""


@pytest.mark.parametrize(
    ("run", "cause", "culprit", "wrong"),
    [
        (RIGHT, True, True, False),
        (RUN, False, False, False),  # nothing was said
        (replace(RIGHT, cause="early-exit"), False, True, False),
        (replace(RIGHT, named=(0,), accused=(0,)), True, False, True),
        (replace(RIGHT, named=(0, 1), accused=(0, 1)), True, False, True),
        (replace(RIGHT, accused=(0, 1)), True, True, True),  # taken back later
        (replace(RIGHT, named=(), processes=(), accused=()), True, False, False),
        (replace(RIGHT, blame=(), named=(), processes=(), accused=()), True, True, False),
        (replace(RIGHT, blame=(), named=(), processes=("other",), accused=()), True, False, False),
        (replace(RIGHT, blame=(), process="other", named=(), processes=("other",), accused=()), True, True, False),
        (WAITING, True, True, False),
        (replace(WAITING, status="hung", cause="slow-checkpoint", accused=(0,)), False, False, False),
        (replace(WAITING, expected="warned"), False, True, False),
        (replace(WAITING, expected="warned", warned=True), True, True, False),
    ],
)
def test_how_a_run_is_judged(run: Run, cause: bool, culprit: bool, wrong: bool) -> None:
    assert (run.cause_right, run.culprit_right, run.wrong_culprit) == (cause, culprit, wrong)


def test_a_row_counts_and_takes_median_and_worst() -> None:
    (row,) = score.rows(results().runs)
    assert (row.runs, row.median_s, row.worst_s) == (3, 4.0, 5.0)
    assert (row.cause_right, row.culprit_right, row.wrong_culprit) == (2, 2, 0)
    assert row.certainties == row.hangs == {"proven": 2, "none": 1}


def test_alarms_are_counted_by_the_hour() -> None:
    assert score.alarms_per_hour(results().controls) == (1, 1.0, 1.0)
    assert score.alarms_per_hour([]) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ("epoch 0 batch 50 rank 1 loss 2.3", ()),
        ("[rank0]: RuntimeError: Connection closed by peer", (0,)),
        ("[rank0]: RuntimeError: x\n[rank1]: RuntimeError: x", (0, 1)),
        ("Root Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n[rank0]: RuntimeError", (3,)),
        ("KeyError: 'x'", ()),
    ],
)
def test_which_ranks_an_output_points_at(output: str, named: tuple[int, ...]) -> None:
    assert peers.reading(output)[0] == named


def test_only_the_causes_that_were_played_again_are_replaced(tmp_path: Path) -> None:
    path, machine = tmp_path / "results.json", {"accuracy": Machine.here()}
    both = [run_of("uneven-steps"), run_of("rank-died")]
    dump(Results(machine, runs=both, controls=[Control("a", "rank-died", 1.0, alarm="rank-died")]), path)
    again = replace(run_of("rank-died"), seconds=9.0)
    dump(Results(machine, runs=[again], controls=[Control("a", "rank-died", 2.0)]), path, ["rank-died"])
    assert load(path).runs == [both[0], again]
    assert load(path).controls == [Control("a", "rank-died", 2.0)]
    dump(Results(machine, runs=[again]), path)
    assert load(path).runs == [again]


def run_of(cause: str) -> Run:
    return Run(cause, cause, 2, "hung", (1,), "rank")


def test_results_survive_being_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    dump(results(), path)
    assert load(path) == results()


def test_parts_that_were_not_measured_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    dump(results(), path)
    dump(Results(machines={"figures": MACHINE}, figures=[Figure("hooks", 1.0, "us", 5.0)]), path)
    assert len(load(path).runs) == 3
    assert [figure.value for figure in load(path).figures] == [1.0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "hangwatch.benchmark/9"}'])
def test_a_file_that_is_something_else_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(HangwatchError):
        load(path)


def test_results_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(HangwatchError, match="cannot write"):
        dump(results(), tmp_path / "nowhere" / "results.json")


def test_the_tables_say_what_was_missed() -> None:
    screen = io.StringIO()
    table.show(results(), Console(file=screen, width=200))
    said = screen.getvalue()
    assert "frozen (at fault: rank 1): nothing was said" in said
    assert "frozen, healthy: early-exit" in said
    assert "Not played: partition (needs root)" in said
    assert "torch says the rank in 0 of 1 runs." in said
    for word in ("held", "missed", "not measured"):
        assert word in said


def test_the_page_takes_nothing_for_markup() -> None:
    text = page.page(results())
    assert "RuntimeError: &lt;b&gt; \\| \\`x\\`" in text
    assert page.page(Results()).startswith("# Benchmark")


def test_figures_know_their_budget() -> None:
    at_least, at_most, lost = results().figures
    assert (at_least.held, at_most.held, lost.held) == (True, False, False)
    assert (at_most.share, lost.share) == (1.2, None)


def test_a_figure_that_cannot_be_measured_is_named() -> None:
    def hooks() -> list[Figure]:
        raise OSError("no such file")

    (found,) = figures.guarded(hooks)
    assert (found.name, found.value, found.note) == ("hooks", None, "could not be measured: no such file")


def test_a_large_job_hangs_like_the_small_one(tmp_path: Path) -> None:
    # GIVEN the incident of four ranks
    snapshot = snapshot_of([examples.uneven_steps()])
    # WHEN it is made one of forty
    large = scale.grown(snapshot, 3, 40, distinct=True)
    # THEN every rank is itself, the culprit is the same, and groups have all as members
    assert [rank.rank for rank in large.ranks] == list(range(40))
    readings = [rank.reading for rank in large.ranks]
    assert all(reading and reading.identity.world_size == 40 for reading in readings)
    assert readings[3] is not None
    assert readings[0] is not None
    assert readings[3].loaders != readings[0].loaders
    assert {head.members for rank in large.ranks for head in rank.collectives.heads} == {tuple(range(40))}
    assert len(large.nodes) == 5
    assert len({id(rank.stacks[0]) for rank in large.ranks}) == 40
    assert len({id(rank.stacks[0]) for rank in scale.grown(snapshot, 3, 40).ranks}) == 4
    assert large.divergences[0].counts[3] != large.divergences[0].counts[39]


def plan(parts: Sequence[str] = ("accuracy",), minutes: float | None = None) -> measure.Plan:
    return measure.Plan(parts, [CASE], 1, controls=True, seconds=1.0, minutes=minutes)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cases are not played but noted."""
    found: list[str] = []

    def note(what: Play, seconds: float) -> Run:
        found.append(what.title)
        return RIGHT

    def note_control(what: Play, seconds: float) -> Control:
        found.append(what.title)
        return Control("frozen", "rank-frozen", 10.0)

    monkeypatch.setattr(gallery, "play", note)
    monkeypatch.setattr(gallery, "control", note_control)
    return found


def test_all_that_is_planned_is_measured(played: list[str]) -> None:
    found, interrupted = measure.measure(plan())
    assert played == ["frozen rank 1", "frozen healthy"]
    assert (len(found.runs), len(found.controls), interrupted) == (1, 1, False)
    assert found.machines.keys() == {"accuracy"}


def test_ctrl_c_keeps_what_has_been_measured(played: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(what: Play, seconds: float) -> Control:
        raise KeyboardInterrupt

    monkeypatch.setattr(gallery, "control", interrupted)
    found, cut = measure.measure(plan())
    assert (len(found.runs), cut) == (1, True)


def test_what_has_been_measured_is_kept_at_once(played: list[str]) -> None:
    counts: list[int] = []
    measure.measure(replace(plan(), keep=lambda found: counts.append(len(found.runs) + len(found.controls))))
    assert counts == [1, 2]


def test_the_time_that_was_asked_for_is_kept(played: list[str]) -> None:
    found, interrupted = measure.measure(plan(minutes=1e-9))
    assert (found.runs, played, interrupted) == ([], [], False)


def test_figures_and_peers_are_measured(played: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def hooks() -> list[Figure]:
        return [Figure("hooks", 1.0, "us", 5.0)]

    def ask(what: Play, peer: str, seconds: float) -> PeerRun:
        return PeerRun("frozen", "rank-frozen", peer, seconds, (1,))

    monkeypatch.setattr(figures, "parts", lambda: (hooks,))
    monkeypatch.setattr(peers, "ask", ask)
    found, _ = measure.measure(plan(("peers", "figures")))
    assert [run.peer for run in found.peers] == list(peers.PEERS)
    assert found.figures == hooks()


def test_the_command_writes_json_and_prints(
    played: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    words = ["bench", "--accuracy", "--rounds", "1", "--no-controls", "--cause", "rank-frozen", "--json", str(path)]
    assert main(words) == 0
    assert "Cause and culprit right in" in capsys.readouterr().out
    assert load(path).runs[0] == RIGHT


def test_an_unknown_cause_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--cause", "gremlins"]) == 2
    assert capsys.readouterr().err == "hangwatch: no script for gremlins; `hangwatch demo --list` names all\n"
    assert main(["bench", "--cause", "uneven-step"]) == 2
    assert "no script for uneven-step; did you mean uneven-steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (RIGHT, "right: hung, proven, cause proven, rank-frozen (1), after 3.0 s"),
        (RUN, "no verdict"),
        (WAITING, "no verdict, as it should be"),
        (replace(WAITING, expected="warned"), "no warning"),
        (replace(RIGHT, cause="early-exit"), "WRONG: hung, proven, cause proven, early-exit (1), after 3.0 s"),
    ],
)
def test_a_run_in_one_line(run: Run, line: str) -> None:
    assert measure.run_line(run) == line


def test_a_control_in_one_line() -> None:
    assert measure.control_line(Control("a", "b", 30.0)) == "no alarm in 30 s"
    assert measure.control_line(Control("a", "b", 30.0, finished=False)) == "no alarm in 30 s, not finished"
    assert measure.control_line(Control("a", "b", 30.0, "early-exit")) == "FALSE ALARM: early-exit"


def test_the_provable_cases_are_in_the_gallery() -> None:
    assert set(figures.PROVABLE) <= {case.name for case in CASES}


def test_the_watchdog_at_rest_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN two ranks at rest in processes of their own, WHEN the real watchdog watches them for a moment
    monkeypatch.setattr(rest, "RANKS", 2)
    monkeypatch.setattr(rest, "SETTLE", 2.0)
    monkeypatch.setattr(rest, "OBSERVED", 1.0)
    mebibytes, percent = rest.measure()
    # THEN it has been found and measured
    assert 1 < mebibytes < 200
    assert 0 <= percent <= 100


@pytest.mark.parametrize(("status", "hang"), [("hung", "proven"), ("failed", "")])
def test_results_of_one_certainty_prove_no_cause(tmp_path: Path, status: str, hang: str) -> None:
    path = tmp_path / "results.json"
    dump(Results({"accuracy": Machine.here()}, runs=[replace(RIGHT, status=status)]), path)
    document = json.loads(path.read_text())
    del document["runs"][0]["hang"]
    path.write_text(json.dumps(document))
    (run,) = load(path).runs
    assert (run.hang, run.certainty) == (hang, "likely")
