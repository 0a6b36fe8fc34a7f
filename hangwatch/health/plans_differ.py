"""The ranks' plans side by side: what will part them, before it has."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.model import GroupMade, HealthWarning, LoaderFacts
from hangwatch.words import ranks as named

from .step_waits import backward_waits
from .telling import Ranks, purely_data_parallel, warning

OF_MODELS = {
    "parameters": "the models' parameters differ in number, order, shape or requires_grad",
    "find_unused_parameters": "find_unused_parameters differs",
    "static_graph": "static_graph differs",
    "comm_hook": "the communication hook of DDP differs",
}


def plans_differ(ranks: Ranks) -> HealthWarning | None:
    """The first thing in which the ranks' plans differ and should not."""
    for found in (_worlds, _groups, _models, _samplers):
        told = next(found(ranks), None)
        if told is not None:
            return told
    return None


def _worlds(ranks: Ranks) -> Iterator[HealthWarning]:
    sizes = {rank: str(each.identity.world_size) for rank, each in ranks.items() if each.identity.world_size}
    if len(set(sizes.values())) > 1:
        yield warning("plans-differ", f"The ranks were told different world sizes: {_values(sizes)}", ranks)


def _groups(ranks: Ranks) -> Iterator[HealthWarning]:
    """Every rank must make all groups in the same order, those that it is no member of, too."""
    made = {rank: _made(each.groups_made) for rank, each in ranks.items() if each.groups_made}
    if not made or len(made) < len(ranks):
        return
    for number in range(min(map(len, made.values()))):
        asked = {rank: ",".join(map(str, groups[number].members)) for rank, groups in made.items()}
        if not all(asked.values()):
            continue  # a rank is inside the call that makes it, and its members are not known yet
        if len(set(asked.values())) > 1:
            summary = f"Group {number} is made of different ranks on different ranks: {_values(asked)}"
            yield warning("plans-differ", summary, ranks, evidence=_places(made, number))
            return


def _made(groups: tuple[GroupMade, ...]) -> tuple[GroupMade, ...]:
    """Without gaps: of very many groups a board keeps the first and the last."""
    return tuple(each for number, each in enumerate(groups) if each.index == number)


def _places(made: dict[int, tuple[GroupMade, ...]], number: int) -> list[str]:
    places = {rank: groups[number].where for rank, groups in made.items()}
    return [f"rank {rank}: {where.file}:{where.line}" for rank, where in list(places.items())[:8] if where is not None]


def _models(ranks: Ranks) -> Iterator[HealthWarning]:
    if not purely_data_parallel(ranks) or not all(backward_waits(each) for each in ranks.values()):
        return
    for name, words in OF_MODELS.items():
        values = {rank: each.identity.plan.get(name, "") for rank, each in ranks.items()}
        if len(set(values.values())) > 1:
            yield warning("plans-differ", f"On different ranks {words}: {_values(values)}", ranks)
            return


def _samplers(ranks: Ranks) -> Iterator[HealthWarning]:
    """Shares of one shuffled order fit each other only where all ranks shuffle alike."""
    loaders = {rank: each for rank, reading in ranks.items() for each in reading.loaders if each.training}
    if len(loaders) < len(ranks) or len({(each.where, each.dataset) for each in loaders.values()}) > 1:
        return
    if not all(each.sampler_replicas == len(ranks) for each in loaders.values()):
        return
    for name, of in (("class", _sampler), ("shuffle", _shuffle), ("seed", _seed)):
        values = {rank: of(each) for rank, each in loaders.items()}
        if len(set(values.values())) > 1:
            summary = f"The {name} of the ranks' samplers differs, so their shares overlap: {_values(values)}"
            yield warning("plans-differ", summary, ranks)
            return


def _seed(loader: LoaderFacts) -> str:
    return str(loader.sampler_seed) if loader.shuffle else ""


def _shuffle(loader: LoaderFacts) -> str:
    return str(loader.shuffle)


def _sampler(loader: LoaderFacts) -> str:
    return loader.sampler


def _values(values: dict[int, str]) -> str:
    by_value: dict[str, list[int]] = {}
    for rank, value in sorted(values.items()):
        by_value.setdefault(value, []).append(rank)
    return ", ".join(f"{value or 'none'} on {named(ranks)}" for value, ranks in list(by_value.items())[:4])
