"""The checks of a preflight, a file for each family: from the facts of all ranks to verdicts.

A check says one thing and is silent where it has nothing to judge. Facts that could not be had are no faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hangwatch.doctor.families import (
    clocks,
    containers,
    gpus,
    launching,
    links,
    master,
    names,
    network,
    presence,
    settings,
    timeouts,
    versions,
)
from hangwatch.doctor.model import Check, Job

FAMILIES: dict[str, Callable[[Job], Iterator[Check]]] = {
    "launch": launching.checks,
    "ranks": presence.checks,
    "names": names.checks,
    "master": master.checks,
    "clocks": clocks.checks,
    "network": network.checks,
    "links": links.checks,
    "gpus": gpus.checks,
    "system": containers.checks,
    "versions": versions.checks,
    "settings": settings.checks,
    "timeouts": timeouts.checks,
}


def all_checks(job: Job) -> Iterator[Check]:
    """Every check, in the order in which a user should mend what fails."""
    for family in FAMILIES.values():
        yield from family(job)
