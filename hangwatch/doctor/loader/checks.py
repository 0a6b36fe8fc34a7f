"""What walks over a loader say: lengths, shares, contents, pace, growth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hangwatch.doctor.families.telling import fail, named, ok, warn
from hangwatch.doctor.loader.model import Epoch, Walk
from hangwatch.doctor.model import Check
from hangwatch.report.words import duration, size

FAMILY = "loader"
STALL, STALL_S = 10.0, 1.0  # times the median, and at least so long
START_S = 20.0
GROWTH, GROWTH_BYTES = 1.03, 32 << 20  # an epoch, and twice in a row
INSTANT = 1000.0  # batches a second: no worker is needed
GAIN = 1.15  # by how much more workers must be faster to be worth it


def all_checks(walks: Sequence[Walk]) -> Iterator[Check]:
    """Every check, in the order in which a user should mend what fails."""
    lost = [walk for walk in walks if walk.problem and walk.purpose == "rank"]
    if lost:
        found = f"{named(walk.rank for walk in lost)}: {lost[0].problem}"
        yield fail(FAMILY, "made", found, "NAME must be a DataLoader, or a function that returns one")
        return
    ranks = [walk for walk in walks if walk.purpose == "rank" and walk.epochs]
    for check in (_errors, _lengths, _shares, _contents, _set_epoch, _growth, _stalls, _spawn):
        yield from check(ranks)
    yield from _races([walk for walk in walks if walk.purpose == "again" and walk.epochs])
    yield from _pace(walks)


def _errors(ranks: Sequence[Walk]) -> Iterator[Check]:
    for walk in ranks:
        for number, epoch in enumerate(walk.epochs):
            if epoch.problem:
                found = f"rank {walk.rank}, epoch {number}, batch {epoch.drawn}: {epoch.problem}"
                yield fail(FAMILY, "errors", found, "mend the dataset or collate_fn at that line", [walk.rank])
                return
    yield ok(
        FAMILY, "errors", f"{sum(epoch.drawn for walk in ranks for epoch in walk.epochs)} batches without an error"
    )


def _lengths(ranks: Sequence[Walk]) -> Iterator[Check]:
    lengths = {walk.rank: _batches(walk) for walk in ranks}
    known = {rank: count for rank, count in lengths.items() if count is not None}
    if len(set(known.values())) > 1:
        least, most = min(known.values()), max(known.values())
        short = [rank for rank, count in known.items() if count == least]
        hang = f"the job will hang at epoch 0, batch {least}"
        found = f"{named(short)} has {least} batches an epoch, others up to {most}: {hang}"
        advice = "DistributedSampler(..., drop_last=True), or pad the last one, or Join around the loop"
        yield fail(FAMILY, "lengths", found, advice, short, [f"rank {r}: {n} batches" for r, n in known.items()])
    elif known:
        yield ok(FAMILY, "lengths", f"{next(iter(known.values()))} batches an epoch on every rank")
    for walk in ranks:
        epoch = walk.epochs[0]
        if epoch.ended and walk.length is not None and epoch.drawn != walk.length and not epoch.problem:
            found = f"len(loader) says {walk.length} batches, the loader gives {epoch.drawn}"
            advice = "divide an IterableDataset among workers by get_worker_info(), and count what it gives"
            yield warn(FAMILY, "len()", found, advice, [walk.rank])
            return


def _batches(walk: Walk) -> int | None:
    """What an epoch really gives, where it was walked to its end; else what len(loader) says."""
    epoch = walk.epochs[0]
    return epoch.drawn if epoch.ended and not epoch.problem else walk.length


def _shares(ranks: Sequence[Walk]) -> Iterator[Check]:
    """Overlap and gaps between the ranks."""
    if len(ranks) < 2:
        return
    if ranks[0].iterable:
        if len({walk.epochs[0].digests for walk in ranks}) == 1 and ranks[0].epochs[0].drawn:
            found = f"every rank gets the same {ranks[0].epochs[0].drawn} batches of {ranks[0].dataset}"
            yield warn(FAMILY, "shares", found, "divide the data by rank in the dataset's __iter__")
        return
    if len({(walk.fingerprint, walk.dataset_length) for walk in ranks}) > 1 or not ranks[0].fingerprint:
        return  # each rank has a dataset of its own: indices tell nothing
    shares = [set(walk.order) for walk in ranks if walk.order]
    total = ranks[0].dataset_length
    if len(shares) < 2 or any(walk.order_cut for walk in ranks):
        return
    union = set().union(*shares)
    twice = sum(map(len, shares)) - len(union)
    if twice > max(len(ranks), len(union) // 10):
        whole = all(len(share) == len(union) for share in shares)
        found = (
            f"every rank draws all {len(union)} samples: {ranks[0].sampler} does not divide them"
            if whole
            else f"{twice} of {sum(map(len, shares))} draws are of samples that another rank draws, too"
        )
        yield warn(FAMILY, "shares", found, "DistributedSampler(dataset), or a sampler that knows rank and world size")
        return
    if total is not None and (missing := total - len(union)) > max(
        len(ranks) * (ranks[0].batch_size or 1), total // 10
    ):
        yield warn(FAMILY, "shares", f"{missing} of {total} samples are drawn by no rank", "see the sampler's shares")
        return
    yield ok(
        FAMILY, "shares", f"the ranks divide {len(union)} samples" + (f"; {twice} are drawn twice" if twice else "")
    )


def _contents(ranks: Sequence[Walk]) -> Iterator[Check]:
    epochs = [(walk, epoch) for walk in ranks for epoch in walk.epochs]
    if nones := [(walk, epoch) for walk, epoch in epochs if epoch.nones]:
        found = f"{nones[0][1].nones} batches of rank {nones[0][0].rank} are None, or hold a None"
        advice = "a rank that skips them issues fewer collectives than the others: replace broken samples instead"
        yield fail(FAMILY, "None", found, advice, {walk.rank for walk, _ in nones})
    sizes = sorted({each for _, epoch in epochs for each in epoch.sizes})
    if len(sizes) > 1:
        found = f"batch sizes vary before the last batch: {', '.join(map(str, sizes[:8]))}"
        advice = "does collate_fn drop samples? a batch that comes out empty on one rank stops the others"
        yield warn(FAMILY, "batch size", found, advice)
    shapes = sorted({shape for _, epoch in epochs for shape in epoch.shapes})
    if len(shapes) > 1 and len(sizes) <= 1:
        found = f"{len(shapes)} different shapes: {'; '.join(shapes[:4])}"
        yield warn(
            FAMILY, "shapes", found, "right for text; torch.compile compiles anew for each, memory is fragmented"
        )


def _set_epoch(ranks: Sequence[Walk]) -> Iterator[Check]:
    walk = ranks[0] if ranks else None
    if walk is None or not walk.shuffles or walk.set_epoch is None:
        return
    if not walk.set_epoch:
        found = f"{walk.sampler}.set_epoch(1) does not change the order"
        yield warn(FAMILY, "set_epoch", found, "every epoch will be the same: seed the order by the epoch")
    else:
        yield ok(FAMILY, "set_epoch", f"{walk.sampler}.set_epoch changes the order; call it before every epoch")


def _growth(ranks: Sequence[Walk]) -> Iterator[Check]:
    for walk in ranks:
        memory = [epoch.memory for epoch in walk.epochs if epoch.memory]
        files = [epoch.descriptors for epoch in walk.epochs if epoch.descriptors]
        if len(memory) >= 3 and all(b > a * GROWTH and b - a > GROWTH_BYTES for a, b in pairwise(memory)):
            found = (
                f"memory grows by {size((memory[-1] - memory[0]) // (len(memory) - 1))} an epoch on rank {walk.rank}"
            )
            yield warn(
                FAMILY, "memory", found, "does the dataset keep what it has loaded? workers multiply it", [walk.rank]
            )
            return
        if len(files) >= 3 and all(b > a for a, b in pairwise(files)):
            found = f"open files grow: {', '.join(map(str, files))} at the end of each epoch on rank {walk.rank}"
            yield warn(FAMILY, "open files", found, "close files that __getitem__ opens", [walk.rank])
            return


def _stalls(ranks: Sequence[Walk]) -> Iterator[Check]:
    def worst(pair: tuple[Walk, Epoch]) -> float:
        return pair[1].slowest_s

    epochs = [(walk, epoch) for walk in ranks for epoch in walk.epochs if epoch.drawn > 2]
    if not epochs:
        return
    walk, epoch = max(epochs, key=worst)
    if epoch.slowest_s > max(STALL_S, STALL * epoch.usual_s):
        found = f"a batch of rank {walk.rank} took {duration(epoch.slowest_s)}, most take {epoch.usual_s * 1000:.0f} ms"
        yield warn(FAMILY, "stalls", found, "all ranks wait for it: see storage, and samples that are much larger")
    if (start := max(epoch.first_s for _, epoch in epochs)) > START_S:
        advice = "persistent_workers=True; does each worker load an index or copy the dataset (spawn)?"
        yield warn(FAMILY, "start", f"the first batch took {duration(start)}", advice)


def _spawn(ranks: Sequence[Walk]) -> Iterator[Check]:
    problem = next((walk.spawn_problem for walk in ranks if walk.spawn_problem), "")
    if problem:
        advice = "define functions at the top of a module, open files in the worker; or keep the start method fork"
        yield warn(FAMILY, "spawn", f"workers cannot be started with spawn: {problem}", advice)


def _races(again: Sequence[Walk]) -> Iterator[Check]:
    """Two walks with the same seed."""
    if len(again) != 2 or again[0].workers != again[1].workers:
        return
    one, other = again[0].epochs[0].digests, again[1].epochs[0].digests
    count = min(len(one), len(other))
    differ = [number for number in range(count) if one[number] != other[number]]
    if differ and not any(walk.epochs[0].problem for walk in again):
        found = f"{len(differ)} of {count} batches differ between two walks with the same seed, first batch {differ[0]}"
        advice = "randomness without torch's seed (numpy, random, time), or workers that share a file: worker_init_fn"
        yield warn(FAMILY, "repeatable", found, advice)
    elif count:
        yield ok(FAMILY, "repeatable", f"{count} batches are the same in two walks with the same seed")


def _pace(walks: Sequence[Walk]) -> Iterator[Check]:
    """The fewest workers that are about as fast as the best."""
    rates: dict[int, float] = {}
    for walk in walks:
        if walk.purpose == "pace" and walk.rate:
            rates[walk.workers] = max(rates.get(walk.workers, 0.0), walk.rate)
    if len(rates) < 2:
        return
    if rates.get(0, 0.0) < INSTANT:
        rates.pop(0, None)  # without workers, each step waits for its batch
    if not rates:
        return
    best = min(count for count, rate in rates.items() if rate * GAIN >= max(rates.values()))
    table = [f"{count} workers: {rate:,.1f} batches/s" for count, rate in sorted(rates.items())]
    mine = next((walk.workers for walk in walks if walk.purpose == "rank"), best)
    own = rates.get(mine)
    if own is not None and own * GAIN < rates[best]:
        found = f"{mine} workers give {own:,.1f} batches/s, {best} give {rates[best]:,.1f}"
        yield warn(
            FAMILY, "workers", found, f"num_workers={best}; all ranks of a host share its processors", details=table
        )
    else:
        yield ok(
            FAMILY, "workers", f"{best} workers are enough: {rates[best]:,.1f} batches/s alone on this machine", table
        )
