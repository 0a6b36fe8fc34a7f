"""Answers of NCCL's RAS service as files, or pasted into a log: who does not answer, and counts that do not move."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.model import Verdict
from hangwatch.queues import Assessment, Queues
from tests.ras_standin import communicator, document, missing, rank
from tests.unit.logs.lines import blamed, far, gave_up
from tests.unit.ras.test_ras import TEXT

HEAD = TEXT.partition("Errors\n======")[0]
FOOT = "Errors\n======\n\nWarnings\n========\n\n"
MISMATCH = HEAD + FOOT + "#0-0" + TEXT.rpartition("#0-0")[2]

STATUS = """\
#0-0 (00000005ab9f6d0c) MISMATCH
  Communicator ranks have different status
  3 ranks have status RUNNING
  Rank 2 has status INIT -- GPU 2 managed by process 102 on node 127.0.0.1
"""


def answer(*communicators: dict[str, Any], at: str = "08:00:00", indent: int | None = 2) -> str:
    said = json.loads(document(*communicators)) | {"timestamp": f"2026-11-22 {at}"}
    return json.dumps(said, indent=indent)


def behind(*few: int, count: int = 100, size: int = 4) -> dict[str, Any]:
    return communicator(*(rank(each, 100 + each, count - (each in few)) for each in range(size)))


def told(tmp_path: Path, **files: str) -> Assessment:
    logs = Logs()
    for name, text in files.items():
        path = tmp_path / name.replace("_", ".")
        path.write_text(text + "\n")
        assert read(path, logs)
    return assess(completed(Queues(), logs), logs)


def verdict(found: Assessment, status: str) -> Verdict:
    assert found.judgement is not None
    assert found.judgement.status == status
    assert found.judgement.verdict.cause == "undetermined"
    return found.judgement.verdict


@pytest.mark.parametrize("text", [answer(behind()), HEAD.replace("MISMATCH", "OK") + FOOT], ids=["json", "text"])
def test_a_healthy_job(text: str, tmp_path: Path) -> None:
    found = told(tmp_path, ras_log=text)
    assert found.judgement is None
    assert any("reports nothing wrong" in said for said in found.sentences)


@pytest.mark.parametrize(
    "files",
    [
        {"ras_json": answer(behind(2))},
        {"ras_log": answer(behind(2), indent=None)},
        {"job_log": f"step 7\n{answer(behind(2))}\nstep 8"},
        {"ras_txt": MISMATCH},
    ],
)
def test_counts_of_one_moment_are_no_fault(files: dict[str, str], tmp_path: Path) -> None:
    found = verdict(told(tmp_path, **files), "waiting")
    assert found.summary == (
        "Of the AllReduce operations of a communicator of 4 ranks, rank 2 has launched 99, and others 100."
    )
    assert found.culprits == ()
    assert found.fix.startswith("ask again after a minute")


def test_counts_that_have_not_moved_show_a_hang(tmp_path: Path) -> None:
    found = told(tmp_path, b_json=answer(behind(2), at="08:01:00"), c_json=answer(behind(2)))
    said = verdict(found, "hung")
    assert blamed(found) == [2]
    assert said.victims == (0, 1, 3)
    assert said.argument[0].endswith("two answers of NCCL's RAS service, 60 s apart")
    # BUT not within seconds, nor where one answer was kept twice
    for at in ("08:00:03", "08:00:00"):
        again = told(tmp_path, b_json=answer(behind(2), at=at), c_json=answer(behind(2)))
        assert not verdict(again, "waiting").culprits


def test_counts_that_moved_are_of_a_job_that_runs(tmp_path: Path) -> None:
    for count in (150, 101):
        found = told(tmp_path, b_json=answer(behind(2)), c_json=answer(behind(1, count=count), at="08:01:00"))
        assert found.judgement is None
        assert any("moved between its answers" in said for said in found.sentences)


def test_text_does_not_tell_its_time(tmp_path: Path) -> None:
    found = told(tmp_path, ras_log=f"{MISMATCH}+ sleep 60\n{MISMATCH}")
    assert (verdict(found, "hung").argument[0].rpartition(", ")[2], blamed(found)) == ("whose times are not told", [2])
    # BUT two files may be copies of one answer
    found = told(tmp_path, a_txt=MISMATCH, b_txt=MISMATCH)
    verdict(found, "waiting")
    os.utime(tmp_path / "b.txt", (1.0, 1.0))
    logs = Logs()
    assert all(read(tmp_path / name, logs) for name in ("a.txt", "b.txt", "b.txt"))
    verdict(assess(completed(Queues(), logs), logs), "hung")


def test_a_file_that_is_given_twice_is_one_answer(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(MISMATCH)
    logs = Logs()
    assert read(tmp_path / "ras.txt", logs)
    assert read(tmp_path / "ras.txt", logs)
    verdict(assess(completed(Queues(), logs), logs), "waiting")


def test_ranks_that_do_not_answer(tmp_path: Path) -> None:
    three = [rank(each, 100 + each) for each in range(3)]
    silent = communicator(*three, absent=(missing(3, 103, host="10.0.0.2"),))
    said = verdict(told(tmp_path, ras_json=answer(silent)), "waiting")
    assert [(each.rank, each.pid, each.host) for each in said.culprits] == [(3, 103, "10.0.0.2")]
    (tmp_path / "two").mkdir()
    dead = communicator(*three, absent=(missing(3, 103, dead=True),))
    summary = verdict(told(tmp_path / "two", ras_json=answer(dead)), "hung").summary
    assert summary.startswith("Rank 3 does not answer NCCL's RAS threads, and NCCL calls it dead")
    assert verdict(told(tmp_path, ras_txt=TEXT), "hung").summary.startswith("Rank 3 does not answer")


def test_a_process_that_is_dead_and_no_known_rank(tmp_path: Path) -> None:
    said = verdict(told(tmp_path, ras_txt=TEXT.partition("#0-0")[0]), "hung")
    assert said.summary.startswith("NCCL calls process 103 on node 127.0.0.1 dead")
    assert said.culprits == ()


def test_an_error_of_the_device_is_the_ranks_own(tmp_path: Path) -> None:
    found = told(tmp_path, ras_json=answer(communicator(rank(0, 100), rank(1, 101, async_error=1))))
    assert verdict(found, "failed").summary == "NCCL reports an error of rank 1: unhandled CUDA error."
    assert blamed(found) == [1]
    # BUT one of a peer is not
    found = told(tmp_path, ras_json=answer(communicator(rank(0, 100), rank(1, 101, async_error=6))))
    assert not verdict(found, "failed").culprits


def test_ranks_in_different_calls_are_not_to_blame(tmp_path: Path) -> None:
    other = rank(1, 101, 99)
    other["collective_counts"]["Broadcast"] = 1
    files = {f"{at}_json": answer(communicator(rank(0, 100), other), at=f"08:0{at}:00") for at in (1, 2)}
    said = verdict(told(tmp_path, **files), "hung")
    assert "they called different collectives, or in another order" in said.summary
    assert said.culprits == ()


def test_a_smaller_communicator_has_numbers_of_its_own(tmp_path: Path) -> None:
    small = communicator(rank(0, 102, 5), rank(1, 103, 4)) | {"hash": "0x2"}
    files = {f"{at}_json": answer(behind(), small, at=f"08:0{at}:00") for at in (1, 2)}
    said = verdict(told(tmp_path, **files), "hung")
    assert "rank 1 (by the communicator's own numbers) has launched 4, and others 5" in said.summary
    assert [(each.rank, each.pid) for each in said.culprits] == [(None, 103)]
    assert said.victims == ()


def test_a_communicator_of_all_gpus_that_the_answer_knows_may_not_be_of_the_job(tmp_path: Path) -> None:
    logs = Logs()
    (tmp_path / "a.json").write_text(answer(behind(2)))
    assert read(tmp_path / "a.json", logs)
    logs.ranks.update(range(8))
    assert "own numbers" in verdict(assess(completed(Queues(), logs), logs), "waiting").summary


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace(" RUNNING  MISMATCH", "    INIT        OK") + FOOT,
        f"{HEAD}{FOOT}{STATUS}",
        answer(communicator(rank(0, 100), rank(1, 101, init_state=7))),
    ],
)
def test_a_communicator_that_is_set_up(text: str, tmp_path: Path) -> None:
    assert "still set" in verdict(told(tmp_path, ras_log=text), "waiting").summary


def test_beside_lines_of_the_watchdog_it_is_evidence(tmp_path: Path) -> None:
    lines = "\n".join(line for each in (0, 1, 3) for line in (gave_up(each, 9), far(each, 9, 9, 8)))
    found = told(tmp_path, job_log=lines, ras_json=answer(behind(2)))
    assert found.judgement is not None
    assert any("99 by rank 2" in said for said in found.judgement.verdict.evidence)


@pytest.mark.parametrize("cut", [f"{HEAD}", '{\n  "nccl_version": "2.28.9",\n', '{"nccl_version": 7}', "{}\n{"])
def test_what_is_cut_off_or_no_answer_says_nothing(cut: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(f"{cut}\n")
    read(path, logs := Logs())
    assert assess(completed(Queues(), logs), logs).judgement is None
