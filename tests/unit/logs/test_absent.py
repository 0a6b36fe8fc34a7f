"""Ranks that did not begin to set up a communicator: of some the log of their host is here, of others it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.model import Verdict
from hangwatch.queues import Queues
from tests.unit.logs.lines import judged, set_up


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    assert found.status == "hung"
    return found.verdict


def begun(*ranks: int, size: int = 16, per_host: int = 8) -> list[str]:
    return [set_up(rank, "START", size, f"node-{rank // per_host}") for rank in ranks]


def uses(host: str, interface: str) -> str:
    return f"{host}:4000:5000 [0] NCCL INFO Bootstrap: Using {interface}:172.17.0.1<0>"


def named(found: Verdict) -> list[int | None]:
    return [each.rank for each in found.culprits]


def test_the_log_of_one_node_blames_no_rank_of_the_other(tmp_path: Path) -> None:
    found = told(tmp_path, *begun(*range(8)))
    assert found.culprits == ()
    assert found.victims == tuple(range(8))
    assert found.summary == (
        "No line of ranks 8-15 is in these logs: either they never began to set up communicator 0x9ad9b5e4ab2566da of"
        " 16 ranks, for which ranks 0-7 wait, or the log of their nodes was not given."
    )
    assert found.fix.startswith("give the logs of the nodes of ranks 8-15 too")


@pytest.mark.parametrize(
    ("ranks", "blamed"),
    [
        ([each for each in range(16) if each != 13], [13]),
        ([each for each in range(16) if each not in (7, 8)], [7, 8]),
        (range(7), [7]),
        ([0, 1, 2, 3, 8, 9, 10, 11], []),  # two of four nodes may have been given
    ],
)
def test_a_rank_whose_neighbours_began_did_not(ranks: list[int], blamed: list[int], tmp_path: Path) -> None:
    assert named(told(tmp_path, *begun(*ranks))) == blamed


def test_a_rank_that_has_a_node_of_its_own_may_have_a_log_of_its_own(tmp_path: Path) -> None:
    assert named(told(tmp_path, *begun(0, 1, 2, size=4, per_host=1))) == []


def test_a_rank_with_a_line_of_its_own_has_a_log_here(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("\n".join(begun(0, 1, 2, size=4, per_host=1)) + "\n")
    logs = Logs()
    assert read(tmp_path / "job.log", logs)
    logs.last_words[3] = "loading the data set"
    found = assess(completed(Queues(), logs), logs).judgement
    assert found is not None
    assert named(found.verdict) == [3]


def test_both_kinds_of_absent_ranks_are_told_apart(tmp_path: Path) -> None:
    summary = told(tmp_path, *begun(*range(7))).summary
    assert summary.startswith("Rank 7 never began to set up")
    assert summary.endswith(
        "No line of ranks 8-15 is in these logs: they never began either, or the log of their nodes was not given."
    )


@pytest.mark.parametrize("interface", ["docker0", "lo", "virbr0", "br-0123456789ab"])
def test_an_interface_that_other_hosts_do_not_reach(interface: str, tmp_path: Path) -> None:
    for ranks in (range(8), range(16)):
        found = told(tmp_path, uses("node-0", interface), *begun(*ranks))
        assert f"NCCL uses {interface} on node-0, which other hosts do not reach" in found.fix


def test_an_interface_of_the_host_is_no_fault_on_one_host_or_of_a_communicator_that_is_set_up(tmp_path: Path) -> None:
    found = told(tmp_path, uses("node-0", "lo"), *begun(*range(7), size=8))
    assert "NCCL_SOCKET_IFNAME" not in found.fix
    found = told(tmp_path, uses("node-0", "eth0"), *begun(*range(8)))
    assert "NCCL_SOCKET_IFNAME" not in found.fix
    ready = [line.replace("START", word) for line in begun(*range(8)) for word in ("START", "COMPLETE")]
    assert judged(tmp_path, "\n".join([uses("node-0", "docker0"), *ready])).judgement is None
