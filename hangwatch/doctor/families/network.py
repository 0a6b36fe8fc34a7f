"""Interfaces: those that settings name, those that the ranks would use, and whether the two fit."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import between_hosts, differing, fail, groups, named, ok, warn
from hangwatch.doctor.model import Check, Interface, Job, RankFacts

FAMILY = "network"
SETTINGS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
VIRTUAL = ("docker", "br-", "virbr", "cni", "flannel", "veth", "cali", "vmnet", "tailscale")


def checks(job: Job) -> Iterator[Check]:
    known = [each for each in job.ranks if each.interfaces]
    if not known:
        return
    found = [*_named(known), *_same_subnet(known), *_route(known), *_networks(known), *_mtu(known)]
    yield from found or [ok(FAMILY, "interfaces", _shown(known))]


def _shown(known: list[RankFacts]) -> str:
    used = groups(known, lambda each: _used(each) or "none")
    return f"the ranks use {differing(used)}" if between_hosts(known) else "all ranks are on one host"


def _used(rank: RankFacts) -> str:
    """The name of the interface at whose address gloo would listen."""
    return next((each.name for each in rank.interfaces if each.address == rank.address), "")


def _asked(value: str, interfaces: tuple[Interface, ...]) -> list[Interface]:
    """Those that NCCL's syntax names: prefixes, `=exact`, `^but-these`."""
    exact, barred = value.startswith(("=", "^=")), value.startswith("^")
    words = [word for word in value.lstrip("^=").split(",") if word]
    fits = {
        each.name
        for each in interfaces
        if any(each.name == w or (not exact and each.name.startswith(w)) for w in words)
    }
    return [each for each in interfaces if (each.name in fits) != barred]


def _named(known: list[RankFacts]) -> Iterator[Check]:
    for name in SETTINGS:
        lost = {
            each.rank: each for each in known if (v := each.environment.get(name)) and not _asked(v, each.interfaces)
        }
        if lost:
            first = lost[min(lost)]
            there = ", ".join(dict.fromkeys(each.name for each in first.interfaces if not each.loopback))
            found = f"{name}={first.environment[name]} names no interface on {named(lost)}; there are {there or 'none'}"
            yield fail(FAMILY, name, found, "set it to an interface that every host has, or leave it out", lost)
        down = {
            e.rank: e
            for e in known
            if (v := e.environment.get(name)) and (a := _asked(v, e.interfaces)) and not any(i.up for i in a)
        }
        if down:
            found = f"{name}={down[min(down)].environment[name]} is down on {named(down)}"
            yield fail(FAMILY, name, found, "ip link set INTERFACE up, or name another", down)
        loop = {
            e.rank: e
            for e in known
            if (v := e.environment.get(name)) and (a := _asked(v, e.interfaces)) and all(i.loopback for i in a)
        }
        if loop and between_hosts(known):
            found = f"{name}={loop[min(loop)].environment[name]} is the loopback, and the ranks are on several hosts"
            yield fail(FAMILY, name, found, "name the interface of the hosts' network", loop)


def _same_subnet(known: list[RankFacts]) -> Iterator[Check]:
    """Answers may leave by another interface than questions came in, and are dropped (rp_filter) or slow."""
    if not between_hosts(known):
        return
    for each in known:
        subnets: dict[str, list[str]] = {}
        for one in each.interfaces:
            if one.up and not one.loopback and not one.network.endswith("/32"):
                subnets.setdefault(one.network, []).append(one.name)
        double = [(network, names) for network, names in subnets.items() if len(set(names)) > 1]
        if double:
            network, names = double[0]
            found = f"{each.host} has several interfaces in {network}: {', '.join(sorted(set(names)))}"
            advice = "name one of them in GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, or give each a subnet of its own"
            yield warn(FAMILY, "one subnet", found, advice, [r.rank for r in known if r.host == each.host])
            return


def _route(known: list[RankFacts]) -> Iterator[Check]:
    """Packets to the master leave by another interface than the one that gloo listens on."""
    if not between_hosts(known):
        return
    first = next((each.host for each in known if each.rank == 0), None)
    other = [each for each in known if each.host != first and each.route and _used(each) and each.route != _used(each)]
    if other:
        each = other[0]
        who = named(r.rank for r in other)
        found = (
            f"on {who} the way to {each.master} goes by {each.route}, but gloo would use {_used(each)} ({each.address})"
        )
        advice = (
            f"set GLOO_SOCKET_IFNAME={each.route} (and NCCL_SOCKET_IFNAME), or correct the route: ip route get ADDRESS"
        )
        yield warn(FAMILY, "route", found, advice, [r.rank for r in other])


def _networks(known: list[RankFacts]) -> Iterator[Check]:
    """The ranks listen in different networks, or on one that only exists inside its host."""
    if not between_hosts(known):
        return
    inner = [each for each in known if _used(each).startswith(VIRTUAL)]
    if inner:
        one, who = inner[0], named(e.rank for e in inner)
        found = f"gloo would use {_used(one)} ({one.address}) on {who}, a network inside its host"
        yield warn(
            FAMILY,
            "inner network",
            found,
            "name the real interface in GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME",
            [e.rank for e in inner],
        )
        return
    seen = groups(
        [e for e in known if _used(e)], lambda e: next(i.network for i in e.interfaces if i.address == e.address)
    )
    if len(seen) > 1:
        yield warn(
            FAMILY, "networks", f"the ranks listen in different networks: {differing(seen)}",
            "right where they are routed to each other; see the links below",
        )  # fmt: skip


def _mtu(known: list[RankFacts]) -> Iterator[Check]:
    """Large packets vanish where MTUs differ: connections work, and large tensors hang."""
    if not between_hosts(known):
        return
    seen = groups([e for e in known if _used(e)], lambda e: next(i.mtu for i in e.interfaces if i.address == e.address))
    if len(seen) > 1:
        found = f"the interfaces' MTU differs: {differing(seen)}"
        yield warn(
            FAMILY, "MTU", found, "set the same on all hosts and switches: large tensors may hang, small ones pass"
        )
