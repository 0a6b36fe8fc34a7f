"""Launchers that could start nothing on a node, in the words of ssh and in their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.model import Certainty, Status, Verdict
from hangwatch.queues import Queues
from tests.unit.logs.lines import judged, set_up

RULE = "-" * 74
UNABLE = "{name} was unable to reliably start one or more daemons.\nThis usually is caused by:\n\n* no libraries"
DAEMON = """\
An ORTE daemon has unexpectedly failed after launch and before
communicating back to mpirun. This could be caused by a number
of factors.

  HNP daemon   : [[227,0],0] on node n1
  Remote daemon: [[227,0],4] on node n4"""
KEY, KEY_FIX = "Host key verification failed.", "known_hosts"


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    assert found.status is Status.FAILED
    return found.verdict


def test_a_daemon_of_mpirun_that_ssh_did_not_start(tmp_path: Path) -> None:
    found = told(tmp_path, KEY, RULE, UNABLE.format(name="ORTE"), RULE, RULE, DAEMON, RULE)
    assert (found.cause, found.certainty) == ("node-not-started", Certainty.LIKELY)
    assert [(each.rank, each.host) for each in found.culprits] == [(None, "n4")]
    assert found.summary == "The launcher could start nothing on n4: Host key verification failed."
    assert found.fix.startswith("let n4 be known (ssh-keyscan n4 >> ~/.ssh/known_hosts)")


@pytest.mark.parametrize("name", ["ORTE", "PRTE"])
def test_a_daemon_of_which_ssh_says_nothing(name: str, tmp_path: Path) -> None:
    found = told(tmp_path, RULE, UNABLE.format(name=name), RULE)
    assert (found.cause, found.culprits) == ("node-not-started", ())
    assert "which no line names" in found.summary
    assert "reached by ssh" in found.fix


@pytest.mark.parametrize(
    ("line", "node", "fix"),
    [
        (KEY, None, KEY_FIX),
        (f"n4: {KEY}", "n4", KEY_FIX),
        ("mia@n4: Permission denied (publickey,password).", "n4", "ssh-copy-id"),
        ("Permission denied (publickey).", None, "ssh-copy-id"),
        ("n4: mia@n4: Permission denied (publickey).", "n4", "ssh-copy-id"),
        ("ssh: connect to host n4 port 22: Connection refused", "n4", "sshd"),
        ("n4: ssh: connect to host n4 port 2222: Connection timed out", "n4", "sshd"),
        ("ssh: Could not resolve hostname n4: Name or service not known", "n4", "list of hosts"),
        ("kex_exchange_identification: Connection closed by remote host", None, "by ssh"),
    ],
)
def test_what_ssh_says_at_the_end_of_a_log(line: str, node: str | None, fix: str, tmp_path: Path) -> None:
    found = told(tmp_path, "starting on 4 nodes", line)
    assert (found.cause, found.certainty) == ("node-not-started", Certainty.UNDETERMINED)
    assert [each.host for each in found.culprits] == ([node] if node else [])
    assert fix in found.fix


@pytest.mark.parametrize(
    "line",
    [
        "pdsh@n1: n4: ssh exited with exit code 255",
        "RuntimeError: Using hostfile at /job/hostfile but host=n4 was not reachable via ssh. If you are running",
    ],
)
def test_a_launcher_that_says_it_itself(line: str, tmp_path: Path) -> None:
    found = told(tmp_path, line, *("some line of the launcher's",) * 5)
    assert (found.certainty, [each.host for each in found.culprits]) == (Certainty.LIKELY, ["n4"])


@pytest.mark.parametrize(
    "behind",
    [
        [f"step {step} loss 2.1" for step in range(3)],
        ["loading data", "building the model", "training", "saved", "done"],
        ["fatal: Could not read from remote repository."],
    ],
)
def test_what_ssh_says_before_a_program_does_something_else_is_no_failure(behind: list[str], tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("\n".join([KEY, *behind]) + "\n")
    logs = Logs()
    read(path, logs)
    assert assess(completed(Queues(), logs), logs).judgement is None


@pytest.mark.parametrize("line", ["git@github.com: Permission denied (publickey).", "Permission denied: '/data'"])
def test_what_is_no_start_of_a_node(line: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(f"{line}\n")
    assert not read(path, Logs())


def test_a_job_that_has_begun_was_started(tmp_path: Path) -> None:
    begun = [set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)]
    found = judged(tmp_path, "\n".join([*begun, KEY])).judgement
    assert found is None or found.verdict.cause != "node-not-started"
