"""hangwatch analyze: whatever is left of a hang, put together."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangwatch import judge as diagnosis
from hangwatch import recorder
from hangwatch.commands import main
from hangwatch.commands.evidence_files import Pile, kinds, sort_out
from hangwatch.commands.evidence_snapshots import snapshots
from hangwatch.model import Certainty, Identity, Incident, Judgement, Snapshot
from hangwatch.report import files
from hangwatch.wire import codec
from hangwatch_agent.board import layout
from hangwatch_agent.board.writer import BoardWriter
from tests import examples
from tests.dumps import START, Job, Op, alike, loop

Capture = pytest.CaptureFixture[str]


def _part(host: str) -> Incident:
    """What the watchdog of one node has written."""
    whole = examples.uneven_steps()
    own = tuple(rank for rank in whole.ranks if rank.host == host)
    nodes = tuple(node for node in whole.nodes if node.host == host)
    return replace(whole, id=host, ranks=own, nodes=nodes)


def _dump(path: Path, last: str = "gloo:all_reduce", ranks: str = "[0, 1, 2, 3]") -> Path:
    entry = {
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 501,
        "p2p_seq_id": 0,
        "profiling_name": last,
        "time_created_ns": 1_000_000_000_000,
        "input_sizes": [[10]],
        "input_dtypes": ["Float"],
        "retired": False,
        "is_p2p": False,
    }
    path.write_text(json.dumps({"pg_config": {"": {"ranks": ranks}}, "entries": [entry]}))
    os.utime(path, (1010.0, 1010.0))
    return path


def _board(
    path: Path, rank: int, *, job: str = "vision-7c1e", started_at: float = 0.0, ticked_at: float = 1000.0
) -> Path:
    identity = Identity(rank, 4, rank, "node-a", os.getpid(), started_at, job)
    writer = BoardWriter.create(path, codec.encode(identity))
    writer.words[layout.W_ANCHOR_NS] = 0  # times of day, then
    writer.words[layout.W_TICKER_AT] = int(ticked_at * 1e9)
    writer.words[layout.W_MOVED_AT] = int((ticked_at - 30) * 1e9)
    writer.words[layout.W_DRAWS] = 10 + rank
    return path


def _only(pile: Pile) -> Snapshot:
    (snapshot,) = snapshots(pile)
    return snapshot


def test_reports_of_several_nodes_are_merged(tmp_path: Path) -> None:
    for host in ("node-a", "node-b"):
        files.write(_part(host), tmp_path)
    pile = sort_out([tmp_path])
    assert pile.problems == []
    assert kinds(pile) == "2 reports"
    assert _only(pile).ranks == examples.uneven_steps_snapshot().ranks


def test_the_html_file_stands_for_the_report_beside_it(tmp_path: Path) -> None:
    written = files.write(examples.uneven_steps(), tmp_path)
    assert written.html_path is not None
    assert kinds(sort_out([written.html_path])) == "1 report"


def test_boards_show_ranks_that_are_gone(tmp_path: Path) -> None:
    # GIVEN the boards of two ranks of four, one of which fell silent 20 s before the other
    _board(tmp_path / "rank-1.board", 1)
    _board(tmp_path / "rank-0.board", 0, ticked_at=980.0)
    # WHEN they are put together
    pile = sort_out([tmp_path])
    snapshot = _only(pile)
    # THEN they are judged as of the moment when the last one was alive, and nothing is claimed of their processes
    assert (pile.problems, kinds(pile)) == ([], "2 boards")
    assert (snapshot.taken_at, snapshot.last_progress_at, snapshot.job.world_size) == (1000.0, 970.0, 4)
    assert [(rank.rank, rank.still_s, rank.process) for rank in snapshot.ranks] == [(0, 50.0, None), (1, 30.0, None)]
    assert [rank.reading.progress.draws for rank in snapshot.ranks if rank.reading] == [10, 11]
    (note,) = snapshot.notes
    assert (note.rank, note.ok) == (0, False)
    assert "fell silent 20 s before the last one" in note.detail


def test_of_two_boards_of_a_rank_the_newer_counts(tmp_path: Path) -> None:
    old = _board(tmp_path / "a.board", 0, started_at=1.0)
    new = _board(tmp_path / "b.board", 0, started_at=2.0)
    pile = sort_out([old, new])
    assert len(_only(pile).ranks) == 1
    assert pile.problems == [f"left out {old}: {new} is a newer board of rank 0"]


def test_dumps_of_the_flight_recorder(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        _dump(tmp_path / f"trace_{rank}.json")
    pile = sort_out([tmp_path])
    snapshot = _only(pile)
    assert kinds(pile) == "3 dumps"
    assert pile.problems == ["no dump of rank 2: what it did is not known"]
    assert [rank.rank for rank in snapshot.ranks] == [0, 1, 2, 3]
    assert [len(rank.collectives.recent) for rank in snapshot.ranks] == [1, 1, 0, 1]
    assert (snapshot.taken_at, snapshot.last_progress_at) == (
        1000.0,
        1000.0,
    )  # not the files' dates


def test_a_dump_completes_a_report(tmp_path: Path) -> None:
    # GIVEN a report without the flight recorder's list for rank 0, without ranks 2 and 3, and dumps of ranks 0 and 2
    part = _part("node-a")
    poor = replace(part.ranks[0], collectives=replace(part.ranks[0].collectives, recent=(), source="board"))
    written = files.write(replace(part, ranks=(poor, part.ranks[1])), tmp_path).json_path
    assert written is not None
    pile = sort_out([written, _dump(tmp_path / "fr0.json"), _dump(tmp_path / "fr2.json")])
    # WHEN they are put together
    snapshot = _only(pile)
    # THEN the ranks that the report knows have their list, or keep the one they have
    assert [rank.rank for rank in snapshot.ranks] == [0, 1, 2, 3]
    assert [len(rank.collectives.recent) for rank in snapshot.ranks] == [1, 8, 1, 0]
    assert snapshot.ranks[0].stacks == part.ranks[0].stacks
    assert not snapshot.sampled_twice


def test_a_board_completes_a_report_under_another_name(tmp_path: Path) -> None:
    part = replace(_part("node-a"), ranks=_part("node-a").ranks[:1])
    written = files.write(part, tmp_path).json_path
    assert written is not None
    snapshot = _only(sort_out([written, _board(tmp_path / "x.board", 3, job="other")]))
    assert [rank.rank for rank in snapshot.ranks] == [0, 3]


def test_files_of_several_jobs_are_kept_apart(tmp_path: Path) -> None:
    pile = sort_out(
        [_board(tmp_path / "a", 0, job="a"), _board(tmp_path / "b", 0, job="b"), _dump(tmp_path / "fr0.json")]
    )
    assert [snapshot.job.id for snapshot in snapshots(pile)] == ["a", "b", "dumps"]


def _whole(path: Path) -> bytes:
    written = files.write(examples.uneven_steps(), path).json_path
    assert written is not None
    return written.read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "notes.md",
            lambda path: b"hello",
            "neither an incident report, nor a board, a flight-recorder dump or a log",
        ),
        ("cut.json", lambda path: _whole(path)[:3000], "cut off before anything of use"),
        ("new.json", lambda path: _whole(path).replace(b"incident/2", b"incident/9"), "it has format 9"),
        ("rank-0.board", lambda path: b"HANGWTCH" + b"\0" * 100, ""),
        ("dump.json", lambda path: b'{"entries": []}', "a dump says its rank by a number at the end of its name"),
        ("dump0.json", lambda path: b'{"entries": [1]}', "it has not the shape of a dump"),
        ("dump1", lambda path: pickle.dumps({"entries": [print]}), "it is a pickle that wants"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    name: str, content: Callable[[Path], bytes], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content(tmp_path / "reports"))
    pile = sort_out([path])
    (problem,) = pile.problems
    assert problem.startswith(f"left out {path}: {reason}")
    assert snapshots(pile) == []


def test_a_folder_may_hold_other_things(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch")
    (tmp_path / "deeper").mkdir()
    assert sort_out([tmp_path]).problems == []


def test_files_that_are_not_there_or_too_much_are_named(tmp_path: Path) -> None:
    first, second = _dump(tmp_path / "a_0.json"), _dump(tmp_path / "b_0.json")
    pile = sort_out([first, second, tmp_path / "none"])
    assert pile.problems == [
        f"left out {second}: {first} is a dump of rank 0 too, and no older one; that one is used",
        f"left out {tmp_path / 'none'}: no such file or directory",
    ]


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    assert sort_out([tmp_path / "large"]).problems[0].endswith("larger than 512 MiB")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """The snapshots that were judged; the judgement is the example's."""
    seen: list[Snapshot] = []

    def diagnose(snapshot: Snapshot, **options: Any) -> Judgement:
        seen.append(snapshot)
        return examples.uneven_steps_judgement()

    monkeypatch.setattr(diagnosis, "diagnose", diagnose)
    return seen


