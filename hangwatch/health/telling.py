"""How a warning is made, and what several rules ask of the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hangwatch.catalogue import cause
from hangwatch.model import HealthWarning, Reading

Ranks = Mapping[int, Reading]


def warning(
    kind: str, summary: str, ranks: Ranks, *, about: Iterable[int] | None = None, evidence: Iterable[str] = ()
) -> HealthWarning:
    """A warning `about` some of the ranks (all by default), with the catalogue's advice."""
    return HealthWarning(
        kind=kind,
        summary=summary,
        ranks=tuple(sorted(ranks if about is None else about)),
        evidence=tuple(evidence),
        fix=cause(kind).fix,
        at=max((reading.taken_at for reading in ranks.values()), default=0.0),
    )


def world(ranks: Ranks) -> int:
    """The number of ranks of the job, 0 where it is not known."""
    return max((reading.identity.world_size or 0 for reading in ranks.values()), default=0)


def purely_data_parallel(ranks: Ranks) -> bool:
    """Every process group spans the whole job: no tensor, pipeline or expert parallelism, as far as groups tell."""
    size = world(ranks)
    heads = [reading.heads for reading in ranks.values()]
    return size > 1 and all(heads) and all(len(head.members) == size for each in heads for head in each)


def backends(ranks: Ranks) -> str:
    """All backends in use, in one text: "cpu:gloo,cuda:nccl gloo"."""
    return " ".join(sorted({head.backend for reading in ranks.values() for head in reading.heads}))
