"""Each check of a preflight where it fires, and where it must not."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hangwatch.doctor.families import FAMILIES, all_checks
from hangwatch.doctor.model import (
    Code,
    Fabric,
    Interface,
    Job,
    Launch,
    Link,
    Lookup,
    RankFacts,
    Report,
    Stage,
    State,
    System,
)
from hangwatch.doctor.page import page
from hangwatch.model import GpuFacts
from hangwatch.wire import codec

GIB = 1 << 30
STAGES = tuple(Stage(name, True, 0.1) for name in ("nvml", "torch", "store", "tcp", "gloo", "cuda"))
WELL = System(8 * GIB, 8 * GIB, 65536, None, None, 0, True, "", None, 16)


def gpu(index: int, **parts: Any) -> GpuFacts:
    return GpuFacts(index, f"GPU-{index}", "NVIDIA H200", memory_used=0, memory_total=80 * GIB, **parts)


def rank(number: int, host: str = "", **parts: Any) -> RankFacts:
    """Rank `number` of four on two hosts, where all is well."""
    host = host or ("node-a" if number < 2 else "node-b")
    address = "10.0.0.1" if host == "node-a" else "10.0.0.2"
    links = tuple(
        link
        for peer in range(4)
        if peer != number
        for link in (
            Link(peer, "tcp", True, "10.0.0.9:5", latency_s=2e-5, clock_offset_s=0.0),
            Link(peer, "gloo", True, latency_s=5e-5, bandwidth=2e9),
        )
    )
    facts = RankFacts(
        rank=number,
        world_size=4,
        host=host,
        pid=100 + number,
        complete=True,
        local_rank=number % 2,
        master="node-a:29500",
        store="reached",
        environment={"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1"},
        lookups=(Lookup("node-a", ("10.0.0.1",)), Lookup(host, (address,))),
        interfaces=(
            Interface("lo", "127.0.0.1", "127.0.0.0/8", loopback=True, mtu=65536),
            Interface("eth0", address, "10.0.0.0/24", mtu=9000),
            Interface("eth1", f"192.168.0.{number}", "192.168.0.0/24", mtu=1500),
        ),
        route="eth0",
        address=address,
        roster=(0, 1, 2, 3),
        system=WELL,
        versions={"torch": "2.13.0", "nccl": "2.27", "driver": "570", "numpy": "2.0"},
        code=Code("train.py", "ab12", "c0ffee", False),
        gpus=(gpu(0), gpu(1)),
        gpu_used=f"GPU-{number % 2}",
        fabric=Fabric(ports=("mlx5_0/1 Ethernet ACTIVE",), gids=("mlx5_0/1 3 RoCE v2 ::1",)),
        stages=STAGES,
        links=links,
    )
    return replace(facts, **parts)


def job(*changed: RankFacts, launch: Launch | None = None, without: tuple[int, ...] = ()) -> Job:
    ranks = {each: rank(each) for each in range(4) if each not in without} | {each.rank: each for each in changed}
    return Job(tuple(ranks[each] for each in sorted(ranks)), launch or Launch(("torchrun",), 0, 6.0))


def wrong(job: Job) -> dict[str, str]:
    """What is not well, by family and name."""
    found = [each for each in all_checks(job) if each.state in (State.WARN, State.FAIL)]
    assert all(each.advice for each in found), "what is not well comes with what to do"
    return {f"{each.family}: {each.name}": each.found for each in found}


def test_where_all_is_well_every_family_says_so_and_nothing_else() -> None:
    checks = list(all_checks(job()))
    assert wrong(job()) == {}
    assert {each.family for each in checks} == set(FAMILIES)
    assert {each.state for each in checks} == {State.OK}


def changed(number: int, **parts: Any) -> Callable[[], Job]:
    return lambda: job(rank(number, **parts))


def interfaces(*more: Interface) -> tuple[Interface, ...]:
    return (*rank(2).interfaces, *more)


def link(peer: int, kind: str = "gloo", **parts: Any) -> tuple[Link, ...]:
    """The links of rank 2, one of them as the parts say."""
    return tuple(replace(e, **parts) if (e.peer, e.kind) == (peer, kind) else e for e in rank(2).links)


def settings(**values: str) -> dict[str, str]:
    return rank(0).environment | values


def everywhere(**parts: Any) -> Callable[[], Job]:
    return lambda: job(*(rank(each, **parts) for each in range(4)))


CASES: list[tuple[str, str, Callable[[], Job]]] = [
    ("launch: command", "no rank was started: the launcher ended", lambda: Job((), Launch(("x",), 1, 2.0))),
    ("launch: command", "the launcher waits", lambda: Job((), Launch(("x",), None, 56.0))),
    ("launch: command", "cannot run x", lambda: Job((), Launch(("x",), problem="cannot run x: not found"))),
    (
        "launch: rendezvous",
        "node-a:29400: no answer",
        lambda: job(launch=Launch(("x",), 0, 1.0, "", (), "node-a:29400", "no answer")),
    ),
    (
        "ranks: missing",
        "rank 3 of 4 never connected to node-a:29500",
        lambda: job(*(rank(n, roster=(0, 1, 2)) for n in range(3)), without=(3,)),
    ),
    ("ranks: world size", "8 on rank 3", changed(3, world_size=8)),
    (
        "ranks: twice",
        "pid 101 on node-a, pid 7 on node-b",
        lambda: Job((*job().ranks, rank(1, "node-b", pid=7)), Launch()),
    ),
    ("ranks: order", "node-a has ranks 0 and 3", lambda: job(rank(3, "node-a"), rank(1, "node-b"))),
    ("ranks: host", "rank 3 on node-b (asked for: node-z)", changed(3, asked_host="node-z")),
    ("ranks: local rank", "ranks 2-3 on node-b have the same LOCAL_RANK 0", changed(3, local_rank=0)),
    (
        "names: MASTER_ADDR",
        "does not resolve on rank 2: unknown",
        changed(2, lookups=(Lookup("node-a", problem="unknown"), Lookup("b"))),
    ),
    (
        "names: MASTER_ADDR",
        "means different addresses",
        changed(2, lookups=(Lookup("node-a", ("10.9.9.9",)), Lookup("b"))),
    ),
    (
        "names: MASTER_ADDR",
        "is a loopback address",
        everywhere(lookups=(Lookup("localhost", ("127.0.0.1",)), Lookup("b"))),
    ),
    ("names: own name", "on rank 2 the host's own name", changed(2, address="127.0.1.1")),
    ("names: slow", "took 5.0 s on rank 2", changed(2, lookups=(Lookup("node-a", ("10.0.0.1",), 5.0), Lookup("b")))),
    ("master: store", "rank 2 cannot use node-a:29500: refused", changed(2, store="refused")),
    ("master: answer", "got no answer", changed(2, store="", stages=(Stage("store"),))),
    ("master: address", "node-a:1 on rank 2", changed(2, master="node-a:1")),
    ("clocks: clocks", "node-b by +90.0 s", changed(0, links=(Link(2, "tcp", True, clock_offset_s=90.0),))),
    (
        "network: NCCL_SOCKET_IFNAME",
        "names no interface on rank 2",
        changed(2, environment=settings(NCCL_SOCKET_IFNAME="ib")),
    ),
    (
        "network: one subnet",
        "node-b has several interfaces in 10.0.0.0/24",
        changed(2, interfaces=interfaces(Interface("eth7", "10.0.0.7", "10.0.0.0/24"))),
    ),
    ("network: route", "goes by eth1, but gloo would use eth0", changed(2, route="eth1")),
    ("network: networks", "different networks", changed(2, address="192.168.0.2", route="eth1")),
    (
        "network: inner network",
        "docker0",
        changed(2, address="172.17.0.1", interfaces=interfaces(Interface("docker0", "172.17.0.1", "172.17.0.0/16"))),
    ),
    ("network: MTU", "9000 on ranks", changed(2, interfaces=(Interface("eth0", "10.0.0.2", "10.0.0.0/24", mtu=1500),))),
    (
        "links: connections",
        "1 of 12 connections fail, e.g. rank 2 to rank 1",
        changed(2, links=link(1, "tcp", ok=False, problem="refused")),
    ),
    (
        "links: gloo",
        "failed on rank 2: timed out",
        changed(2, stages=(*STAGES[:4], Stage("gloo", True, 9.0, "timed out"))),
    ),
    (
        "gpus: driver",
        "node-b does not answer",
        changed(2, gpu_note="the NVIDIA driver gave no answer within 6 s", gpus=()),
    ),
    ("gpus: GPUs", "rank 2 see no GPU", changed(2, gpus=())),
    ("gpus: CUDA", "rank 2: out of memory", changed(2, gpu_problem="out of memory")),
    ("gpus: own GPU", "ranks 2-3 on node-b use the same GPU", changed(2, gpu_used="GPU-1")),
    ("gpus: errors", "GPU 1 of node-b: Xid 79", changed(2, gpus=(gpu(0), gpu(1, errors=("Xid 79",))))),
    (
        "gpus: memory in use",
        "pid 9 holds 3.0 GiB (python old.py)",
        changed(2, gpus=(gpu(0, processes={9: 3 * GIB}), gpu(1)), gpu_strangers={"9": "python old.py"}),
    ),
    (
        "gpus: memory in use",
        "processes that cannot be seen",
        changed(2, gpus=(replace(gpu(0), memory_used=60 * GIB), gpu(1))),
    ),
    (
        "gpus: peer access",
        "1 pair of GPUs of node-b",
        changed(2, fabric=replace(rank(2).fabric, no_peer_access=("GPU 0 - GPU 1: x",))),
    ),
    (
        "gpus: ACS",
        "at 1 bridge and the IOMMU is on",
        changed(2, fabric=replace(rank(2).fabric, acs_bridges=("0000:01",), iommu=True)),
    ),
    (
        "gpus: ports",
        "active InfiniBand or RoCE ports differs",
        changed(2, fabric=Fabric(ports=("mlx5_0/1 Ethernet DOWN",))),
    ),
    (
        "gpus: RoCE GID",
        "NCCL_IB_GID_INDEX=5, which is empty on node-a",
        everywhere(environment=settings(NCCL_IB_GID_INDEX="5")),
    ),
    (
        "system: shared memory",
        "/dev/shm of node-b has 10 MiB free",
        changed(2, system=replace(WELL, shm_free=10 << 20)),
    ),
    ("system: open files", "only 1024 open files on rank 2", changed(2, system=replace(WELL, open_files=1024))),
    ("system: processes", "only 100 processes", changed(2, system=replace(WELL, processes=100))),
    ("system: locked memory", "64 KiB of locked memory", changed(2, system=replace(WELL, locked_memory=64 << 10))),
    (
        "system: tracing",
        "ptrace_scope is 2 on rank 2",
        changed(2, system=replace(WELL, ptrace_scope=2, can_ptrace=False)),
    ),
    ("system: processors", "node-b has 1 processor for 2 ranks", changed(2, system=replace(WELL, processors=1))),
    ("versions: torch", "2.12 on rank 2", changed(2, versions=rank(2).versions | {"torch": "2.12"})),
    ("versions: numpy", "1.26 on rank 2", changed(2, versions=rank(2).versions | {"numpy": "1.26"})),
    ("versions: code", "the script differs", changed(2, code=Code("train.py", "ffff", "c0ffee"))),
    ("versions: code", "the commit of the code differs", changed(2, code=Code("train.py", "ab12", "beef"))),
    ("versions: code", "changes on rank 2 only", changed(2, code=Code("train.py", "ab12", "c0ffee", True))),
    ("settings: NCCL_ALGO", "Tree on rank 2", changed(2, environment=settings(NCCL_ALGO="Tree"))),
    ("settings: TORCH_NCCL_BLOCKING_WAIT", "slow", everywhere(environment=settings(TORCH_NCCL_BLOCKING_WAIT="1"))),
    ("settings: NCCL_P2P_DISABLE", "through its memory", everywhere(environment=settings(NCCL_P2P_DISABLE="1"))),
    (
        "ranks: stuck",
        "rank 2 on node-b was stuck in the check of limits: no answer",
        changed(2, stages=(*STAGES, Stage("limits", problem="no answer"))),
    ),
    ("timeouts: flight recorder", "is off", everywhere(environment=settings(TORCH_FR_BUFFER_SIZE="0"))),
    ("timeouts: heartbeat", "=60", everywhere(environment=settings(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="60"))),
    ("timeouts: monitoring", "for ever", everywhere(environment=settings(TORCH_NCCL_ENABLE_MONITORING="0"))),
]


@pytest.mark.parametrize(("name", "said", "made"), CASES, ids=[f"{name} - {said[:24]}" for name, said, _ in CASES])
def test_each_check_fires(name: str, said: str, made: Callable[[], Job]) -> None:
    found = wrong(made())
    assert name in found, found
    assert said in found[name]


def test_no_check_is_without_a_case() -> None:
    """The names of all checks that can warn or fail, but for those that are made of a setting or a backend."""
    made = set()
    for family, checks in FAMILIES.items():
        tree = ast.parse(inspect.getsource(sys.modules[checks.__module__]))
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1)
        named = (call.args[1] for call in calls if ast.unparse(call.func) in ("warn", "fail"))
        made |= {
            f"{family}: {name.value}"
            for name in named
            if isinstance(name, ast.Constant) and isinstance(name.value, str)
        }
    assert len(made) > 30
    assert made - {name for name, _, _ in CASES} == set()


@pytest.mark.parametrize(
    "innocent",
    [
        changed(2, environment=settings(NCCL_DEBUG="INFO")),  # a rank may have its own of these
        changed(2, environment=settings(NCCL_SOCKET_IFNAME="eth0"), route="eth0"),
        changed(
            2, gpu_strangers={"9": "python -m hangwatch_agent.doctor gpus"}, gpus=(gpu(0, processes={9: GIB}), gpu(1))
        ),
        changed(2, links=link(1, bandwidth=1e9)),  # half as fast as the others
        changed(2, system=replace(WELL, ptrace_scope=1)),
        lambda: job(
            *(rank(n, "node-a", address="127.0.1.1", gpu_used="", local_rank=n) for n in range(4))
        ),  # one host may use its loopback
        lambda: job(*(rank(n, "node-a", route="lo", gpu_used="", local_rank=n) for n in range(4))),
    ],
)
def test_innocent_differences(innocent: Callable[[], Job]) -> None:
    found = wrong(innocent())
    assert {name for name in found if not name.startswith("settings: NCCL_SOCKET")} == set()


def test_a_slow_link_is_named_with_the_host_that_all_slow_links_share() -> None:
    """GIVEN node-b whose links to node-a are slow, and a rank of it that is fast inside its host."""
    slow = tuple(replace(e, bandwidth=2e7) if e.kind == "gloo" and e.peer in (0, 1) else e for e in rank(3).links)
    others = [
        rank(n, links=tuple(replace(e, bandwidth=2e7) if (e.peer, e.kind) == (3, "gloo") else e for e in rank(n).links))
        for n in (0, 1)
    ]
    found = wrong(job(rank(3, links=slow), *others))["links: gloo slow link"]
    assert "and rank 3 on node-b: 20.0 MB/s, the others have 2.0 GB/s" in found


def test_hosts_that_were_asked_and_say_nothing() -> None:
    launch = Launch(("x",), None, 50.0, asked_hosts=("node-a", "node-c"))
    ranks = tuple(rank(n, "node-a", asked_host="node-a", roster=(0, 1)) for n in range(2))
    assert "nothing is heard from node-c" in wrong(Job(ranks, launch))["ranks: missing"]


def test_ranks_that_only_others_have_seen_are_not_missing() -> None:
    assert "ranks: missing" not in wrong(job(without=(3,)))


def test_the_page_shows_everything_and_loads_nothing() -> None:
    report = Report(tuple(all_checks(job(rank(2, store="<script>refused")))), job(), 0.0, 6.0)
    shown = page(report)
    assert "This job would fail or hang" in shown
    assert "&lt;script&gt;refused" in shown
    assert "<script" not in shown
    assert "2,000 / 50" in shown, "the matrix"
    assert report.worst is State.FAIL


def test_reports_travel_as_json() -> None:
    report = Report(tuple(all_checks(job())), job(), 0.0, 6.0)
    assert codec.loads(Report, codec.dumps(report)) == report
