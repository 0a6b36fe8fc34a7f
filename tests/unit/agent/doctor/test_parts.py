"""What a probe reads of its machine, and how ranks divide the measuring among them."""

from __future__ import annotations

import os
import socket
import struct
from itertools import combinations
from pathlib import Path

import pytest

from hangwatch.doctor import endpoint
from hangwatch.doctor.launch import MARKED, marked_lines
from hangwatch.doctor.model import Interface, Lookup
from hangwatch_agent.doctor import fabric, machine, rank
from hangwatch_agent.doctor.groups import rounds
from hangwatch_agent.doctor.mesh import Mesh, partners


def test_bridges_that_redirect_peer_traffic(tmp_path: Path) -> None:
    """GIVEN a bridge with access control, one without, and a GPU, THEN the first alone is told."""
    for name, kind, control in (
        ("0000:01", "0x060400", 0x1D),
        ("0000:02", "0x060400", 0x00),
        ("0000:03", "0x030200", 0x1D),
    ):
        device = tmp_path / "bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "class").write_text(kind)
        config = bytearray(4096)
        struct.pack_into("<I", config, 0x100, 0x0001 | 0x148 << 20)  # another capability first
        struct.pack_into("<I", config, 0x148, 0x000D)
        struct.pack_into("<H", config, 0x14E, control)
        (device / "config").write_bytes(bytes(config))
    (tmp_path / "class/iommu/dmar0").mkdir(parents=True)
    read = fabric.read(None, tmp_path)
    assert (read.acs_bridges, read.iommu) == (("0000:01",), True)


def test_ports_and_their_addresses(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs/types").mkdir(parents=True)
    (port / "link_layer").write_text("Ethernet\n")
    (port / "state").write_text("4: ACTIVE\n")
    for number, gid in enumerate(
        ("0000:0000:0000:0000:0000:0000:0000:0000", "0000:0000:0000:0000:0000:ffff:0a00:0001")
    ):
        (port / "gids" / str(number)).write_text(gid)
        (port / "gid_attrs/types" / str(number)).write_text("RoCE v2\n")
    read = fabric.read(None, tmp_path)
    assert read.ports == ("mlx5_0/1 Ethernet ACTIVE",)
    assert read.gids == ("mlx5_0/1 1 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:0001",)


def test_signs_of_a_container(tmp_path: Path) -> None:
    assert machine.container({}, tmp_path) == ""
    (tmp_path / ".dockerenv").touch()
    assert machine.container({}, tmp_path) == "/.dockerenv"
    assert machine.container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path) == "KUBERNETES_SERVICE_HOST"


def test_a_quota_counts_as_fewer_processors(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.processors(tmp_path / "cpu.max") == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.processors(tmp_path / "cpu.max") == len(os.sched_getaffinity(0))


def test_where_gloo_would_listen() -> None:
    known = (Interface("lo", "127.0.0.1", "127.0.0.0/8", loopback=True), Interface("eth0", "10.9.9.9", "10.9.9.0/24"))
    assert machine.own_address(Lookup("here", ("127.0.0.1",)), known, {"GLOO_SOCKET_IFNAME": "eth0"}) == "10.9.9.9"
    assert machine.own_address(Lookup("here", ("10.9.9.9", "127.0.0.1")), known, {}) == "127.0.0.1", "what it can bind"
    assert machine.lookup("no-such-host.invalid").problem
    assert machine.lookup("").problem == "not set"


def test_the_user_code_that_would_have_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass")
    code = machine.code(["python", str(tmp_path / "train.py")])
    assert (code.script, len(code.digest), code.commit) == (str(tmp_path / "train.py"), 16, "")


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_rounds_pair_everyone_once(count: int) -> None:
    paired = list(rounds(range(count)))
    assert sorted(tuple(sorted(pair)) for each in paired for pair in each) == list(combinations(range(count), 2))
    assert all(len({rank for pair in each for rank in pair}) == 2 * len(each) for each in paired)


def test_partners_in_a_large_job_are_few_and_join_all_hosts() -> None:
    hosts = {rank: f"host-{rank // 8}" for rank in range(128)}
    roster = list(range(128))
    chosen = {rank: partners(rank, roster, hosts) for rank in roster}
    assert max(map(len, chosen.values())) <= 24
    assert {hosts[peer] for peer in chosen[0]} == {f"host-{number}" for number in range(16)}
    assert partners(1, [0, 1, 2], {0: "a", 1: "a", 2: "b"}) == [0, 2]


def test_peers_are_answered_only_with_the_token() -> None:
    mesh, stranger = Mesh(), Mesh()
    mesh.token = stranger.token = b"0123456789abcdef"
    link = mesh.measure(1, "127.0.0.1", mesh.port)
    assert (link.ok, link.peer) == (True, 1)
    assert abs(link.clock_offset_s or 0.0) < 1.0
    stranger.token = b"another---------"
    assert not stranger.measure(1, "127.0.0.1", mesh.port).ok


def test_the_reasons_of_a_port_that_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert endpoint.reach("127.0.0.1", port) == ""
    assert "refused" in endpoint.reach("127.0.0.1", port)
    assert "does not resolve" in endpoint.reach("no-such-host.invalid", 1)
    assert "is no HOST:PORT" in endpoint.problem("host")


def test_what_a_command_says_of_its_launch() -> None:
    torchrun = ["torchrun", "--nnodes=2", "--nproc_per_node", "4", "--rdzv-endpoint=node-a:29400", "train.py"]
    assert (endpoint.named(torchrun), endpoint.ranks(torchrun)) == ("node-a:29400", 8)
    assert endpoint.named(["torchrun", "--master_addr", "a", "--master_port", "7"]) == "a:7"
    assert (endpoint.named(["python", "train.py"]), endpoint.ranks(["torchrun", "--nproc-per-node", "gpu"])) == (
        "",
        None,
    )


def test_facts_survive_labels_and_long_lines() -> None:
    lines = list(marked_lines(os.urandom(20_000)))
    assert len(lines) > 1
    assert all(len(line) < 4096 and MARKED.search(b"[default0]:" + line) for line in lines)


def test_the_time_that_is_left_does_not_trust_the_clock_of_another_host() -> None:
    environment = {"HANGWATCH_DOCTOR_SECONDS": "56", "HANGWATCH_DOCTOR_UNTIL": "1056"}
    assert rank.seconds_left(environment, 1010.0) == 46.0
    assert rank.seconds_left(environment, 5000.0) == 56.0
    assert rank.seconds_left(environment, 0.0) == 56.0
