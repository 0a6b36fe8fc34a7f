"""What NCCL says of a host's own setting, version and adapter, and what follows from it on other ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, nothing_of_use, read
from hangwatch.model import Verdict
from tests.unit.logs.lines import failure, far, gave_up, judged, set_up, table
from tests.unit.logs.test_ends import UNTOLD
from tests.unit.logs.test_own_words import trace

NCCL_ERROR = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, internal error, NCCL version 2.27.3"
NONE_FOUND = "Bootstrap : no socket interface found"


def line(rank: int, said: str, host: str = "gpu-b", level: str = "WARN") -> str:
    return f"{host}:{4000 + rank}:{5000 + rank} [{rank % 2}] NCCL {level} {said}"


def no_interface(rank: int) -> list[str]:
    return [
        line(rank, "NCCL_SOCKET_IFNAME set by environment to bond7", level="INFO"),
        line(rank, NONE_FOUND),
        trace(rank, NCCL_ERROR),
        f"[rank{rank}]: Last error:",
        f"[rank{rank}]: {NONE_FOUND}",
    ]


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


def named(verdict: Verdict) -> list[int | None]:
    return [each.rank for each in verdict.culprits]


# ------------------------------------------------------------------------------------------ interfaces


def test_ranks_whose_host_has_not_the_interface_failed_by_themselves(tmp_path: Path) -> None:
    lines = [*no_interface(4), *no_interface(5)]
    found = told(tmp_path, *lines)
    assert (found.cause, found.certainty, named(found)) == ("exception-on-one-rank", "likely", [4, 5])
    assert "NCCL_SOCKET_IFNAME=bond7 names none that is up" in found.summary
    assert "on gpu-b" in found.fix
    assert {each.host for each in found.culprits} == {"gpu-b"}
    # AND ranks that wait for them are victims, and so are those that fail after them
    waiting = [set_up(rank, "START", size=6) for rank in range(4)]
    found = told(tmp_path, *lines, *waiting, table(failure(4, 1, UNTOLD, root=True)))
    assert (named(found), found.victims) == ([4, 5], (0, 1, 2, 3))


def test_no_interface_without_a_setting_or_a_rank(tmp_path: Path) -> None:
    found = told(tmp_path, line(4, NONE_FOUND))
    assert (found.summary, named(found)) == (
        "NCCL found no network interface that it may use on gpu-b.",
        [],
    )
    # AND a rank whose file names it
    (tmp_path / "rank9.log").write_text(line(9, NONE_FOUND) + "\n")
    assert read(tmp_path / "rank9.log", logs := Logs())
    assert logs.no_interface.ranks == {9}


def test_an_error_of_another_rank_comes_before_an_interface_that_is_not_found(tmp_path: Path) -> None:
    found = told(tmp_path, *no_interface(4), trace(1, "ValueError: no"))
    assert named(found) == [1]


def test_a_setting_is_no_fault_nor_a_process_that_went_on_without_an_interface(tmp_path: Path) -> None:
    setting = line(0, "NCCL_SOCKET_IFNAME set by environment to bond7", level="INFO")
    ready = [set_up(rank, word, size=2, host="gpu-b") for rank in (0, 1) for word in ("START", "COMPLETE")]
    found = judged(tmp_path, "\n".join([setting, line(0, "NET/Socket : no interface found"), *ready]))
    assert found.judgement is None
    (tmp_path / "setting.log").write_text(setting + "\n")
    assert not read(tmp_path / "setting.log", logs := Logs())
    assert nothing_of_use([tmp_path / "setting.log"], logs)[0].startswith("nothing of a hang")


# ------------------------------------------------------------------------------------------ versions


def versions(*of_hosts: str) -> list[str]:
    return [
        said
        for rank, version in enumerate(of_hosts)
        for said in (
            line(rank, f"NCCL version {version}+cuda12.8", host=f"gpu-{rank}", level="INFO"),
            set_up(rank, "START", size=len(of_hosts), host=f"gpu-{rank}"),
        )
    ]


def test_hosts_with_different_versions_of_nccl_that_do_not_come_together(tmp_path: Path) -> None:
    found = told(tmp_path, *versions("2.27.3", "2.26.2"))
    assert (found.cause, found.certainty, named(found), found.hang) == ("launch-mismatch", "likely", [], "likely")
    assert (
        "different versions of NCCL, which do not work together: 2.26.2 on gpu-1 and 2.27.3 on gpu-0" in found.summary
    )
    # AND NCCL's warning is evidence
    found = told(tmp_path, *versions("2.27.3", "2.26.2"), line(0, "Message truncated : received 96 bytes instead of 4"))
    assert any("Message truncated" in said for said in found.evidence)


def test_versions_by_the_exceptions_of_ranks(tmp_path: Path) -> None:
    truncated = line(0, "Message truncated : received 96 bytes instead of 4", host="gpu-0")
    other = NCCL_ERROR.replace("2.27.3", "2.26.2")
    found = told(tmp_path, truncated, trace(0, NCCL_ERROR), trace(1, NCCL_ERROR), trace(2, other))
    assert found.cause == "launch-mismatch"
    assert found.summary.endswith(": 2.26.2 on rank 2 and 2.27.3 on ranks 0-1.")
    # AND where no version is told, the warning alone settles nothing
    found = told(tmp_path, truncated)
    assert (found.cause, found.certainty) == ("undetermined", "undetermined")
    assert "versions of NCCL" in found.fix


def test_versions_that_differ_are_no_fault_where_the_ranks_came_together(tmp_path: Path) -> None:
    done = [set_up(rank, "COMPLETE", size=2, host=f"gpu-{rank}") for rank in range(2)]
    assert judged(tmp_path, "\n".join([*versions("2.27.3", "2.26.2"), *done])).judgement is None
    # AND equal ones leave the network as the likely cause
    assert told(tmp_path, *versions("2.27.3", "2.27.3")).cause == "network-partition"


# ------------------------------------------------------------------------------------------ adapters

GIDS = "localGid fe80::aaaa:bbbb:cccc:dddd remoteGidsfe80::1111:2222:3333:4444"
COMPLETION = (
    f"NET/IB: Got completion from peer 10.9.0.3<41001> with status=12 opcode=0 len=0 vendor err 129 (Recv) {GIDS}"
)


@pytest.mark.parametrize("level", ["INFO", "WARN"])
def test_the_adapter_that_fails_is_named_with_host_and_rank(level: str, tmp_path: Path) -> None:
    ready = [set_up(rank, word, host="gpu-b") for rank in range(4) for word in ("START", "COMPLETE")]
    waits = [said for rank in range(4) for said in (gave_up(rank, 31), far(rank, 31, 31, 30))]
    event = line(2, "NET/IB: Got async event : port error", level=level)
    found = told(tmp_path, *ready, event, line(2, f"{COMPLETION} hca mlx5_6"), *waits)
    assert (found.cause, found.certainty) == ("interconnect-stall", "likely")
    assert found.summary.endswith("NCCL reports errors of mlx5_6 of gpu-b (rank 2).")
    assert found.fix.startswith("look at mlx5_6 of gpu-b (rank 2) and its link")
    assert found.alternatives == ()
    assert "rank 2 on gpu-b: NET/IB: Got async event : port error" in found.evidence
    (status,) = (said for said in found.evidence if "status=12" in said)
    assert status.endswith("(Recv) hca mlx5_6")


def test_an_event_of_a_port_that_is_no_error_is_none(tmp_path: Path) -> None:
    ready = [set_up(rank, word, size=2, host="gpu-b") for rank in (0, 1) for word in ("START", "COMPLETE")]
    event = line(0, "NET/IB: Got async event : port active", level="INFO")
    assert judged(tmp_path, "\n".join([*ready, event])).judgement is None


def test_a_warning_without_an_adapter_names_none(tmp_path: Path) -> None:
    found = told(tmp_path, line(2, COMPLETION))
    assert found.fix.startswith("look at that port and its link")


# ------------------------------------------------------------------------------------------ blamed ranks


def test_a_rank_that_is_blamed_is_no_victim_of_its_watchdog(tmp_path: Path) -> None:
    calls = [gave_up(0, 9), gave_up(1, 9), gave_up(2, 9, "BROADCAST", 7, 7)]
    found = told(tmp_path, *calls, *(far(rank, 9, 9, 8) for rank in range(3)))
    assert named(found) == [2]
    assert "torch's watchdog gave up after 10 min on ranks 0-1: victims, not the cause" in found.evidence


def test_the_line_at_which_an_error_of_a_device_surfaced_is_told(tmp_path: Path) -> None:
    error = NCCL_ERROR.replace("internal error", "unhandled cuda error")
    last = ["[rank3]: Last error:", "[rank3]: Cuda failure 719 'unspecified launch failure'"]
    found = told(tmp_path, trace(3, error), *last)
    assert named(found) == [3]
    assert found.culprits[0].where is not None
    assert found.evidence[0].startswith("it surfaced on rank 3 (")
