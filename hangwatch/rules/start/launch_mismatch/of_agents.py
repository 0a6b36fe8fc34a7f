"""Contradictions between launchers such as torchrun, or between one of them and its scheduler."""

from __future__ import annotations

from collections import defaultdict

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.launch import JOB_NODES, Agent, agents, is_loopback, on_their_way
from hangwatch.rules.start.launch_mismatch.contradiction import Contradiction

_MUST_AGREE = ("nnodes", "rdzv-id", "rdzv-backend")


def agents_disagree(case: Case) -> Contradiction | None:
    """Launchers that meet at one address give the same node rank, or other numbers of nodes."""
    meetings: dict[str, list[Agent]] = defaultdict(list)
    for each in agents(case):
        if each.endpoint:
            meetings[each.endpoint].append(each)
    for endpoint, found in meetings.items():
        contradiction = _same_node_rank(endpoint, found) or _other_options(endpoint, found)
        if contradiction is not None:
            return contradiction
    return None


def _same_node_rank(endpoint: str, found: list[Agent]) -> Contradiction | None:
    by_rank: dict[str, list[Agent]] = defaultdict(list)
    for each in found:
        if each.nodes > 1 and not each.option("rdzv-backend").startswith(("c10d", "etcd")):
            by_rank[each.option("node-rank") or "0"].append(each)
    same = next((each for each in by_rank.values() if len(each) > 1), None)
    if same is None:
        return None
    rank = same[0].option("node-rank") or "0"
    return Contradiction(
        f"{len(same)} launchers that meet at {endpoint} have node rank {rank}",
        "give each node its own --node-rank, 0 to nnodes - 1; under Slurm --node-rank=$SLURM_NODEID",
        tuple(_line(each, "node-rank") for each in same[: words.SHOWN]),
        complete=True,
    )


def _other_options(endpoint: str, found: list[Agent]) -> Contradiction | None:
    for name in _MUST_AGREE:
        values = sorted({each.option(name) for each in found})
        if len(values) > 1:
            shown = words.listed(value or "none" for value in values)
            return Contradiction(
                f"The launchers that meet at {endpoint} differ in --{name}: {shown}",
                f"start the launcher on every node with the same --{name}",
                tuple(_line(each, name) for each in found[: words.SHOWN]),
                complete=True,
            )
    return None


def _line(agent: Agent, name: str) -> str:
    value = agent.option(name)
    return f"pid {agent.pid} has --{name}={value}" if value else f"pid {agent.pid} has no --{name}"


def too_few_nodes(case: Case) -> Contradiction | None:
    """A launcher waits for more nodes than the scheduler has given to the job."""
    for each in agents(case):
        given = each.job_nodes
        if given is None or each.nodes <= given:
            continue
        return Contradiction(
            f"--nnodes={each.nodes} waits for {each.nodes} nodes, and the Slurm job has {words.plural(given, 'node')}",
            f"#SBATCH --nodes={each.nodes} --ntasks-per-node=1 and `srun torchrun ...`, or --nnodes=${JOB_NODES}",
            (
                f"pid {each.pid} ({words.command(each.process.facts.command)}) stands in the rendezvous",
                f"it has {JOB_NODES}={given}",
            ),
        )
    return None


def local_endpoint(case: Case) -> Contradiction | None:
    """The launchers of several machines meet at an address that is each machine's own."""
    for each in agents(case):
        nodes = each.job_nodes or 0
        if each.nodes > 1 and nodes > 1 and is_loopback(each.endpoint):
            return Contradiction(
                f"The launchers of {nodes} nodes meet at {each.endpoint}, where each finds only itself",
                "--rdzv-endpoint=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1):29500",
                (f"pid {each.pid} has the endpoint {each.endpoint}", f"it has {JOB_NODES}={nodes}"),
            )
    return None


def no_host(case: Case) -> Contradiction | None:
    """Every launcher tries to connect to the rendezvous, and none hosts it: no machine knows its own name there."""
    found = agents(case)
    lost = [each for each in found if each.connects]
    if not lost or len(lost) < len(found) or any(node.master_listener for node in case.snapshot.nodes):
        return None
    first = lost[0]
    if on_their_way(case, first.endpoint):
        return None  # it may host it
    here = [
        node for node in case.snapshot.nodes if _is_named(first.endpoint.rpartition(":")[0], node.host, node.addresses)
    ]
    expected = first.nodes or case.job.nodes_expected or 0
    if not here and len(lost) < max(expected, 1):
        return None  # the node that hosts it has not been seen
    place = f", which is {here[0].host} itself" if here else ""
    return Contradiction(
        f"No launcher hosts the rendezvous at {first.endpoint}{place}: each takes itself for a client",
        "--rdzv-conf is_host=true on that node, and is_host=false on the others; or its address in --rdzv-endpoint as"
        " `hostname -I` shows it",
        tuple(
            f"pid {each.pid} tries to connect to {each.endpoint} and does not listen there"
            for each in lost[: words.SHOWN]
        ),
        complete=len(lost) >= expected > 0,
    )


def _is_named(name: str, host: str, addresses: tuple[str, ...]) -> bool:
    """Whether a name stands for a machine: its address, its name, or the same name with or without a domain."""
    return name in addresses or is_loopback(name) or name.partition(".")[0] == host.partition(".")[0]
