"""Versions and the user's code: equal on all ranks, or the ranks do not do the same."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import differing, fail, groups, minority, named, ok, warn
from hangwatch.doctor.model import Check, Job, RankFacts

FAMILY = "versions"
MUST_AGREE = ("torch", "nccl", "cuda")


def checks(job: Job) -> Iterator[Check]:
    known = [each for each in job.ranks if each.versions]
    if not known:
        return
    found = [*_packages(known), *_code(known)]
    yield from found or [ok(FAMILY, "versions", _shown(known))]


def _shown(known: list[RankFacts]) -> str:
    have = known[0].versions
    shown = ", ".join(f"{name} {have[name]}" for name in ("torch", "nccl", "cuda", "driver", "python") if name in have)
    commit = known[0].code.commit
    return f"{shown} on all ranks{f'; code at {commit[:10]}' if commit else ''}"


def _packages(known: list[RankFacts]) -> Iterator[Check]:
    for name in dict.fromkeys([*MUST_AGREE, *sorted({name for each in known for name in each.versions})]):
        seen = groups([each for each in known if _complete(each)], lambda each: each.versions.get(name, ""))  # noqa: B023
        if len(seen) > 1:
            make = fail if name in MUST_AGREE else warn
            yield make(
                FAMILY, name, f"{name} differs: {differing(seen)}", "install the same everywhere", minority(seen)
            )


def _complete(rank: RankFacts) -> bool:
    """Whether torch could be imported, so that what only it knows is there."""
    return any(each.name == "torch" and each.done and not each.problem for each in rank.stages)


def _code(known: list[RankFacts]) -> Iterator[Check]:
    for name, what in (("digest", "the script"), ("commit", "the commit of the code")):
        seen = groups([each for each in known if getattr(each.code, name)], lambda each: getattr(each.code, name)[:10])  # noqa: B023
        if len(seen) > 1:
            found = f"{what} differs between ranks: {differing(seen)}"
            advice = "bring all hosts to the same code: git status, rsync, the image's tag"
            yield fail(FAMILY, "code", found, advice, minority(seen))
            return
    dirty = groups([each for each in known if each.code.commit], lambda each: each.code.changed)
    if len(dirty) > 1:
        found = f"the working tree has changes on {named(dirty[True])} only"
        yield warn(FAMILY, "code", found, "commit or copy the changes to all hosts", dirty[True])
