"""Jobs on several hosts for real: torchrun's rendezvous across namespaces, gloo between them, watchdogs on each."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hangwatch.report import files
from tests import needs
from tests.integration.dashboard.hosts import Lab

pytest.importorskip("torch")
pytestmark = [pytest.mark.gallery, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    needs.root()
    needs.program("ip")
    with ExitStack() as stack:
        yield stack


def lab_of(closing: ExitStack, folder: Path, hosts: int) -> Lab:
    lab = Lab(closing, folder, hosts)
    lab.start_dashboard()
    return lab


def test_uneven_steps_across_two_hosts(closing: ExitStack, tmp_path: Path) -> None:
    lab = lab_of(closing, tmp_path, 2)
    for host in lab.hosts:
        lab.train(host, "uneven_steps.py", "--culprit", "3", "--steps", "60")
    lab.until(lambda: lab.get("/incidents")["incidents"], 150)
    incident = lab.until(lambda: (one := lab.get("/incidents")["incidents"][0])["judged_by"] == "" and one, 20)
    assert (incident["cause"], incident["culprits"], incident["host"]) == ("uneven-steps", [3], "node-b")
    assert incident["status"] == "hung"
    assert incident["detected_after_s"] <= 10
    job = lab.job
    assert (job["nodes"], job["ranks"], job["world_size"], job["state"]) == (2, 4, 4, "hung")
    assert [node["host"] for node in job["node_list"]] == ["node-a", "node-b"]
    whole = lab.get(f"/incidents/{incident['id']}")
    assert [rank["host"] for rank in whole["ranks"]] == ["node-a", "node-a", "node-b", "node-b"]
    assert all(rank["stacks"] for rank in whole["ranks"])


def test_a_healthy_job_on_three_hosts_ends_without_an_incident(closing: ExitStack, tmp_path: Path) -> None:
    lab = lab_of(closing, tmp_path, 3)
    for host in lab.hosts:
        lab.train(host, "uneven_steps.py", "--healthy", "--steps", "40", per_node=1)
    lab.until(lambda: lab.job["state"] == "finished", 150)
    job = lab.job
    assert (job["nodes"], job["ranks"], job["step_max"]) == (3, 3, 40)
    assert lab.get("/incidents")["incidents"] == []


def test_a_host_that_is_cut_off_is_the_fault_of_no_rank(closing: ExitStack, tmp_path: Path) -> None:
    lab = lab_of(closing, tmp_path, 2)
    for host in lab.hosts:
        lab.train(host, "uneven_steps.py", "--healthy", "--steps", "300", "--epochs", "100000", stall_after="20")
    lab.until(lambda: lab.job["step"] > 20, 120)
    lab.pull("node-b")
    judgement = lab.until(lambda: lab.job["judgement"], 60)
    assert (judgement["verdict"]["cause"], judgement["verdict"]["culprits"]) == ("network-partition", [])
    lab.until(lambda: lab.get("/incidents")["incidents"], 120)
    incident = lab.until(lambda: (one := lab.get("/incidents")["incidents"][0])["judged_by"] == "" and one, 60)
    assert (incident["cause"], incident["culprits"]) == ("network-partition", [])
    assert lab.job["nodes_silent"] == 0, "the watchdogs reach the dashboard over another link"


def test_a_watchdog_that_is_killed_is_a_silent_node_and_no_incident(closing: ExitStack, tmp_path: Path) -> None:
    lab = lab_of(closing, tmp_path, 2)
    started = [
        lab.train(host, "uneven_steps.py", "--healthy", "--steps", "300", "--epochs", "100000") for host in lab.hosts
    ]
    lab.until(lambda: lab.job["step"] > 20, 120)
    os.kill(watchdog_of(started[1]), signal.SIGKILL)
    lab.until(lambda: lab.job["nodes_silent"] == 1, 30)
    step = lab.job["step_max"]
    lab.until(lambda: lab.job["step_max"] > step, 30)
    assert [one["cause"] for one in lab.get("/incidents")["incidents"]] == []


FOR_EVER = ("--healthy", "--steps", "300", "--epochs", "100000")


def running(closing: ExitStack, folder: Path) -> Lab:
    """A healthy job on two hosts, in the middle of its training."""
    lab = lab_of(closing, folder, 2)
    for host in lab.hosts:
        lab.train(host, "uneven_steps.py", *FOR_EVER)
    lab.until(lambda: lab.job["step"] > 20, 120)
    return lab


def test_a_host_that_loses_its_power_is_named(closing: ExitStack, tmp_path: Path) -> None:
    """GIVEN a job on two hosts WHEN one loses its power THEN the other hangs, and the dashboard says why."""
    lab = running(closing, tmp_path)
    lab.power_off("node-b")
    incident = lab.until(lambda: (found := lab.get("/incidents")["incidents"]) and found[0], 60)
    assert (incident["cause"], incident["culprits"], incident["status"]) == ("node-lost", [2, 3], "hung")
    whole = lab.get(f"/incidents/{incident['id']}")
    assert {who["host"] for who in whole["verdict"]["culprits"]} == {"node-b"}
    assert whole["verdict"]["victims"] == [0, 1]
    assert whole["verdict"]["evidence"][0].startswith("node-b was last heard of")


def test_a_host_that_is_killed_is_blamed_for_the_errors_of_the_others(closing: ExitStack, tmp_path: Path) -> None:
    """GIVEN a job on two hosts WHEN all of one is killed THEN the other's ranks fail, and are not to blame."""
    lab = running(closing, tmp_path)
    lab.signal_all("node-b", signal.SIGKILL)
    incident = lab.until(
        lambda: (found := lab.get("/incidents")["incidents"]) and found[0]["cause"] == "node-lost" and found[0], 60
    )
    assert (incident["culprits"], incident["status"]) == ([2, 3], "failed")
    assert lab.get("/incidents")["total"] == 1
    assert "lost the connection to another rank" in lab.said("node-a"), "what can be said from one host alone"
    assert "rank-died" not in lab.said("node-a")
    lab.until(lambda: lab.job["nodes_silent"] == 1, 30)
    assert lab.job["state"] == "failed"
    known = lab.job["capture"]
    time.sleep(5.0)
    assert lab.job["capture"] == known, "no node is left to be asked"


