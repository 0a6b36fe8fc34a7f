"""Two ranks use one GPU."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.devices import nothing_completed
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

DUPLICATE = re.compile(r"duplicate gpu detected", re.IGNORECASE)


def duplicate_gpu(case: Case) -> Finding | None:
    """Two ranks of one machine are bound to one GPU, and NCCL refuses that."""
    sharing: dict[tuple[str, int], list[RankView]] = {}
    for view in case:
        if view.evidence.gpu is not None:
            sharing.setdefault((view.evidence.host, view.evidence.gpu), []).append(view)
    shared = [(place, views) for place, views in sharing.items() if len(views) > 1]
    refused = [view for view in case if DUPLICATE.search(_error(view))]
    nccl = any(head.backend == "nccl" for view in case for head in view.evidence.collectives.heads)
    unwanted = shared and not all(_shares(view) for _, views in shared for view in views)
    if not refused and not (unwanted and nccl and case.blocked and nothing_completed(case)):
        return None
    ranks = sorted({view.rank for view in (shared[0][1] if shared else refused)})
    where = f"GPU {shared[0][0][1]} of {shared[0][0][0]}" if shared else "one GPU"
    return Finding(
        "duplicate-gpu",
        Certainty.PROVEN if refused else Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} are bound to {where}, and NCCL wants one GPU for each rank.",
        culprits=case.culprits(ranks),
        evidence=(
            *(f"rank {view.rank} raised: {_error(view).splitlines()[0][:160]}" for view in refused[: words.SHOWN]),
            *(f"{words.ranks(view.rank for view in views)}: GPU {gpu} of {host}" for (host, gpu), views in shared),
        ),
        status=Status.FAILED if refused else None,
    )


def _error(view: RankView) -> str:
    exception = view.exception
    return f"{exception.type}: {exception.message}" if exception is not None else ""


def _shares(view: RankView) -> bool:
    """Its settings let NCCL put several ranks on one GPU: newer versions can, others if host ids differ."""
    settings = view.evidence.board_settings
    return settings.get("NCCL_MULTI_RANK_GPU_ENABLE", "0") != "0" or bool(settings.get("NCCL_HOSTID"))
