"""`hangwatch doctor` across hosts that are network namespaces: what is broken is named, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hangwatch.doctor import Check, Report
from tests import needs
from tests.integration.doctor.lab import Hosts

pytest.importorskip("torch")
pytestmark = [pytest.mark.gallery, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    needs.root()
    needs.program("ip")
    with ExitStack() as stack:
        yield stack


def wrong(report: Report) -> dict[str, Check]:
    return {f"{each.family}: {each.name}": each for each in report.checks if each.state in ("warn", "fail")}


def test_two_hosts_that_are_well(closing: ExitStack, tmp_path: Path) -> None:
    report = Hosts(closing, tmp_path, 2).doctor()
    assert wrong(report) == {}
    assert {each.host for each in report.job.ranks} == {"node-a", "node-b"}
    assert all(each.complete for each in report.job.ranks)


def test_a_host_behind_a_filter(closing: ExitStack, tmp_path: Path) -> None:
    """GIVEN packets of node-c that vanish, THEN its rank is named, and the others are checked all the same."""
    lab = Hosts(closing, tmp_path, 3)
    lab.pull("node-c")
    report = lab.doctor()
    assert report.took_s < 60
    found = wrong(report)
    assert list(found) == ["master: store"]
    assert found["master: store"].ranks == (2,)
    assert "a firewall drops the packets" in found["master: store"].found
    assert {link.peer for link in report.job.ranks[0].links} == {1}


def test_ranks_whose_ports_are_filtered_between_them(closing: ExitStack, tmp_path: Path) -> None:
    """GIVEN hosts that reach the master and not each other, THEN the pairs are named."""
    lab = Hosts(closing, tmp_path, 3)
    lab.inside("node-b", "ip neigh replace 10.79.0.3 lladdr 02:00:00:00:00:99 dev train")
    report = lab.doctor()
    assert report.took_s < 60
    found = wrong(report)
    assert found["links: connections"].ranks == (1, 2)
    assert "no answer within" in found["links: connections"].found
    assert found["links: gloo"].state == "fail"
    assert "master: store" not in found


def test_a_host_that_never_starts(closing: ExitStack, tmp_path: Path) -> None:
    lab = Hosts(closing, tmp_path, 3)
    lab.never_starts("node-c")
    report = lab.doctor()
    assert report.took_s < 60
    missing = wrong(report)["ranks: missing"]
    assert missing.ranks == (2,)
    assert "nothing is heard from node-c" in missing.found
    assert "links: gloo" not in wrong(report), "the two that came talked to each other"


def test_a_slow_link_and_a_clock_that_is_off(closing: ExitStack, tmp_path: Path) -> None:
    needs.program("tc")
    lab = Hosts(closing, tmp_path, 3)
    lab.inside("node-c", "tc qdisc add dev train root tbf rate 100mbit burst 32kbit latency 400ms")
    ahead = tmp_path / "ahead"
    ahead.mkdir()
    (ahead / "sitecustomize.py").write_text("import time\nreal = time.time\ntime.time = lambda: real() + 90\n")
    lab.give("node-b", "PYTHONPATH", str(ahead))
    found = wrong(lab.doctor())
    assert set(found) == {"links: gloo slow link", "clocks: clocks"}
    assert 2 in found["links: gloo slow link"].ranks
    assert "an end at node-c" in found["links: gloo slow link"].found
    assert found["clocks: clocks"].ranks == (1,)
    assert "node-b by +90.0 s" in found["clocks: clocks"].found


def test_two_interfaces_in_one_subnet_and_a_wrong_route(closing: ExitStack, tmp_path: Path) -> None:
    lab = Hosts(closing, tmp_path, 2)
    lab.inside("node-b", "ip address add 10.79.0.52/24 dev manage")
    lab.inside("node-b", "ip route add 10.79.0.1/32 dev manage src 10.79.0.52")
    found = wrong(lab.doctor())
    assert "node-b has several interfaces in 10.79.0.0/24: manage, train" in found["network: one subnet"].found
    assert found["network: route"].ranks == (1,)
    assert "goes by manage, but gloo would use train" in found["network: route"].found


def test_a_host_whose_name_means_its_loopback(closing: ExitStack, tmp_path: Path) -> None:
    """As Debian's installer leaves it: 127.0.1.1 node-b. Other hosts cannot connect to what listens there."""
    lab = Hosts(closing, tmp_path, 2)
    hosts = Path("/etc/netns") / lab._namespace("node-b") / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node-b\n10.79.0.1 node-a\n")
    found = wrong(lab.doctor())
    assert found["names: own name"].ranks == (1,)
    assert "127.0.1.1" in found["names: own name"].found
    assert found["links: connections"].state == "fail"


def test_an_interface_that_one_host_does_not_have_and_settings_that_differ(closing: ExitStack, tmp_path: Path) -> None:
    lab = Hosts(closing, tmp_path, 2)
    lab.inside("node-b", "ip link set train name eth7")
    lab.inside("node-b", "ip link set eth7 up mtu 1400")
    lab.give("node-b", "TORCH_GLOO_LAZY_INIT", "1")
    found = wrong(lab.doctor(NCCL_SOCKET_IFNAME="train"))
    assert found["network: NCCL_SOCKET_IFNAME"].ranks == (1,)
    assert "there are eth7, manage" in found["network: NCCL_SOCKET_IFNAME"].found
    assert "network: MTU" in found
    assert "settings: TORCH_GLOO_LAZY_INIT" in found