def test_a_host_that_stops_for_some_seconds_is_not_lost(closing: ExitStack, tmp_path: Path) -> None:
    """GIVEN a job on two hosts WHEN one is stopped for 7 s, as when it is moved, THEN no hang is reported."""
    lab = running(closing, tmp_path)
    lab.signal_all("node-b", signal.SIGSTOP)
    judgement = lab.until(lambda: lab.job["judgement"], 7)
    assert (judgement["status"], judgement["verdict"]["cause"]) == ("waiting", "node-lost")
    lab.signal_all("node-b", signal.SIGCONT)
    step = lab.job["step_max"]
    lab.until(lambda: lab.job["step_max"] > step + 100, 30)
    lab.until(lambda: lab.job["state"] == "running", 30)
    assert lab.get("/incidents")["incidents"] == []
    assert not any("HUNG" in lab.said(host) for host in lab.hosts)


def watchdog_of(process: subprocess.Popen[bytes]) -> int:
    """The pid of `hangwatch run`, which the namespace tools have turned into."""
    return process.pid


def test_a_dashboard_that_comes_back_in_the_middle_of_a_hang_judges_it(closing: ExitStack, tmp_path: Path) -> None:
    lab = Lab(closing, tmp_path, 2)
    first = lab.start_dashboard()
    for host in lab.hosts:
        lab.train(host, "uneven_steps.py", "--culprit", "3", "--steps", "60")
    lab.until(lambda: lab.job["ranks"] == 4, 120)
    first.kill()
    time.sleep(5.0)
    lab.start_dashboard()
    incident = lab.until(lambda: lab.get("/incidents")["incidents"], 150)[0]
    assert (incident["cause"], incident["culprits"]) == ("uneven-steps", [3])
    lab.until(lambda: (lab.job["capture"] or {}).get("state") == "done", 60)  # a node may have judged before
    assert lab.get("/incidents")["total"] == 1
    assert lab.job["dropped"] == 0


def test_two_hosts_without_a_dashboard_give_one_verdict_in_the_directory_they_share(
    closing: ExitStack, tmp_path: Path
) -> None:
    """GIVEN two hosts and one report directory WHEN rank 3 leaves early THEN one host judges and one points to it."""
    lab, shared = Lab(closing, tmp_path, 2), tmp_path / "shared"
    for host in lab.hosts:
        lab.train(host, "uneven_steps.py", "--culprit", "3", "--steps", "60", reports=shared)
    lab.until(lambda: all("HUNG" in lab.said(host) for host in lab.hosts), 150)
    (path,) = shared.glob("incident-*.json")
    found = files.read(path)
    assert (found.status, found.verdict.cause, found.verdict.certainty) == ("hung", "uneven-steps", "proven")
    assert [(who.rank, who.host) for who in found.verdict.culprits] == [(3, "node-b")]
    assert [rank.host for rank in found.ranks] == ["node-a", "node-a", "node-b", "node-b"]
    assert all(rank.stacks for rank in found.ranks)
    pointing = [host for host in lab.hosts if "judged by node-" in lab.said(host)]
    assert len(pointing) == 1
    assert str(path.with_suffix(".html")) in lab.said(pointing[0])
    assert not list(shared.glob("nodes-*/*.part-*")), "the evidence is in the incident"


