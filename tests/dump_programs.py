"""Programs of the usual kinds for `tests.dump_world`: data parallel, meshes, hybrid sharding, pipelines, rings."""

from __future__ import annotations

from collections.abc import Callable

from tests.dump_world import Call, JobDumps, Join, Step, Sync, every, mesh

BUCKETS: list[Step] = [Call("all_reduce", 71, size, asynchronous=True) for size in (4096, 8192, 2048)]
STEP: list[Step] = [*BUCKETS, Join(), Sync()]
LOSS: list[Step] = [Call("all_reduce", 80, 1, dtype="Float"), Sync()]
TURN: list[Step] = [*BUCKETS, Join(), *LOSS]
BARRIER: list[Step] = [Call("barrier", 99, 1), Sync()]


def mesh_turn(rank: int, data: int, tensor: int, swapped: bool = False) -> list[Step]:
    calls: list[Step] = [
        Call("all_reduce", 300, 256, f"tp{rank // tensor}"),
        Call("all_reduce", 310, 4096, f"dp{rank % tensor}"),
    ]
    return [*(reversed(calls) if swapped else calls), Sync()]


def on_mesh(data: int, tensor: int, other: Callable[[int], list[Step] | None], timed: bool = True) -> JobDumps:
    """Four turns on a mesh; `other` gives the program of a rank that does otherwise."""
    programs = {rank: other(rank) or mesh_turn(rank, data, tensor) * 4 for rank in range(data * tensor)}
    return JobDumps(programs, mesh(data, tensor), timed)


def crossed(rank: int, data: int, tensor: int, who: tuple[int, ...]) -> list[Step] | None:
    turn = mesh_turn(rank, data, tensor)
    return [*turn * 2, *mesh_turn(rank, data, tensor, True), *turn] if rank in who else None


def hybrid(rank: int, turns: int) -> list[Step]:
    """Hybrid sharding: gathers and a scatter in the shard group, then a reduction across the replicas."""
    shard = f"shard{rank // 4}"
    turn: list[Step] = [
        Call("_all_gather_base", 600, 64, shard, out=256),
        Call("_all_gather_base", 600, 128, shard, out=512),
        Call("_reduce_scatter_base", 610, 256, shard, out=64),
        Call("all_reduce", 620, 64, f"replica{rank % 4}"),
        Sync(),
    ]
    return turn * turns


def hybrid_groups(world: int) -> dict[str, tuple[int, ...]]:
    shards = {f"shard{place}": tuple(range(4 * place, 4 * place + 4)) for place in range(world // 4)}
    return {**shards, **{f"replica{place}": tuple(range(place, world, 4)) for place in range(4)}}


def pipeline(rank: int, batches: int, last: int = 3, without: tuple[str, int] = ("", -1)) -> list[Step]:
    """A stage of a pipeline: receive and send each microbatch, but for one call that it leaves out."""
    found: list[Step] = []
    for batch in range(batches):
        if rank > 0 and without != ("recv", batch):
            found.append(Call("recv", 400, 32, "pipe", peer=rank - 1))
        if rank < last and without != ("send", batch):
            found.append(Call("send", 410, 32, "pipe", peer=rank + 1))
    return [*found, Sync()]


def pipe(other: dict[int, list[Step]] | None = None, **options: object) -> JobDumps:
    programs = {rank: (other or {}).get(rank, pipeline(rank, 4)) for rank in range(4)}
    return JobDumps(programs, {"pipe": (0, 1, 2, 3)}, **options)  # type: ignore[arg-type]


def around(rank: int, world: int) -> Call:
    """A batch of a send to the next rank and a receive from the one before."""
    after, before = (rank + 1) % world, (rank - 1) % world
    parts = (Call("send", 430, 16, "ring", peer=after), Call("recv", 430, 16, "ring", peer=before))
    return Call("batch", 430, group="ring", parts=parts)


def around_one_by_one(rank: int) -> list[Step]:
    """All send first, and receive when the send is done."""
    return [*TURN, Call("send", 420, 8, peer=(rank + 1) % 4), Call("recv", 421, 8, peer=(rank - 1) % 4), Sync()]


def gathers(size: int = 64) -> list[Step]:
    parts = tuple(Call("all_gather_into_tensor_coalesced", 440, each, out=each * 4) for each in (size, 32))
    return [Call("batch", 440, parts=parts), Sync()]


def differs(one: Call, other: Call, world: int = 8, rank: int = 3) -> JobDumps:
    """All ranks make `one` after three turns, and `rank` makes `other`."""
    usual, own = ([*TURN * 3, each, Sync(), *TURN] for each in (one, other))
    return JobDumps(every(world, usual, {rank: own}))


def soon(job: JobDumps) -> JobDumps:
    """The same, with files written a moment after the last event."""
    job.written_after_s = 0.3
    return job
