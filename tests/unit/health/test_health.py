"""Each warning where it is true, and silence where there is an innocent explanation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.catalogue import BY_ID
from hangwatch.health import HealthWatch, device_warnings, warnings
from hangwatch.model import (
    Collective,
    Frame,
    GpuFacts,
    GroupHead,
    HealthWarning,
    Identity,
    LoaderFacts,
    NodeFacts,
    Progress,
    RankEvidence,
    Reading,
    StepEntry,
    StepTimes,
)
from tests.strategies import record

LOOP = Frame("/home/ann/train.py", 40, "main")
GIB = 1 << 30


def loader(length: int | None = 100, **parts: Any) -> LoaderFacts:
    """A training loader in its first epoch."""
    given: dict[str, Any] = {"epoch": 0, "drawn": 3, "where": LOOP, "dataset": "Images", "dataset_length": 800}
    return LoaderFacts(index=0, length=length, **(given | parts))


def distributed(rank: int, **parts: Any) -> LoaderFacts:
    """The same over DistributedSampler of two replicas."""
    given: dict[str, Any] = {
        "sampler": "DistributedSampler",
        "sampler_replicas": 2,
        "sampler_length": 400,
        "shuffle": True,
    }
    return loader(**(given | {"sampler_rank": rank} | parts))


def reading(
    rank: int,
    *loaders: LoaderFacts,
    world: int = 2,
    environment: dict[str, str] | None = None,
    backend: str = "gloo",
    **parts: Any,
) -> Reading:
    """A rank in step 2 of its first epoch, with three collectives a step."""
    identity = Identity(rank, world, rank, "node-a", 100 + rank, 1.0, "job", environment=environment or {})
    ledger = tuple(StepEntry(step, 0, step, 0, step * 1.0, {"0": step * 3}) for step in range(3))
    given: dict[str, Any] = {
        "heads": (GroupHead("0", tuple(range(world)), backend=backend),),
        "steps": ledger,
        "progress": Progress(epoch=0, batch=2, step=2),
    }
    return Reading(identity, taken_at=50.0, loaders=loaders, **(given | parts))


def kinds(found: tuple[HealthWarning, ...]) -> list[str]:
    return [each.kind for each in found]


def test_a_healthy_job_gets_no_warning() -> None:
    assert warnings([reading(rank, distributed(rank)) for rank in range(2)]) == ()


def test_every_warning_is_in_the_catalogue_with_its_advice() -> None:
    (found,) = warnings([reading(0, loader(100)), reading(1, loader(101))])
    assert (found.fix, found.at) == (BY_ID["uneven-forecast"].fix, 50.0)


# ---------------------------------------------------------------- loaders


def test_loaders_of_different_length_will_hang() -> None:
    (found,) = warnings([reading(0, loader(101)), reading(1, loader(100))])
    assert (found.kind, found.ranks) == ("uneven-forecast", (1,))
    assert "rank 1 has 100 batches, that of rank 0 101" in found.summary
    assert "at epoch 0, batch 100 (step 100)" in found.summary


def test_a_loader_that_was_resumed_further_on_than_others_will_hang() -> None:
    (found,) = warnings([reading(0, loader(100)), reading(1, loader(100, resumed_at=30))])
    assert (found.kind, found.ranks) == ("uneven-forecast", (1,))
    assert "The loader of rank 1 has 70 batches left, that of rank 0 100" in found.summary


def test_steps_that_wait_for_no_rank_may_make_up_for_unequal_lengths() -> None:
    """Gradients accumulated over four batches: of 15 and 16 batches each rank makes four steps that wait."""
    ledger = tuple(StepEntry(step, 0, step, 0, 40.0 + step, {"0": (step + 1) // 4}) for step in range(9))
    ranks = [replace(reading(rank, loader(15 + rank)), steps=ledger) for rank in range(2)]
    assert warnings(ranks) == ()


def test_the_step_counts_from_the_start_of_the_job() -> None:
    # GIVEN ranks in epoch 1 after 50 steps, whose loaders differ from this epoch on
    late = {"epoch": 1, "drawn_per_epoch": (50,), "exhausted_per_epoch": (True,)}
    progress = Progress(epoch=1, batch=2, step=52)
    ranks = [reading(rank, loader(60 + rank, **late), progress=progress) for rank in range(2)]
    # THEN
    assert "at epoch 1, batch 60 (step 110)" in warnings(ranks)[0].summary


JOIN = Collective(  # as a board has it, with the whole path
    "0",
    3,
    "all_reduce",
    ((1,),),
    frames=(
        Frame("/venv/torch/distributed/distributed_c10d.py", 3245, "all_reduce"),
        Frame("/venv/torch/distributed/c10d_logger.py", 83, "wrapper"),
        Frame("/venv/torch/distributed/algorithms/join.py", 330, "notify_join_context"),
        Frame("/venv/torch/nn/modules/module.py", 1780, "_call_impl"),
        Frame("train.py", 9, "main"),
    ),
)


@pytest.mark.parametrize(
    "short",
    [
        reading(1, loader(100, training=False)),  # validation on one rank
        reading(1),  # another rank has no loader at all
        reading(1, loader(None)),
        reading(1, loader(100, where=Frame("/home/ann/train.py", 90, "evaluate"))),
        reading(1, loader(100, dataset="Words")),
        reading(1, loader(100, exhausted=True)),
        reading(1, loader(100, epoch=1, drawn_per_epoch=(100,), exhausted_per_epoch=(True,))),  # it went well
        reading(1, loader(100), steps=()),
        reading(1, loader(100), steps=(StepEntry(0, 0, 0, 0, 0.0, {"0": 4}), StepEntry(1, 0, 1, 0, 1.0, {"0": 4}))),
        reading(1, loader(100), calls=(JOIN,)),
        reading(1, loader(100), loader(5)),
    ],
)
def test_unequal_loaders_may_be_innocent(short: Reading) -> None:
    assert warnings([reading(0, loader(101)), short]) == ()


def test_a_loop_that_is_always_left_early_is_innocent() -> None:
    left = {"epoch": 1, "drawn_per_epoch": (50,), "exhausted_per_epoch": (False,)}
    assert warnings([reading(rank, loader(100 + rank, **left)) for rank in range(2)]) == ()


def test_a_sampler_of_another_world() -> None:
    (found,) = warnings([reading(rank, distributed(rank, sampler_replicas=4), world=2) for rank in range(2)])
    assert (found.kind, found.ranks) == ("sampler-world-mismatch", (0, 1))
    assert "among 4 replicas, but the job has 2 ranks" in found.summary


def test_two_samplers_of_one_rank() -> None:
    (found,) = warnings([reading(rank, distributed(0)) for rank in range(2)])
    assert (found.kind, found.ranks) == ("sampler-world-mismatch", (0, 1))


def test_samplers_need_not_span_a_job_with_smaller_groups() -> None:
    # GIVEN two pipelines of two ranks: each pipeline draws its share together
    pairs = (GroupHead("0", (0, 1, 2, 3)), GroupHead("1", (0, 1)))
    assert warnings([reading(rank, distributed(rank // 2), world=4, heads=pairs) for rank in range(4)]) == ()


def test_samplers_may_be_dealt_in_another_order() -> None:
    assert warnings([reading(rank, distributed(1 - rank)) for rank in range(2)]) == ()


def test_a_sampler_that_knows_the_ranks_and_gives_all_to_each() -> None:
    (found,) = warnings([reading(rank, distributed(rank, sampler="Balanced", sampler_length=800)) for rank in range(2)])
    assert (found.kind, found.ranks) == ("sampler-full-copy", (0, 1))
    assert "draws all 800 samples of Images: Balanced does not divide them among the 2 ranks" in found.summary


@pytest.mark.parametrize(
    ("sampler", "orders", "expected"),
    [
        ("Balanced", ("aa", "aa"), ["sampler-full-copy"]),
        ("Balanced", ("aa", "bb"), []),
        ("Balanced", ("", ""), []),
        ("SequentialSampler", ("aa", "aa"), []),  # each rank may have a data set of its own
    ],
)
def test_a_sampler_that_knows_of_no_ranks(sampler: str, orders: tuple[str, str], expected: list[str]) -> None:
    loaders = [loader(sampler=sampler, sampler_length=800, sampler_indices_hash=order) for order in orders]
    assert kinds(warnings([reading(rank, each) for rank, each in enumerate(loaders)])) == expected


REPEATED = {"sampler_indices_hash": "aa", "previous_indices_hash": "aa", "drawn_per_epoch": (9, 9), "epoch": 2}


def test_the_same_order_again() -> None:
    (found,) = warnings([reading(rank, distributed(rank, **REPEATED)) for rank in range(2)])
    assert (found.kind, found.ranks) == ("set-epoch-missing", (0, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"previous_indices_hash": "bb"},
        {"sampler_indices_hash": "", "previous_indices_hash": ""},
        {"shuffle": False},
        {"drawn_per_epoch": (1, 1)},
        {"sampler_length": 8},
        {"sampler_replicas": None},
        {"training": False},
    ],
)
def test_the_same_order_may_be_wanted(change: dict[str, Any]) -> None:
    assert warnings([reading(rank, distributed(rank, **(REPEATED | change))) for rank in range(2)]) == ()


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("backend", "name", "values", "told"),
    [
        ("cuda:nccl", "NCCL_SOCKET_IFNAME", ("eth0", "eth1"), "differs between ranks: eth0 on rank 0, eth1 on rank 1"),
        ("gloo", "GLOO_SOCKET_IFNAME", ("eth0", ""), "differs between ranks"),
        ("gloo", "NCCL_SOCKET_IFNAME", ("eth0", "eth1"), ""),
        ("cuda:nccl", "NCCL_DEBUG", ("INFO", "WARN"), ""),
        ("cuda:nccl", "NCCL_IB_HCA", ("mlx5_0", "mlx5_1"), ""),
        ("cuda:nccl", "TORCH_NCCL_ASYNC_ERROR_HANDLING", ("0", "0"), "errors become hangs"),
        ("cuda:nccl", "TORCH_NCCL_ASYNC_ERROR_HANDLING", ("1", "1"), ""),
        ("gloo", "TORCH_DISTRIBUTED_DEBUG", ("DETAIL", "INFO"), "DETAIL on rank 0: torch checks"),
    ],
)
def test_settings(backend: str, name: str, values: tuple[str, str], told: str) -> None:
    found = warnings([reading(rank, environment={name: value}, backend=backend) for rank, value in enumerate(values)])
    assert kinds(found) == (["nccl-environment"] if told else [])
    assert all(told in each.summary for each in found)


# ---------------------------------------------------------------- pace


def paced(rank: int, steps: int, data: float, before: float, **parts: Any) -> Reading:
    """A rank after so many steps of 100 ms, with its times a step."""
    times = StepTimes(steps=steps, data_s=steps * data, before_sync_s=steps * before, total_s=steps * 0.1)
    return replace(reading(rank, **parts), times=times, taken_at=1000 + steps * 0.1)


def watched(*costs: tuple[float, float], windows: int = 2, **parts: Any) -> tuple[HealthWarning, ...]:
    """What is told of ranks with these costs a step (data, before the first collective), in so many windows."""
    watch = HealthWatch()
    told: list[HealthWarning] = []
    for steps in range(10, 11 + 60 * windows, 60):
        told += watch([paced(rank, steps, *cost, **parts) for rank, cost in enumerate(costs)])
    return tuple(told)


def test_a_slow_rank() -> None:
    (found,) = watched((0.001, 0.02), (0.001, 0.08))
    assert (found.kind, found.ranks) == ("straggler", (1,))
    assert found.summary == (
        "All wait for rank 1 in each step: 81 ms a step until it has made its forward; 21 ms on a typical rank"
    )


def test_a_rank_with_a_slow_loader() -> None:
    (found,) = watched((0.001, 0.02), (0.06, 0.02), (0.001, 0.02))
    assert (found.kind, found.ranks) == ("straggler", (1,))
    assert "most of it waiting for the loader" in found.summary


@pytest.mark.parametrize(
    "costs",
    [
        ((0.001, 0.02), (0.001, 0.025)),
        ((0.001, 0.001), (0.001, 0.015)),  # 15 times as slow, but by milliseconds
        ((0.05, 0.01), (0.0, 0.06)),  # rank 1 waits in its forward for the buffers of rank 0, which has no data yet
        ((0.001, 0.0), (0.04, 0.0)),  # no forward is seen: nobody knows where the ranks meet
        ((0.001, 0.02),),
    ],
)
def test_no_rank_is_slow(costs: tuple[tuple[float, float], ...]) -> None:
    assert watched(*costs) == ()


def test_all_wait_for_data() -> None:
    (found,) = watched((0.06, 0.02), (0.055, 0.02))
    assert (found.kind, found.ranks) == ("data-bound", (0, 1))
    assert "55% of its time or more" in found.summary


@pytest.mark.parametrize("costs", [((0.04, 0.02), (0.06, 0.02)), ((0.002, 0.02), (0.03, 0.02))])
def test_only_some_wait_for_data(costs: tuple[tuple[float, float], ...]) -> None:
    assert "data-bound" not in kinds(watched(*costs))


def test_where_work_is_queued_on_a_gpu_waiting_may_cost_nothing() -> None:
    assert watched((0.06, 0.02), (0.06, 0.02), backend="cuda:nccl") == ()
    assert kinds(watched((0.085, 0.01), (0.085, 0.01), backend="cuda:nccl")) == ["data-bound"]


def test_one_window_is_not_enough() -> None:
    assert watched((0.001, 0.02), (0.001, 0.08), windows=1) == ()


def test_a_restarted_rank_starts_a_new_window() -> None:
    watch = HealthWatch()
    for steps in (10, 70):
        watch([paced(0, steps, 0.001, 0.02), paced(1, steps, 0.001, 0.08)])
    again = paced(1, 130, 0.001, 0.08)
    again = replace(again, identity=replace(again.identity, pid=999))
    assert watch([paced(0, 130, 0.001, 0.02), again]) == ()


def test_a_kind_is_told_once() -> None:
    watch = HealthWatch()
    ranks = [reading(0, loader(100)), reading(1, loader(101))]
    assert kinds(watch(ranks)) == ["uneven-forecast"]
    assert watch(ranks) == ()


# ---------------------------------------------------------------- devices


def evidence(rank: int, gpu: int | None) -> RankEvidence:
    return RankEvidence(rank, "node-a", 100 + rank, reading=reading(rank), gpu=gpu)


def gpus(*processes: dict[int, int]) -> NodeFacts:
    found = tuple(GpuFacts(index, f"GPU-{index}", "H200", processes=each) for index, each in enumerate(processes))
    return NodeFacts("node-a", gpus=found)


def test_a_process_with_memory_on_anothers_gpu() -> None:
    node = gpus({100: 9 * GIB, 101: 2 * GIB}, {101: 9 * GIB})
    (found,) = device_warnings([node], [evidence(0, 0), evidence(1, 1)])
    assert (found.kind, found.ranks) == ("gpu-memory-imbalance", (1,))
    assert found.summary == "Rank 1 holds 2.0 GiB on GPU 0 of node-a, which is rank 0's"
    assert found.evidence == (
        "rank 0 (pid 100): 9.0 GiB on GPU 0",
        "rank 1 (pid 101): 2.0 GiB on GPU 0, 9.0 GiB on GPU 1",
    )


@pytest.mark.parametrize(
    ("node", "ranks"),
    [
        (gpus({100: GIB}, {101: GIB}), [evidence(0, 0), evidence(1, 1)]),
        (gpus({100: GIB}, {100: GIB}, {101: GIB}), [evidence(0, 0), evidence(1, 2)]),  # a model over two GPUs
        (gpus({100: GIB, 101: 1 << 20}, {101: GIB}), [evidence(0, 0), evidence(1, 1)]),
        (gpus({100: GIB, 101: GIB}), [evidence(0, 0), evidence(1, 0)]),  # ranks that share a GPU
        (gpus({100: GIB, 101: GIB}, {101: GIB}), [evidence(0, None), evidence(1, None)]),
        (NodeFacts("node-b"), [evidence(0, 0)]),
    ],
)
def test_memory_where_it_belongs(node: NodeFacts, ranks: list[RankEvidence]) -> None:
    assert device_warnings([node], ranks) == ()


# ---------------------------------------------------------------- whatever a board says


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(record(Reading), max_size=4), max_size=4))
def test_no_board_can_make_it_fail(rounds: list[list[Reading]]) -> None:
    watch = HealthWatch()
    for readings in rounds:
        assert all(each.kind in BY_ID for each in watch(readings))


@settings(max_examples=30, deadline=None)
@given(st.lists(record(NodeFacts), max_size=3), st.lists(record(RankEvidence), max_size=4))
def test_no_node_can_make_it_fail(nodes: list[NodeFacts], ranks: list[RankEvidence]) -> None:
    assert all(each.kind in BY_ID for each in device_warnings(nodes, ranks))
