"""Whether the store at MASTER_ADDR:MASTER_PORT can be served, and reached by every rank."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import fail, groups, named, ok, stage
from hangwatch.doctor.model import Check, Job

FAMILY = "master"


def checks(job: Job) -> Iterator[Check]:
    tried = [each for each in job.ranks if each.store]
    places = groups(job.ranks, lambda each: each.master)
    if len(places) > 1:
        shown = ", ".join(f"{place} on {named(ranks)}" for place, ranks in list(places.items())[:4])
        yield fail(FAMILY, "address", f"MASTER_ADDR:MASTER_PORT differ: {shown}", "start all ranks with the same")
    reasons = groups([each for each in tried if each.store != "reached"], lambda each: each.store)
    for reason, ranks in list(reasons.items())[:4]:
        master = next(each.master for each in tried if each.rank in ranks)
        yield fail(FAMILY, "store", f"{named(ranks)} cannot use {master}: {reason}", _advice(str(reason)), ranks)
    unfinished = [each for each in job.ranks if not each.store and (one := stage(each, "store")) and not one.done]
    if unfinished:
        found = f"{named(each.rank for each in unfinished)} got no answer from {unfinished[0].master}"
        yield fail(FAMILY, "answer", found, _advice("no answer"), [each.rank for each in unfinished])
    if tried and not reasons and not unfinished and len(places) == 1:
        yield ok(FAMILY, "store", f"{job.ranks[0].master} is reached by {named(each.rank for each in tried)}")


def _advice(reason: str) -> str:
    if "is taken" in reason:
        return "choose another MASTER_PORT, or end what listens there: ss -ltnp"
    if "refused" in reason:
        return "rank 0 or its launcher does not run on that host, or listens on another port"
    if "resolve" in reason:
        return "use an address as MASTER_ADDR"
    if "no answer" in reason:
        return "open the port between the hosts: security group, firewall, Kubernetes network policy"
    return "see the route to that address: ip route get ADDRESS"
