"""Judging the evidence of thousands of ranks, made from one real incident by repeating its ranks.

`python -m hangwatch.commands.benchmark.scale INCIDENT.json RANKS distinct|shared` judges in a process of its own, so
that its peak of memory is that of this size, and prints JSON. With "distinct" every rank has evidence of its own, as it
comes from its node; with "shared" equal parts are one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from hangwatch.judge import diagnose
from hangwatch.model import Divergence, GroupHead, RankEvidence, Snapshot
from hangwatch.report import files
from hangwatch.report.incident import snapshot_of
from hangwatch.wire import codec

RANKS_PER_NODE = 8


def grown(snapshot: Snapshot, culprit: int, ranks: int, *, distinct: bool = False) -> Snapshot:
    """The same hang in a job of `ranks` ranks with rank `culprit` at fault.

    Members of groups are one tuple for all ranks, as the dashboard keeps them.
    """
    members = tuple(range(ranks))
    guilty = next(each for each in snapshot.ranks if each.rank == culprit)
    innocent = [each for each in snapshot.ranks if each.rank != culprit]
    models = [guilty if rank == culprit else innocent[rank % len(innocent)] for rank in members]
    copies = tuple(
        _as_rank(_received(model) if distinct else model, rank, ranks, members)
        for rank, model in zip(members, models, strict=True)
    )
    return replace(
        snapshot,
        job=replace(snapshot.job, world_size=ranks),
        ranks=copies,
        launchers=(),
        launched=(),
        others=(),
        nodes=tuple(
            replace(snapshot.nodes[0], host=_host(first), ranks=tuple(range(first, min(first + RANKS_PER_NODE, ranks))))
            for first in range(0, ranks, RANKS_PER_NODE)
        ),
        warnings=(),
        divergences=tuple(_divergence(each, members, culprit) for each in snapshot.divergences),
    )


def _received(evidence: RankEvidence) -> RankEvidence:
    """Evidence as it comes from a node: through JSON."""
    return codec.loads(RankEvidence, codec.dumps(evidence))


def _as_rank(own: RankEvidence, rank: int, ranks: int, members: tuple[int, ...]) -> RankEvidence:
    pid = 10_000 + rank
    reading = own.reading
    if reading is not None:
        identity = replace(
            reading.identity, rank=rank, world_size=ranks, local_rank=rank % RANKS_PER_NODE, host=_host(rank), pid=pid
        )
        made = tuple(replace(each, members=members) for each in reading.groups_made)
        reading = replace(reading, identity=identity, heads=_heads(reading.heads, members), groups_made=made)
    return replace(
        own,
        rank=rank,
        host=_host(rank),
        pid=pid,
        reading=reading,
        process=replace(own.process, pid=pid) if own.process else None,
        collectives=replace(own.collectives, heads=_heads(own.collectives.heads, members)),
    )


def _heads(heads: tuple[GroupHead, ...], members: tuple[int, ...]) -> tuple[GroupHead, ...]:
    return tuple(replace(head, members=members) for head in heads)


def _divergence(known: Divergence, members: tuple[int, ...], culprit: int) -> Divergence:
    usual = next(count for rank, count in known.counts.items() if rank != culprit)
    counts = {rank: known.counts.get(culprit, usual) if rank == culprit else usual for rank in members}
    return replace(known, members=members, counts=counts)


def _host(rank: int) -> str:
    return f"node-{rank // RANKS_PER_NODE}"


def measure(path: Path, ranks: int, *, distinct: bool) -> dict[str, float | str | bool]:
    """Processor seconds of the judgement, MiB of the process at its peak, and whether the verdict is the same."""
    incident = files.read(path)
    (culprit,) = (each.rank for each in incident.verdict.culprits)
    assert culprit is not None
    snapshot = grown(snapshot_of([incident]), culprit, ranks, distinct=distinct)
    began = time.process_time()
    judgement = diagnose(snapshot)
    took = time.process_time() - began
    right = judgement.verdict.cause == incident.verdict.cause
    right = right and [each.rank for each in judgement.verdict.culprits] == [culprit]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": took, "mib": peak, "right": right, "cause": judgement.verdict.cause}


if __name__ == "__main__":
    json.dump(measure(Path(sys.argv[1]), int(sys.argv[2]), distinct=sys.argv[3] == "distinct"), sys.stdout)
    print()
