"""Settings of NCCL, gloo and torch: those that differ between ranks, and those that are known to hurt."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import between_hosts, differing, groups, minority, named, ok, warn
from hangwatch.doctor.model import Check, Job, RankFacts
from hangwatch.health.nccl_environment import HARMFUL, OF_A_RANK

FAMILY = "settings"
COMPARED = ("NCCL_", "TORCH_", "GLOO_", "UCX_", "FI_", "CUDA_LAUNCH", "CUDA_DEVICE", "CUBLAS_", "PYTORCH_", "OMP_NUM")
# variable, its values, only between hosts, what it does
COSTLY: tuple[tuple[str, tuple[str, ...], bool, str], ...] = (
    ("CUDA_LAUNCH_BLOCKING", ("1",), False, "every kernel waits for the one before: for debugging only"),
    ("NCCL_P2P_DISABLE", ("1",), False, "GPUs of a host talk through its memory"),
    ("NCCL_SHM_DISABLE", ("1",), False, "GPUs of a host that cannot use P2P talk over the network"),
    ("NCCL_IB_DISABLE", ("1",), True, "hosts talk over TCP, not InfiniBand"),
    ("NCCL_NET_GDR_LEVEL", ("LOC", "0"), True, "GPUs do not talk to the network card directly"),
    ("TORCH_DISTRIBUTED_DEBUG", ("DETAIL",), False, "torch checks every collective with further ones"),
    ("TORCH_NCCL_DESYNC_DEBUG", ("1",), False, "each collective is logged in the store"),
)


def checks(job: Job) -> Iterator[Check]:
    known = [each for each in job.ranks if each.environment]
    if not known:
        return
    found = [*_differing(known), *_harmful(known), *_costly(known)]
    yield from found or [ok(FAMILY, "settings", "equal on all ranks, and none that is known to hurt")]


def _differing(known: list[RankFacts]) -> Iterator[Check]:
    everywhere = {name for each in known for name in each.environment if name.startswith(COMPARED)}
    for name in sorted(name for name in everywhere if not name.startswith(OF_A_RANK)):
        seen = groups(known, lambda each: each.environment.get(name, "not set"))  # noqa: B023
        if len(seen) > 1:
            found = f"{name} differs: {differing(seen)}"
            advice = "set it alike for all ranks: ranks that choose other algorithms or ways hang"
            yield warn(FAMILY, name, found, advice, minority(seen))


def _harmful(known: list[RankFacts]) -> Iterator[Check]:
    gpus = any(each.gpus for each in known)
    for backend, name, values, what in HARMFUL:
        if name == "TORCH_DISTRIBUTED_DEBUG" or (backend == "nccl" and not gpus):
            continue
        hurt = [each for each in known if each.environment.get(name, "").lower() in values]
        if hurt:
            found = f"{name}={hurt[0].environment[name]}: {what}"
            yield warn(FAMILY, name, found, f"unset {name}", [each.rank for each in hurt])


def _costly(known: list[RankFacts]) -> Iterator[Check]:
    for name, values, across, what in COSTLY:
        set_ = [each for each in known if (v := each.environment.get(name)) is not None and v.upper() in values]
        if set_ and (between_hosts(known) or not across):
            found = f"{name}={set_[0].environment[name]} on {named(e.rank for e in set_)}: {what}"
            yield warn(FAMILY, name, found, f"unset {name} if it is not meant", [each.rank for each in set_])
