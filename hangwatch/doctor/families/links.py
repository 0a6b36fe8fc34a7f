"""Each pair of ranks: whether it talks, over TCP, gloo and NCCL, and which link is slow."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hangwatch.doctor.families.telling import fail, named, ok, stage, warn
from hangwatch.doctor.model import Check, Job, Link
from hangwatch.words import plural

FAMILY = "links"
SLOW, LATE = 4.0, 10.0  # times worse than what is usual for links of its kind
LEAST_S = 0.001  # a latency below this is no fault between hosts
LEAST_LINKS = 3
SHOWN = 8


def checks(job: Job) -> Iterator[Check]:
    if len({each.rank for each in job.ranks}) < 2:
        return
    yield from _connections(job)
    for backend in ("gloo", "nccl"):
        yield from _group(job, backend)
        yield from _slow(job, backend)


def _of(job: Job, kind: str) -> list[tuple[int, Link]]:
    return [(each.rank, link) for each in job.ranks for link in each.links if link.kind == kind]


def _connections(job: Job) -> Iterator[Check]:
    links = _of(job, "tcp")
    broken = [(rank, link) for rank, link in links if not link.ok]
    if broken:
        rank, link = broken[0]
        example = f"rank {rank} to rank {link.peer} at {link.address}: {link.problem}"
        found = f"{len(broken)} of {len(links)} connections fail, e.g. {example}"
        details = [f"rank {a} to rank {b.peer} at {b.address}: {b.problem}" for a, b in broken[:16]]
        yield fail(FAMILY, "connections", found, _advice(link), _most_concerned(broken), details)
    elif links:
        slowest = max(link.latency_s or 0.0 for _, link in links)
        yield ok(FAMILY, "connections", f"all {len(links)} between ranks work, at most {_time(slowest)} one way")


def _advice(link: Link) -> str:
    if link.address.startswith("127."):
        return "that rank listens on its loopback: set GLOO_SOCKET_IFNAME, or correct its host's name in /etc/hosts"
    return "open the ports between the hosts (ranks use random ones), or set GLOO_SOCKET_IFNAME to another network"


def _most_concerned(broken: list[tuple[int, Link]]) -> list[int]:
    """The ranks that stand in most of the broken pairs."""
    counts: dict[int, int] = {}
    for rank, link in broken:
        for each in (rank, link.peer):
            counts[each] = counts.get(each, 0) + 1
    most = max(counts.values())
    return [rank for rank, count in counts.items() if count == most]


def _group(job: Job, backend: str) -> Iterator[Check]:
    ran = [(each, one) for each in job.ranks if (one := stage(each, backend)) is not None]
    lost = [(each, one) for each, one in ran if one.problem or not one.done]
    if lost:
        one, who = lost[0][1], named(each.rank for each, _ in lost)
        found = f"{backend}: barrier, all_reduce or a pair failed on {who}: {one.problem or 'no end'}"
        details = [f"rank {r.rank}: {s.problem or 'no end'}" for r, s in lost[:16]]
        advice = (
            "mend the connections above first"
            if backend == "gloo"
            else "run again with NCCL_DEBUG=INFO; mend gloo first"
        )
        yield fail(FAMILY, backend, found, advice, [r.rank for r, _ in lost], details)
    elif ran:
        yield ok(FAMILY, backend, f"{backend}: barrier, all_reduce and {_figures(job, backend)}", _matrix(job, backend))


def _figures(job: Job, backend: str) -> str:
    measured = [link for _, link in _of(job, backend) if link.bandwidth and link.latency_s]
    if not measured:
        return "no pair"
    worst = min(measured, key=lambda link: link.bandwidth or 0.0)
    late = max(link.latency_s or 0.0 for link in measured)
    return f"{plural(len(measured) // 2, 'pair')}; at least {_rate(worst.bandwidth or 0.0)}, at most {_time(late)}"


def _matrix(job: Job, backend: str) -> list[str]:
    """A line for each rank: bandwidth and latency to its peers."""
    lines: dict[int, list[str]] = {}
    for rank, link in sorted(_of(job, backend), key=lambda each: (each[0], each[1].peer)):
        if link.bandwidth and link.latency_s and len(lines.setdefault(rank, [])) < SHOWN:
            lines[rank].append(f"{link.peer}: {_rate(link.bandwidth)}, {_time(link.latency_s)}")
    return [f"rank {rank} to {'; '.join(cells)}" for rank, cells in list(lines.items())[:16]]


def _slow(job: Job, backend: str) -> Iterator[Check]:
    """A link far below what is usual for its kind: inside hosts, and between hosts."""
    hosts = {each.rank: each.host for each in job.ranks}
    pairs: dict[tuple[int, int], list[Link]] = {}
    for rank, link in _of(job, backend):
        if link.bandwidth and link.latency_s:
            pairs.setdefault((min(rank, link.peer), max(rank, link.peer)), []).append(link)
    for inside in (True, False):
        of_kind = {p: links for p, links in pairs.items() if (hosts.get(p[0]) == hosts.get(p[1])) == inside}
        if len(of_kind) >= LEAST_LINKS:
            yield from _outliers(backend, of_kind, hosts)


def _outliers(backend: str, pairs: dict[tuple[int, int], list[Link]], hosts: dict[int, str]) -> Iterator[Check]:
    rates = {pair: max(link.bandwidth or 0.0 for link in links) for pair, links in pairs.items()}
    times = {pair: min(link.latency_s or 0.0 for link in links) for pair, links in pairs.items()}
    # By each rank's best link: a rank whose links are all slow is in most pairs of a small job.
    ranks = {rank for pair in pairs for rank in pair}
    usual = median(max(rate for pair, rate in rates.items() if rank in pair) for rank in ranks)
    usually = median(min(took for pair, took in times.items() if rank in pair) for rank in ranks)
    slow = sorted((pair for pair, rate in rates.items() if rate * SLOW < usual), key=lambda pair: rates[pair])
    late = [pair for pair, took in times.items() if took > max(LATE * usually, LEAST_S)]
    if slow:
        pair = slow[0]
        found = f"{backend}: slow link {_ends(pair, hosts)}: {_rate(rates[pair])}, the others have {_rate(usual)}"
        if common := _common(slow, hosts):
            found += f"; all {len(slow)} slow links have an end at {common}"
        advice = "see that host's cable, port speed (ethtool), errors (ip -s link) and traffic"
        yield warn(FAMILY, f"{backend} slow link", found, advice, {rank for each in slow for rank in each})
    elif late:
        pair = max(late, key=lambda each: times[each])
        found = f"{backend}: late link {_ends(pair, hosts)}: {_time(times[pair])} one way, the others {_time(usually)}"
        yield warn(FAMILY, f"{backend} slow link", found, "see the way between the two: mtr, switches, a VPN", pair)


def _ends(pair: tuple[int, int], hosts: dict[int, str]) -> str:
    one, other = pair
    return f"between rank {one} on {hosts.get(one)} and rank {other} on {hosts.get(other)}"


def _common(pairs: list[tuple[int, int]], hosts: dict[int, str]) -> str:
    """The one host that all of several pairs have an end at; "" where there is none, or more than one."""
    ends = [{hosts.get(pair[0], ""), hosts.get(pair[1], "")} for pair in pairs]
    shared = set.intersection(*ends) if len(pairs) > 1 else set()
    return shared.pop() if len(shared) == 1 else ""


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.1f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.1f} MB/s"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