def test_the_whole_is_judged_anew(tmp_path: Path, judged: list[Snapshot], capsys: Capture) -> None:
    for host in ("node-a", "node-b"):
        files.write(_part(host), tmp_path)
    assert main(["analyze", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "hangwatch: from 2 reports:\n\nhangwatch: HUNG, proven, 3.1 s after the last step; cause proven\n"
    )
    assert [len(snapshot.ranks) for snapshot in judged] == [4]


def test_the_merged_report_is_written(tmp_path: Path, judged: list[Snapshot], capsys: Capture) -> None:
    written = files.write(examples.uneven_steps(), tmp_path).json_path
    assert main(["analyze", str(written), "--json", str(tmp_path / "m.json"), "--html", str(tmp_path / "m.html")]) == 0
    assert "HUNG" in capsys.readouterr().out
    merged = files.read(tmp_path / "m.json")
    assert merged == replace(examples.uneven_steps(), updated_at=merged.updated_at, check_next=merged.check_next)
    assert [each.check for each in merged.check_next] == ["uneven-forecast", "loader lengths"]
    assert (tmp_path / "m.html").read_text().startswith("<!doctype html>")
    assert main(["analyze", str(written), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "3f2a"


def test_problems_go_to_stderr_and_do_not_stop_the_rest(
    tmp_path: Path, judged: list[Snapshot], capsys: Capture
) -> None:
    written = files.write(examples.uneven_steps(), tmp_path).json_path
    assert main(["analyze", str(written), str(tmp_path / "none\x1b")]) == 0
    assert capsys.readouterr().err == f"hangwatch: left out {tmp_path}/none\\x1b: no such file or directory\n"


def test_ranks_that_are_in_no_file_are_named(tmp_path: Path, judged: list[Snapshot], capsys: Capture) -> None:
    files.write(_part("node-a"), tmp_path)
    assert main(["analyze", str(tmp_path)]) == 0
    expected = "hangwatch: none of the files tells of ranks 2-3; if they ran, give the files of their nodes too\n"
    assert capsys.readouterr().err == expected


def test_nothing_of_use_is_an_error(tmp_path: Path, judged: list[Snapshot], capsys: Capture) -> None:
    assert main(["analyze", str(tmp_path)]) == 2
    assert "none of these files can be used" in capsys.readouterr().err
    boards = [str(_board(tmp_path / job, 0, job=job)) for job in ("a", "b")]
    assert main(["analyze", *boards, "--json", "-"]) == 2
    assert "these files are of 2 jobs" in capsys.readouterr().err
    assert judged == []


def test_a_log_of_nothing_of_use_is_read_and_told(tmp_path: Path, capsys: Capture) -> None:
    """GIVEN texts that tell of no hang THEN that is the answer, and no error, where they are logs by name or by will"""
    for name in ("run.log", "out-17", "notes.md", "empty.log"):
        (tmp_path / name).write_text("" if name == "empty.log" else "epoch 1\nepoch 2\n")
    expected = "hangwatch: nothing of a hang or failure is in this log (2 lines read); if the job stood still, give "
    for given in (tmp_path, tmp_path / "run.log", tmp_path / "out-17"):
        assert main(["analyze", str(given)]) == 0
        assert capsys.readouterr().out.startswith(expected)
    assert main(["analyze", str(tmp_path / "run.log"), str(tmp_path / "out-17")]) == 0
    assert "in these 2 logs (4 lines read)" in capsys.readouterr().out
    # AND so it is with a folder in which no other text is
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "output.txt").write_text("epoch 1\nepoch 2\n")
    assert main(["analyze", str(tmp_path / "job")]) == 0
    assert capsys.readouterr().out.startswith(expected)
    # AND no report is made of it
    assert main(["analyze", str(tmp_path / "run.log"), "--json", "-"]) == 0
    said = capsys.readouterr()
    assert (said.out, "no report is written" in said.err) == ("", True)
    # AND a text that is no log by its name, or is empty, is of no use
    for name in ("notes.md", "empty.log"):
        assert main(["analyze", str(tmp_path / name)]) == 2
        assert f"left out {tmp_path / name}: neither an incident report" in capsys.readouterr().err
    # AND beside other evidence it is left out, where it was named
    written = str(files.write(examples.uneven_steps(), tmp_path / "reports").json_path)
    assert main(["analyze", written, str(tmp_path / "run.log")]) == 0
    assert f"left out {tmp_path / 'run.log'}: neither" in capsys.readouterr().err


def test_the_real_judgement_takes_every_kind(tmp_path: Path, capsys: Capture) -> None:
    files.write(examples.uneven_steps(), tmp_path / "reports")
    _board(tmp_path / "rank-0.board", 0, job="a")
    _board(tmp_path / "rank-1.board", 1, job="a")
    for rank in range(4):
        _dump(tmp_path / f"trace_{rank}.json", "gloo:barrier" if rank == 2 else "gloo:all_reduce")
    for given in (["reports"], ["rank-0.board", "rank-1.board"], [f"trace_{rank}.json" for rank in range(4)]):
        assert main(["analyze", *(str(tmp_path / name) for name in given)]) == 0
        assert "\n\nhangwatch: " in capsys.readouterr().out


# ------------------------------------------------------------------------------------------ dumps and logs alone


STEP = (Op("all_reduce", 20, 1024), Op("all_reduce", 21, 10), Op("broadcast", 22, 4))


def _whole_job() -> Job:
    return Job(4, alike(4, loop(9, *STEP)))


def _skipping_job() -> Job:
    whole = loop(9, *STEP)
    return Job(4, alike(4, whole, rank2=[*whole[:13], *whole[14:]]))


@pytest.mark.parametrize("as_json", [False, True])
def test_a_healthy_job_is_told_as_such(as_json: bool, tmp_path: Path, capsys: Capture) -> None:
    _whole_job().write(tmp_path, as_json=as_json)
    assert main(["analyze", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out == (
        "hangwatch: from 4 dumps: nothing is wrong in these dumps: every collective that the 4 ranks enqueued is"
        " complete or on its way (108 recorded calls in 1 group)\n"
    )


def test_no_report_is_written_where_nothing_is_wrong(tmp_path: Path, capsys: Capture) -> None:
    _whole_job().write(tmp_path / "dumps")
    assert main(["analyze", str(tmp_path / "dumps"), "--json", str(tmp_path / "report.json")]) == 0
    assert not (tmp_path / "report.json").exists()
    assert "no report is written" in capsys.readouterr().err


def test_files_in_folders_of_nodes_are_found(tmp_path: Path) -> None:
    _skipping_job().write(tmp_path / "all")
    for path in (tmp_path / "all").iterdir():
        node = tmp_path / "job" / "dumps" / f"node{recorder.rank_of(path) or 0}"
        node.mkdir(parents=True)
        path.rename(node / path.name)
    pile = sort_out([tmp_path / "job"])
    assert sorted(pile.dumps) == [0, 1, 2, 3]
    assert not pile.problems


@pytest.mark.parametrize("folder", ["fr_dumps", "tmp/nccl", ".cache/torch"])
def test_dumps_in_a_folder_beside_the_log_of_a_node_are_found(tmp_path: Path, folder: str) -> None:
    _skipping_job().write(tmp_path / folder)
    (tmp_path / "train.log").write_text("[rank2]: Traceback (most recent call last):\n[rank2]: ValueError: odd\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sample_12.json").write_text('{"entries": 3}')  # no dump by its name
    pile = sort_out([tmp_path])
    assert sorted(pile.dumps) == [0, 1, 2, 3]
    assert pile.logs.raised[2].text == "ValueError: odd"
    assert not pile.problems


def test_a_folder_of_logs_beside_dumps_is_read(tmp_path: Path) -> None:
    _skipping_job().write(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text(
        "[rank2]: Traceback (most recent call last):\n[rank2]: ValueError: odd\n"
    )
    assert sort_out([tmp_path]).logs.raised[2].text == "ValueError: odd"


def test_only_the_last_attempt_of_torchrun_counts(tmp_path: Path) -> None:
    for attempt, error in ((0, "ValueError: first"), (10, "ValueError: last"), (9, "ValueError: between")):
        folder = tmp_path / "none_1" / f"attempt_{attempt}" / "3"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(f"[rank3]: Traceback (most recent call last):\n[rank3]: {error}\n")
    pile = sort_out([tmp_path])
    assert pile.logs.raised[3].text == "ValueError: last"


def test_a_folder_with_files_of_use_is_not_looked_into_deeper(tmp_path: Path) -> None:
    _skipping_job().write(tmp_path)
    (tmp_path / "older").mkdir()
    for path in tmp_path.glob("*rank*"):
        (tmp_path / "older" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "older" / "model.pt").write_bytes(b"\x80\x02")
    assert not sort_out([tmp_path]).problems


def test_the_time_of_dumps_that_were_not_copied_says_how_long_nothing_moved(tmp_path: Path, capsys: Capture) -> None:
    _skipping_job().write(tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, (START / 1e9 + 660, START / 1e9 + 660))
    assert main(["analyze", str(tmp_path)]) == 0
    assert re.search(r"HUNG, likely, (10|11) min.* after the last progress", capsys.readouterr().out)


def test_dumps_name_rank_call_and_line(tmp_path: Path, capsys: Capture) -> None:
    _skipping_job().write(tmp_path / "dumps")
    report = tmp_path / "report.json"
    assert main(["analyze", str(tmp_path / "dumps"), "--json", str(report), "--html", str(tmp_path / "r.html")]) == 0
    out = capsys.readouterr().out
    assert "Rank 2 left out all_reduce 14 of the default group (train.py:21)" in " ".join(out.split())
    headline = next(line for line in out.splitlines() if "HUNG" in line)
    assert headline == "hangwatch: HUNG, likely; cause proven"  # no time that the dumps do not tell
    incident = files.read(report)
    assert [(each.rank, each.where and each.where.line) for each in incident.verdict.culprits] == [(2, 21)]
    assert incident.verdict.hang is Certainty.LIKELY
    # AND the report, given back, says the same
    capsys.readouterr()
    assert main(["analyze", str(report)]) == 0
    assert "Rank 2 left out all_reduce 14" in capsys.readouterr().out


def test_dumps_and_the_log_of_a_rank_without_one(tmp_path: Path, capsys: Capture) -> None:
    whole = loop(9, *STEP)
    Job(4, alike(4, whole, rank3=whole[:25]), silent=(3,)).write(tmp_path)
    (tmp_path / "stderr.log").write_text(
        "[rank3]:[E1121 10:20:31.5 ProcessGroupNCCL.cpp:1685] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump"
        " signal. Last enqueued NCCL work: 25, last completed NCCL work: 25.\n"
    )
    assert main(["analyze", str(tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("hangwatch: from 3 dumps, 1 log:")
    assert "Rank 3 never enqueued all_reduce 26 of the default group (train.py:21)" in told


def test_dumps_name_whom_a_report_could_not(tmp_path: Path, capsys: Capture) -> None:
    # GIVEN a board that says nothing of why, and dumps of the same job
    _board(tmp_path / "rank-0.board", 0)
    _skipping_job().write(tmp_path)
    assert main(["analyze", str(tmp_path)]) == 0
    assert "Rank 2 left out all_reduce 14" in capsys.readouterr().out


def test_pickles_need_no_leave(tmp_path: Path, capsys: Capture) -> None:
    _whole_job().write(tmp_path)
    assert main(["analyze", str(tmp_path)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_it_ends_with_what_to_check_first_next_time(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    for host in ("node-a", "node-b"):
        files.write(_part(host), folder)
    markdown, merged = tmp_path / "issue.md", tmp_path / "all.json"
    assert main(["analyze", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "\n  next time, check first\n  1. hangwatch run --on-forecast abort" in out
    assert "hangwatch doctor loader train.py:NAME --ranks 4   (loader lengths)" in out
    assert main(["analyze", str(folder), "--markdown", str(markdown), "--json", str(merged)]) == 0
    assert "**Next time, check first**" in markdown.read_text()
    assert [each.check for each in codec.loads(Incident, merged.read_text()).check_next][-1] == "loader lengths"


def test_beside_a_launchers_log_the_folders_of_its_ranks_are_read(tmp_path: Path) -> None:
    """torchrun's log folder often holds the launcher's own log too; a folder of another job stays out."""
    (tmp_path / "launcher.log").write_text("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n")
    for folder, error in (("attempt_0/3", "ValueError: bad shape"), ("older", "ValueError: of another job")):
        (tmp_path / folder).mkdir(parents=True)
        message = {"message": {"message": error, "extraInfo": {"py_callstack": ""}}}
        (tmp_path / folder / "error.json").write_text(json.dumps(message))
    pile = sort_out([tmp_path])
    assert {rank: each.text for rank, each in pile.logs.failures.items()} == {3: "ValueError: bad shape"}


@pytest.mark.parametrize("logs", ["attempt_0/3", "logs/job_7/attempt_0/3"])
def test_beside_dumps_the_error_files_of_torchrun_are_read(logs: str, tmp_path: Path) -> None:
    """The rank that raised left no dump; the others waited for it."""
    _skipping_job().write(tmp_path)
    (tmp_path / "nccl_trace_rank_3").unlink(missing_ok=True)
    (tmp_path / logs).mkdir(parents=True)
    message = {"message": {"message": "KeyError: 'pixels'", "extraInfo": {"py_callstack": ""}}}
    (tmp_path / logs / "error.json").write_text(json.dumps(message))
    pile = sort_out([tmp_path])
    assert pile.assessment.judgement is not None
    found = pile.assessment.judgement.verdict
    assert (found.cause, [each.rank for each in found.culprits]) == ("exception-on-one-rank", [3])


@pytest.mark.parametrize("newer", ["a", "b"])
def test_of_two_dumps_of_a_rank_the_one_with_the_later_call_counts(newer: str, tmp_path: Path) -> None:
    """An earlier attempt has left dumps in another folder; how the files were copied says nothing."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        path = _dump(tmp_path / name / "trace_0.json", last=f"gloo:{'all_gather' if name == newer else 'all_reduce'}")
        document = json.loads(path.read_text())
        document["entries"][0]["time_created_ns"] += 7_200_000_000_000 if name == newer else 0
        path.write_text(json.dumps(document))
    pile = sort_out([tmp_path / "a", tmp_path / "b"])
    first, second = (tmp_path / name / "trace_0.json" for name in (newer, "b" if newer == "a" else "a"))
    assert pile.dumps == {0: first}
    assert [call.op for call in pile.queues.calls if call.op == "all_gather"]
    assert pile.queues.communicators[0].lanes[0].created[0] == 8_200_000_000_000
    (problem,) = pile.problems
    assert problem.startswith(f"left out {second}: {first} is ")
    assert problem.endswith("; that one is used")


def test_a_dump_that_cannot_be_read_is_not_one_that_was_never_written(tmp_path: Path, capsys: Capture) -> None:
    whole = loop(9, *STEP)
    Job(4, alike(4, whole)).write(tmp_path)
    last = sorted(tmp_path.iterdir())[-1]
    last.write_bytes(last.read_bytes()[:-200])
    assert main(["analyze", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert f"left out {last}: it is cut off or spoiled" in said.err
    told = " ".join((said.out + said.err).split())
    assert "the dump of rank 3 cannot be read: what it did is not known" in told
    assert "no dump of rank 3" not in told


def test_gzipped_dumps_and_logs_are_read(tmp_path: Path, capsys: Capture) -> None:
    _skipping_job().write(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    (tmp_path / "images.gz").write_bytes(b"no archive")  # passed over, as its name says nothing
    assert main(["analyze", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("hangwatch: from 4 dumps")
    assert "Rank 2 left out all_reduce 14 of the default group (train.py:21)" in " ".join(said.out.split())
    assert not said.err


def test_a_gzipped_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    lines = [
        f"[rank3]:[E1121 10:20:31.5 ProcessGroupNCCL.cpp:1685] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump"
        f" signal. Last enqueued NCCL work: {number}, last completed NCCL work: {number}.\n"
        for number in range(2000)
    ]
    path = tmp_path / "stderr.log.gz"
    path.write_bytes(gzip.compress("".join(lines).encode())[:-4000])
    pile = sort_out([path])
    assert pile.problems == [f"{path} is cut off or spoiled: read as far as it goes"]
    assert pile.logs.files == [path]


def test_an_archive_is_for_the_user_to_unpack(tmp_path: Path) -> None:
    path = tmp_path / "traces.tar.gz"
    path.write_bytes(gzip.compress(b"whatever"))
    assert sort_out([path]).problems == [f"left out {path}: an archive: unpack it, and give the folder"]
