"""Timeouts: how long torch would wait, and whether it would leave anything to read when it gives up."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import named, ok, warn
from hangwatch.doctor.model import Check, Job, RankFacts

FAMILY = "timeouts"
HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
LEAST_HEARTBEAT_S = 120
RECORDER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def checks(job: Job) -> Iterator[Check]:
    known = [each for each in job.ranks if each.environment]
    if not known:
        return
    found = [*_recorder(known), *_heartbeat(known), *_monitoring(known)]
    yield from found or [
        ok(
            FAMILY,
            "timeouts",
            "a collective that hangs ends the job: after 30 min with gloo, 10 min with NCCL, by default",
        )
    ]


def _recorder(known: list[RankFacts]) -> Iterator[Check]:
    for name in RECORDER:
        off = [each.rank for each in known if each.environment.get(name, "").strip() == "0"]
        if off:
            found = f"{name}=0 on {named(off)}: torch's flight recorder is off, a hang leaves less to read"
            yield warn(FAMILY, "flight recorder", found, f"unset {name}", off)


def _heartbeat(known: list[RankFacts]) -> Iterator[Check]:
    short = [
        each for each in known if (v := each.environment.get(HEARTBEAT, "")).isdigit() and int(v) < LEAST_HEARTBEAT_S
    ]
    if short:
        value = short[0].environment[HEARTBEAT]
        found = f"{HEARTBEAT}={value}: a rank that holds the interpreter lock for so long is killed"
        yield warn(
            FAMILY,
            "heartbeat",
            found,
            "480 is the default; checkpoints and compilation can hold the lock for minutes",
            [e.rank for e in short],
        )


def _monitoring(known: list[RankFacts]) -> Iterator[Check]:
    off = [
        each.rank
        for each in known
        if each.environment.get("TORCH_NCCL_ENABLE_MONITORING", "").lower() in ("0", "false")
    ]
    if off:
        found = f"TORCH_NCCL_ENABLE_MONITORING=0 on {named(off)}: a stuck NCCL watchdog keeps the job for ever"
        yield warn(FAMILY, "monitoring", found, "unset it", off)
