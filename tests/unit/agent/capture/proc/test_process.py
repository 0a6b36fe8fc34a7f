"""Facts where /proc is not what it should be."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import OpenFile, ProcessFacts
from hangwatch_agent.capture.proc import descriptors, process
from hangwatch_agent.capture.proc.process import distributed_settings, process_facts, second_sample
from hangwatch_agent.shared import procfs
from tests.unit.agent.capture import made_up


def test_a_container_without_wchan_and_the_rest(tmp_path: Path) -> None:
    made_up.process(tmp_path, 5, command="python train.py --token hunter2", environment={"RANK": "1", "HOME": "/x"})
    facts = process_facts(5, proc=tmp_path)
    assert (facts.state, facts.command, facts.environment) == ("S", "python train.py --token [redacted]", {"RANK": "1"})
    assert (facts.wait_channel, facts.system_call, facts.io_bytes, facts.sockets) == (None, None, None, ())
    assert {"wait channel: not there", "system call: not there", "io: not there"} <= set(facts.unreadable)


def test_files_of_nonsense_are_named(tmp_path: Path) -> None:
    folder = made_up.process(tmp_path, 5)
    for name in ("wchan", "io", "limits"):
        (folder / name).write_bytes(b"\xff\xfe\0 nonsense")
    (folder / "task/5/syscall").write_text("what?")
    unreadable = process_facts(5, proc=tmp_path).unreadable
    assert any(what.startswith("io: cannot be understood") for what in unreadable)
    assert any(what.startswith("system call: cannot be understood") for what in unreadable)


def test_a_process_that_ends_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made_up.process(tmp_path, 5)

    def ends(path: Path) -> str:
        shutil.rmtree(folder)
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(process, "wait_channel", ends)
    facts = process_facts(5, proc=tmp_path)
    assert (facts.state, facts.command) == ("X", "python train.py")


def test_the_memory_of_a_process_in_state_d_is_left_alone(tmp_path: Path) -> None:
    folder = made_up.process(tmp_path, 5, state="D", environment={"RANK": "0"})
    (folder / "task/5/syscall").write_text("257 0xffffff9c 0x1000 0x0 0x0 0x0 0x0 0x7ffe 0x7f01")
    (folder / "mem").write_bytes(b"/x\0" * 4096)
    facts = process_facts(5, proc=tmp_path)
    assert (facts.command, facts.environment, facts.blocked_on) == ("python", {}, None)
    assert "environment: not read in state D" in facts.unreadable
    earlier = ProcessFacts(5, "S", started_at=facts.started_at, command="python train.py", environment={"RANK": "0"})
    known = second_sample(earlier, facts)
    assert (known.command, known.environment) == ("python train.py", {"RANK": "0"})
    assert procfs.is_same(5, 1.0, tmp_path, mapped=tmp_path / "board")


def test_a_wait_channel_of_zero_is_none(tmp_path: Path) -> None:
    (tmp_path / "wchan").write_text("0")
    assert process.wait_channel(tmp_path / "wchan") == ""


def test_differences_are_never_negative_and_unknown_stays_unknown() -> None:
    first = ProcessFacts(5, "S", started_at=1.0, cpu_s=3.0, io_bytes=None)
    second = second_sample(first, ProcessFacts(5, "S", started_at=1.0, cpu_s=2.5, io_bytes=7))
    assert (second.cpu_delta_s, second.io_delta_bytes) == (0.0, None)


@pytest.mark.parametrize(("used", "state"), [(0.05, "S"), (0.6, "R")])
def test_one_that_naps_is_told_by_its_nap_though_it_was_seen_awake(used: float, state: str) -> None:
    naps = ProcessFacts(5, "S", started_at=1.0, cpu_s=3.0, system_call="clock_nanosleep", sleeps_s=0.04)
    awake = ProcessFacts(5, "R", started_at=1.0, cpu_s=3.0 + used, system_call="")
    found = second_sample(naps, awake)
    assert (found.state, found.system_call) == (state, "clock_nanosleep" if state == "S" else "")
    # AND one that was in another wait may have been woken: it may lack a processor since
    woken = second_sample(replace(naps, system_call="futex"), awake)
    assert (woken.state, woken.system_call) == ("R", "")
    # AND so does one that is never seen asleep
    assert second_sample(replace(naps, state="R", system_call=""), awake).state == "R"


@pytest.mark.parametrize(("then", "received"), [("socket a -> b", 40), ("socket a -> c", None)])
def test_what_came_is_known_of_one_connection_only(then: str, received: int | None) -> None:
    first = ProcessFacts(5, "S", started_at=1.0, blocked_on=OpenFile(7, "socket a -> b"), received_bytes=60)
    second = replace(first, blocked_on=OpenFile(7, then), received_bytes=100)
    assert second_sample(first, second).received_delta_bytes == received


def test_which_settings_are_kept() -> None:
    environment = {
        "MASTER_ADDR": "a", "NCCL_SOCKET_IFNAME": "eth0", "SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "x",
        "WANDB_API_KEY": "k", "PATH": "/bin", "OMPI_COMM_WORLD_RANK": "0", "HANGWATCH_TOKEN": "t",
        "SLURM_JWT_TOKEN": "secret",
    }  # fmt: skip
    assert distributed_settings(environment) == {
        "HANGWATCH_TOKEN": "[redacted]",
        "MASTER_ADDR": "a",
        "NCCL_SOCKET_IFNAME": "eth0",
        "OMPI_COMM_WORLD_RANK": "0",
        "SLURM_JOB_ID": "7",
        "SLURM_JWT_TOKEN": "[redacted]",
        "TORCHELASTIC_RUN_ID": "x",
    }


def test_descriptors_by_path_and_file_system(tmp_path: Path) -> None:
    folder = made_up.process(tmp_path, 5)
    (folder / "fd/4").symlink_to("/data/set/part 1")
    (folder / "mountinfo").write_text(
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "21 20 0:50 / /data rw,relatime shared:1 - nfs4 server:/x rw\n"
        "22 20 0:51 / /data/set/with\\040blank rw - tmpfs tmpfs rw\n"
        "23 20 0:52 / /database rw - xfs /dev/sdb rw\n"
    )
    assert descriptors.open_file(5, 4, tmp_path) == OpenFile(4, "/data/set/part 1", "nfs4")
    assert descriptors.filesystem_of(5, "/data/set/with blank/x", tmp_path) == "tmpfs"
    assert descriptors.filesystem_of(5, "/database/x", tmp_path) == "xfs"
    assert descriptors.filesystem_of(5, "/other", tmp_path) == "ext4"
    assert descriptors.filesystem_of(6, "/other", tmp_path) is None


def test_limits(tmp_path: Path) -> None:
    folder = made_up.process(tmp_path, 5)
    row = "Max open files            {}                 524288               files     \n"
    (folder / "limits").write_text("Limit Soft Limit Hard Limit Units\n" + row.format("1024"))
    assert descriptors.limit(5, tmp_path) == 1024
    (folder / "limits").write_text(row.format("unlimited"))
    assert descriptors.limit(5, tmp_path) is None
    (folder / "limits").write_text("")
    assert descriptors.limit(5, tmp_path) is None


def test_what_a_process_is_about_to_open(tmp_path: Path) -> None:
    """A named pipe is told apart; a file system that may not answer is not asked."""
    folder = tmp_path / "5"
    (folder / "root" / "data").mkdir(parents=True)
    (folder / "cwd").mkdir()
    for name in ("root/data/queue", "cwd/queue"):
        os.mkfifo(folder / name)
    (folder / "root/data/file").touch()
    line = "30 1 8:1 / {} rw - {} none rw"
    (folder / "mountinfo").write_text("\n".join([line.format("/", "ext4"), line.format("/remote", "nfs4")]))
    assert descriptors.named(5, "/data/queue", tmp_path) == OpenFile(-1, "/data/queue", "fifo")
    assert descriptors.named(5, "/data/file", tmp_path) == OpenFile(-1, "/data/file", "ext4")
    assert descriptors.named(5, "/data/none", tmp_path) == OpenFile(-1, "/data/none", "ext4")
    (folder / "root/remote").symlink_to("data")
    assert descriptors.named(5, "/remote/queue", tmp_path) == OpenFile(-1, "/remote/queue", "nfs4")


def test_a_relative_path_is_that_of_the_working_directory(tmp_path: Path) -> None:
    folder, data = tmp_path / "5", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    os.mkfifo(data / "queue")
    (folder / "cwd").symlink_to(data)
    (folder / "mountinfo").write_text("30 1 8:1 / / rw - ext4 none rw")
    assert descriptors.named(5, "queue", tmp_path) == OpenFile(-1, f"{data}/queue", "fifo")
    assert descriptors.named(5, "file", tmp_path) == OpenFile(-1, f"{data}/file", "ext4")
    (folder / "cwd").unlink()
    assert descriptors.named(5, "queue", tmp_path) == OpenFile(-1, "queue", None)


def test_threads_that_poll_for_messages_do_not_work(tmp_path: Path) -> None:
    """GIVEN a process, most of whose time its poller took WHEN it is sampled twice THEN only the rest counts."""
    folder = made_up.process(tmp_path, 5)
    poller = folder / "task/6"
    poller.mkdir()

    def used(ticks: int, polling: int) -> ProcessFacts:
        for path, name, spent in ((folder, "python", ticks), (poller, "TP_SHM_reactor", polling)):
            _, _, tail = (folder / "task/5/stat").read_text().rpartition(")")
            values = tail.split()
            values[11:13] = [str(spent), "0"]
            (path / "stat").write_text(f"{path.name} ({name}) " + " ".join(values))
        return process_facts(5, proc=tmp_path)

    facts = second_sample(used(200, 150), used(300, 240))
    assert facts.polling_s == 240 / procfs.TICKS_PER_S
    assert facts.cpu_delta_s == pytest.approx(10 / procfs.TICKS_PER_S)
