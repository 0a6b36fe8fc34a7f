"""`hangwatch analyze` on stacks that were written as texts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hangwatch.commands import main
from hangwatch.commands.evidence_stacks import _explained
from hangwatch.model import Certainty, Culprit, Frame, Verdict
from tests.unit.logs.lines import asked_to_dump, far, gave_up

PACKAGES = "/v/lib/python3.12/site-packages"
MAIN = '  File "/w/train.py", line 160 in <module>'
LOSS = ['  File "/w/train.py", line 90 in train', MAIN]
BARRIER = [
    f'  File "{PACKAGES}/torch/distributed/distributed_c10d.py", line 4635 in barrier',
    '  File "/w/train.py", line 120 in train',
    MAIN,
]
LOADER = [
    f'  File "{PACKAGES}/torch/utils/data/dataloader.py", line 1275 in _try_get_data',
    f'  File "{PACKAGES}/torch/utils/data/dataloader.py", line 733 in __next__',
    '  File "/w/train.py", line 84 in train',
    MAIN,
]
FETCH = ['  File "/v/lib/python3.12/socket.py", line 706 in recv_into', '  File "/w/fetch.py", line 18 in fetch', MAIN]
SAVE = [f'  File "{PACKAGES}/torch/serialization.py", line 652 in save', '  File "/w/ckpt.py", line 33 in save', MAIN]


def write(folder: Path, *stacks: list[str]) -> None:
    for rank, frames in enumerate(stacks):
        if frames:
            text = "\n".join(["Current thread 0x00007f (most recent call first):", *frames])
            (folder / f"stack_rank{rank}.txt").write_text(text + "\n")


def told(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["analyze", str(folder)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_one_rank_in_its_loader_where_the_others_stand_at_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, LOSS, LOADER, LOSS, LOSS)
    said = told(tmp_path, capsys)
    assert "WAITING; cause not known" in said
    assert "rank 1 stands at train.py:84 (train, waiting for a batch of its loader)" in said
    assert "who rank 1" in said


def test_one_rank_in_a_checkpoint_where_the_others_wait_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, SAVE, BARRIER, BARRIER)
    said = told(tmp_path, capsys)
    assert "Rank 0 is reading or writing a checkpoint (ckpt.py:33); ranks 1-2 wait" in said
    assert "in the last second" not in said  # no bytes were counted


@pytest.mark.parametrize("stacks", [(LOSS, LOADER), (LOSS, LOADER, FETCH), (LOSS, LOSS, LOSS), (LOADER, LOADER, LOSS)])
def test_where_the_places_tell_no_rank_from_the_others_none_is_blamed(
    stacks: tuple[list[str], ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, *stacks)
    said = told(tmp_path, capsys)
    assert "At the moment of these stacks" in said
    assert "cause not known" in said
    assert "who rank" not in said


def test_the_stack_of_the_rank_that_is_awaited_tells_what_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for rank in (0, 1) for line in (gave_up(rank, 90), far(rank, 90, 90, 89))]
    (tmp_path / "job.log").write_text("\n".join([*lines, asked_to_dump(2, 89, 89)]) + "\n")
    write(tmp_path, [], [], FETCH)
    said = told(tmp_path, capsys)
    assert "HUNG, likely; cause likely" in said
    assert "By its stack it stands in code of its own: rank 2 at fetch.py:18 (fetch, in recv_into)." in said
    # BUT a stack that shows a wait for the others explains nothing
    write(tmp_path, [], [], BARRIER)
    assert "cause not known" in told(tmp_path, capsys)


def test_stacks_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thread = {
        "pid": 7,
        "thread_id": 1,
        "thread_name": "MainThread",
        "os_thread_id": 7,
        "active": True,
        "owns_gil": False,
    }
    for rank, frames in enumerate((BARRIER, BARRIER, FETCH)):
        found = [re.match(r'\s+File "(.*)", line (\d+) in (.*)', line) for line in frames]
        told_of = [
            {"filename": each[1], "line": int(each[2]), "name": each[3], "module": None} for each in found if each
        ]
        (tmp_path / f"stack_rank{rank}.json").write_text(json.dumps([{**thread, "frames": told_of}]))
    assert "who rank 2" in told(tmp_path, capsys)


def test_stacks_with_the_labels_of_srun_are_those_of_its_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        f"{rank}: {line}"
        for rank, frames in enumerate([BARRIER, BARRIER, SAVE])
        for line in ["Current thread 0x00007f (most recent call first):", *frames]
    ]
    (tmp_path / "srun.log").write_text("\n".join(lines) + "\n")
    assert "Rank 2 is reading or writing a checkpoint (ckpt.py:33)" in told(tmp_path, capsys)


def test_a_culprit_of_no_known_rank_keeps_its_own_place() -> None:
    frame = Frame("/w/train.py", 3, "f")
    verdict = Verdict("undetermined", Certainty.UNDETERMINED, "x.", culprits=(Culprit(None, where=frame),))
    assert _explained(verdict, "user-code-blocked", "y.", "", {}).culprits[0].where == frame


def test_one_stack_of_each_rank_does_not_tell_that_one_stays_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, LOSS, BARRIER, BARRIER)
    said = told(tmp_path, capsys)
    assert "WAITING; cause uncertain" in said
    assert "come back" not in said
    assert "whether the ranks have moved since, one stack of each does not tell" in said