def test_two_hosts_that_share_nothing_judge_alone_and_say_what_they_do_not_know(
    closing: ExitStack, tmp_path: Path
) -> None:
    lab = Lab(closing, tmp_path, 2)
    for host in lab.hosts:
        lab.train(
            host, "uneven_steps.py", "--culprit", "3", "--steps", "60", reports=tmp_path / "of" / host, stall_after="15"
        )
    lab.until(lambda: all("HUNG" in lab.said(host) for host in lab.hosts), 150)
    for host, others in (("node-a", "ranks 2-3"), ("node-b", "ranks 0-1")):
        (path,) = (tmp_path / "of" / host).glob("incident-*.json")
        found = files.read(path)
        assert found.verdict.certainty != "proven"
        assert found.verdict.culprits == ()
        assert f"Nothing is known of {others}" in lab.said(host)


@pytest.mark.gallery
def test_a_job_whose_hosts_have_other_plans_is_ended_before_it_hangs(closing: ExitStack, tmp_path: Path) -> None:
    """GIVEN two hosts, one report directory and no dashboard WHEN the ranks' loaders differ THEN both hosts know."""
    lab, shared = Lab(closing, tmp_path, 2), tmp_path / "shared"
    uneven = ("uneven_steps.py", "--culprit", "1", "--steps", "20000")
    started = [lab.train(host, *uneven, per_node=1, reports=shared, on_forecast="abort") for host in lab.hosts]
    lab.until(lambda: all(each.poll() is not None for each in started), 150)
    for host in lab.hosts:
        assert "The loader of rank 1 has 20,000 batches, that of rank 0 20,001" in lab.said(host)
        assert "ended the job before it hangs" in lab.said(host)
    assert [each.returncode for each in started] == [75, 75]
    assert list(shared.glob("*")) == []


def test_a_rank_that_dies_is_blamed_once_by_hosts_that_share_a_directory(closing: ExitStack, tmp_path: Path) -> None:
    """GIVEN a job that comes down, so that every host sees ranks fail, THEN the first to die is named, and once."""
    lab, shared = Lab(closing, tmp_path, 2), tmp_path / "shared"
    for host in lab.hosts:
        lab.train(host, "rank_died.py", "--culprit", "3", reports=shared)
    lab.until(lambda: all("hangwatch: FAILED" in lab.said(host) for host in lab.hosts), 150)
    (path,) = shared.glob("incident-*.json")
    found = files.read(path)
    assert (found.verdict.cause, [(who.rank, who.host) for who in found.verdict.culprits]) == (
        "rank-died",
        [(3, "node-b")],
    )
    assert [rank.rank for rank in found.ranks] == [0, 1, 2, 3]
    assert sum("judged by node-" in lab.said(host) for host in lab.hosts) == 1


SENDS = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
data, until = torch.ones(1 << 20), time.monotonic() + float(sys.argv[1])
go_on = torch.ones(1)
while go_on.item():
    dist.all_reduce(data)
    go_on.fill_(time.monotonic() < until)
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
dist.destroy_process_group()
"""


def test_a_slow_link_is_told_while_the_job_runs(closing: ExitStack, tmp_path: Path) -> None:
    needs.program("tc")
    lab = lab_of(closing, tmp_path, 3)
    lab.shape("node-b", "rate 40mbit burst 32kbit latency 200ms")
    script = tmp_path / "sends.py"
    script.write_text(SENDS)
    for host in lab.hosts:
        lab.train(host, str(script), "140", per_node=1)
    (found,) = lab.until(lambda: [each for each in lab.job["warning_list"] if each["kind"] == "slow-link"], 150)
    assert found["summary"].startswith("The link from node-b to node-")
    assert "the other links" in found["summary"]
    assert found["ranks"] == next(node["ranks"] for node in lab.job["node_list"] if node["host"] == "node-b")
    lab.until(lambda: lab.job["state"] == "finished", 100)
    assert lab.get("/incidents")["incidents"] == []
