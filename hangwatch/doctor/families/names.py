"""Whether names resolve, soon enough, and to an address that other hosts can reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from hangwatch.doctor.families.telling import between_hosts, differing, fail, groups, named, ok, warn
from hangwatch.doctor.model import Check, Job, RankFacts

FAMILY = "names"
SLOW_S = 1.0


def checks(job: Job) -> Iterator[Check]:
    known = [each for each in job.ranks if each.lookups]
    if not known:
        return
    found = [*_master(known), *_own(known), *_slow(known)]
    yield from found or [ok(FAMILY, "names", f"{_shown(known)} resolves on all ranks, and each host's own name does")]


def _shown(known: list[RankFacts]) -> str:
    return known[0].lookups[0].name


def _master(known: list[RankFacts]) -> Iterator[Check]:
    lost = [each for each in known if each.lookups[0].problem]
    if lost:
        found = f"{_shown(lost)} does not resolve on {named(each.rank for each in lost)}: {lost[0].lookups[0].problem}"
        advice = "use an address as MASTER_ADDR, or add the name to DNS or /etc/hosts of these hosts"
        yield fail(FAMILY, "MASTER_ADDR", found, advice, [each.rank for each in lost])
    seen = groups(
        [each for each in known if not each.lookups[0].problem],
        lambda each: ", ".join(sorted(each.lookups[0].addresses)),
    )
    if len(seen) > 1:
        found = f"{_shown(known)} means different addresses: {differing(seen)}"
        advice = "use an address as MASTER_ADDR, or make /etc/hosts of the hosts agree"
        yield (fail if _loopback_elsewhere(known) else warn)(FAMILY, "MASTER_ADDR", found, advice)
    elif between_hosts(known) and _loopback_elsewhere(known):
        found = f"MASTER_ADDR {_shown(known)} is a loopback address, and the ranks are on several hosts"
        yield fail(FAMILY, "MASTER_ADDR", found, "set MASTER_ADDR to an address of the first host's network")


def _loopback_elsewhere(known: list[RankFacts]) -> bool:
    first = next((each.host for each in known if each.rank == 0), None)
    return any(_is_loopback(each.lookups[0].addresses) for each in known if each.host != first)


def _own(known: list[RankFacts]) -> Iterator[Check]:
    """gloo listens at the address of the host's own name, unless it is told an interface."""
    if not between_hosts(known):
        return
    unset = [each for each in known if not each.environment.get("GLOO_SOCKET_IFNAME")]
    local = [each for each in unset if each.address and _is_loopback((each.address,))]
    if local:
        host = local[0]
        who = named(each.rank for each in local)
        found = f"on {who} the host's own name ({host.host}) means {host.address}, which no other host can reach"
        advice = "set GLOO_SOCKET_IFNAME to the network interface, or correct the host's line in /etc/hosts"
        yield fail(FAMILY, "own name", found, advice, [each.rank for each in local])


def _slow(known: list[RankFacts]) -> Iterator[Check]:
    slow = [
        (lookup.took_s, each.rank, lookup.name) for each in known for lookup in each.lookups if lookup.took_s > SLOW_S
    ]
    if slow:
        took, rank, name = max(slow)
        found = f"looking up {name} took {took:.1f} s on rank {rank}"
        yield warn(
            FAMILY, "slow", found, "a name server does not answer; see /etc/resolv.conf", [each[1] for each in slow]
        )


def _is_loopback(addresses: tuple[str, ...]) -> bool:
    return bool(addresses) and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses)
