"""Whether the hosts' clocks agree: logs and reports of several hosts are put in order by them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hangwatch.doctor.families.telling import between_hosts, ok, skip, warn
from hangwatch.doctor.model import Check, Job

FAMILY = "clocks"
MOST_S = 0.5


def checks(job: Job) -> Iterator[Check]:
    offsets = host_offsets(job)
    if not offsets:
        if between_hosts(job.ranks):
            yield skip(FAMILY, "clocks", "the hosts' clocks could not be compared: no pair of hosts talked")
        return
    middle = median([0.0, *offsets.values()]) if len(offsets) > 1 else 0.0
    off = {host: offset - middle for host, offset in offsets.items() if abs(offset - middle) > MOST_S}
    if off:
        shown = ", ".join(f"{host} by {offset:+.1f} s" for host, offset in list(off.items())[:4])
        ranks = [each.rank for each in job.ranks if each.host in off]
        yield warn(
            FAMILY, "clocks", f"clocks are off: {shown}", "synchronise them: chronyc tracking, timedatectl", ranks
        )
    else:
        worst = max(abs(offset - middle) for offset in offsets.values())
        yield ok(FAMILY, "clocks", f"the hosts' clocks agree within {max(worst, 0.001) * 1000:.0f} ms")


def host_offsets(job: Job) -> dict[str, float]:
    """Each host's clock less that of the first host that measured others, by median of its ranks' measurements."""
    hosts = {each.rank: each.host for each in job.ranks}
    for one in job.ranks:
        measured: dict[str, list[float]] = {}
        for link in one.links:
            host = hosts.get(link.peer)
            if host is not None and host != one.host and link.clock_offset_s is not None:
                measured.setdefault(host, []).append(link.clock_offset_s)
        if measured:
            return {host: median(values) for host, values in measured.items()}
    return {}
