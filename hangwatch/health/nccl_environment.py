"""Settings of the communication libraries: those that should be equal and are not, and those that hurt."""

from __future__ import annotations

from hangwatch.model import HealthWarning
from hangwatch.words import ranks as named

from .telling import Ranks, backends, warning

# A rank or a node may have its own of these.
OF_A_RANK = (
    "NCCL_DEBUG", "NCCL_HOSTID", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_TOPO", "NCCL_GRAPH", "NCCL_NET_GDR",
    "NCCL_ROOT_INFO", "NCCL_COMM_ID", "NCCL_RAS_ADDR", "NCCL_IGNORE_CPU_AFFINITY", "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_NCCL_DEBUG_INFO_", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_TRACE_",  # set by hangwatch in each rank, too
)  # fmt: skip
COMPARED = {"nccl": ("NCCL_", "TORCH_NCCL_"), "gloo": ("GLOO_", "TORCH_GLOO_")}
OFF, ON = ("0", "false", "no"), ("1", "true", "yes")
# (backend or "", variable, values, what it does)
HARMFUL = (
    ("nccl", "TORCH_NCCL_ASYNC_ERROR_HANDLING", OFF, "a collective that fails is never ended: errors become hangs"),
    ("nccl", "NCCL_ASYNC_ERROR_HANDLING", OFF, "a collective that fails is never ended: errors become hangs"),
    ("nccl", "TORCH_NCCL_BLOCKING_WAIT", ON, "the processor waits for each collective, which is slow"),
    ("nccl", "NCCL_BLOCKING_WAIT", ON, "the processor waits for each collective, which is slow"),
    ("nccl", "NCCL_DEBUG", ("trace",), "NCCL logs every call, which is slow"),
    ("", "TORCH_DISTRIBUTED_DEBUG", ("detail",), "torch checks every collective with further ones, which is slow"),
)


def differing(ranks: Ranks) -> HealthWarning | None:
    """A setting of the backend in use differs between the ranks of this node."""
    environments = {rank: reading.identity.environment for rank, reading in ranks.items()}
    prefixes = tuple(p for backend, each in COMPARED.items() if backend in backends(ranks) for p in each)
    found = {name for each in environments.values() for name in each if name.startswith(prefixes or ("-",))}
    for name in sorted(name for name in found if not name.startswith(OF_A_RANK)):
        values: dict[str | None, list[int]] = {}
        for rank, each in sorted(environments.items()):
            values.setdefault(each.get(name), []).append(rank)
        if len(values) > 1:
            return warning("nccl-environment", f"{name} differs between ranks: {_told(values)}", ranks)
    return None


def hurting(ranks: Ranks) -> HealthWarning | None:
    """A setting that is known to hurt."""
    for backend, name, harmful, what in HARMFUL:
        values = {rank: reading.identity.environment.get(name, "") for rank, reading in ranks.items()}
        hurt = [rank for rank, value in values.items() if value.lower() in harmful]
        if hurt and backend in backends(ranks):
            where = "" if len(hurt) == len(ranks) else f" on {named(hurt)}"
            return warning("nccl-environment", f"{name}={values[hurt[0]]}{where}: {what}", ranks, about=hurt)
    return None


def _told(values: dict[str | None, list[int]]) -> str:
    parts = [f"{value if value is not None else 'not set'} on {named(where)}" for value, where in values.items()]
    return ", ".join(parts[:4])
