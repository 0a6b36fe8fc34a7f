"""Whether every rank has started, exactly once, and on the host where it was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hangwatch.doctor.families.telling import differing, fail, groups, named, ok, warn
from hangwatch.doctor.model import Check, Job
from hangwatch.model import every_rank

FAMILY = "ranks"


def checks(job: Job) -> Iterator[Check]:
    if not job.ranks:
        return
    found = [*_sizes(job), *_missing(job), *_twice(job), *_hosts(job), *_local(job), *_stuck(job)]
    if not found:
        hosts = len(job.by_host)
        found = [ok(FAMILY, "all started", f"{job.world_size} ranks on {hosts} host{'s' if hosts > 1 else ''}")]
    yield from found


def _sizes(job: Job) -> Iterator[Check]:
    sizes = groups(job.ranks, lambda each: each.world_size)
    if len(sizes) > 1:
        advice = "start all ranks with the same number of nodes and ranks per node"
        yield fail(FAMILY, "world size", f"WORLD_SIZE differs: {differing(sizes)}", advice)


def _missing(job: Job) -> Iterator[Check]:
    """Ranks that no other rank has seen in the store either. One on a host without a report may still be fine."""
    present = {each.rank for each in job.ranks} | {rank for each in job.ranks for rank in each.roster}
    missing = sorted(set(every_rank(job.world_size)) - present)
    if not missing:
        return
    hosts = [host for host in job.launch.asked_hosts if host not in {each.asked_host for each in job.ranks}]
    where = f"; nothing is heard from {', '.join(hosts)}" if hosts else ""
    found = f"{named(missing)} of {job.world_size} never connected to {job.ranks[0].master}{where}"
    yield fail(FAMILY, "missing", found, "see whether its host is up and its launcher was started", missing)


def _twice(job: Job) -> Iterator[Check]:
    counts = Counter(each.rank for each in job.ranks)
    twice = sorted({rank for rank, count in counts.items() if count > 1} | {r for e in job.ranks for r in e.twice})
    for rank in twice[:4]:
        places = [f"pid {each.pid} on {each.host}" for each in job.ranks if each.rank == rank]
        found = f"{named([rank])} started more than once: {', '.join(places)}"
        advice = "give each node its own --node-rank, and end processes that are left of an earlier start"
        yield fail(FAMILY, "twice", found, advice, [rank])


def _hosts(job: Job) -> Iterator[Check]:
    wrong = [each for each in job.ranks if each.asked_host and not _same(each.asked_host, each.host)]
    if wrong:
        shown = ", ".join(f"rank {each.rank} on {each.host} (asked for: {each.asked_host})" for each in wrong[:4])
        yield warn(FAMILY, "host", shown, "see what the name resolves to", [each.rank for each in wrong])
    split = [host for host, ranks in job.by_host.items() if _gaps({each.rank for each in ranks})]
    if split and len(job.by_host) > 1:
        host = split[0]
        ranks = [each.rank for each in job.by_host[host]]
        found = f"the ranks of a host are not consecutive: {host} has {named(ranks)}"
        advice = "intended? else order the hosts alike for all launchers; NCCL's rings are longer like this"
        yield warn(FAMILY, "order", found, advice, ranks)


def _same(asked: str, host: str) -> bool:
    return asked.split(".")[0] == host.split(".")[0] or asked.replace(".", "").isdigit()


def _gaps(ranks: set[int]) -> bool:
    return max(ranks) - min(ranks) + 1 != len(ranks)


def _local(job: Job) -> Iterator[Check]:
    for host, ranks in job.by_host.items():
        counts = Counter(each.local_rank for each in ranks if each.local_rank is not None)
        same = [local for local, count in counts.items() if count > 1]
        if same and len({each.rank for each in ranks}) == len(ranks):
            same_gpu = [each.rank for each in ranks if each.local_rank == same[0]]
            found = f"{named(same_gpu)} on {host} have the same LOCAL_RANK {same[0]}"
            yield fail(
                FAMILY, "local rank", found, "they would use the same GPU; see how the launcher is started", same_gpu
            )


def _stuck(job: Job) -> Iterator[Check]:
    """A rank whose probe did not finish a stage that those of others finished."""
    for each in job.ranks:
        for one in each.stages:
            if one.problem and not one.done and one.name in ("machine", "limits", "versions", "interfaces", "code"):
                found = f"rank {each.rank} on {each.host} was stuck in the check of {one.name}: {one.problem}"
                yield warn(
                    FAMILY, "stuck", found, "a file system or a name server of that host may not answer", [each.rank]
                )
