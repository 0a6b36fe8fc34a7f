"""The ledger's tolerance, the wait-for graph on its own, and the catalogue's words."""

from __future__ import annotations

import pytest

from hangwatch import words
from hangwatch.catalogue import BY_ID, CATALOGUE
from hangwatch.judge import ORDER
from hangwatch.model import Collective, Collectives, Frame, GroupHead, RankEvidence, StepName
from hangwatch.proof.graph import Need, WaitGraph
from hangwatch.ranks.ledger import Ledger, family

IDS = [
    "rendezvous-missing-ranks", "rendezvous-unreachable-master", "rendezvous-port-conflict",
    "rendezvous-duplicate-rank", "node-not-started", "rank-died-before-init", "new-group-mismatch",
    "stale-file-lock", "uneven-steps", "early-exit", "skipped-collective", "data-dependent-graph",
    "rank-local-decision", "exception-on-one-rank", "timeout-ahead",
    "rank-died", "rank-frozen", "node-lost", "rank-zero-only-collective", "collective-mismatch", "group-order-cycle",
    "concurrent-collectives", "point-to-point-deadlock", "gradient-sync-mismatch", "slow-checkpoint",
    "compile-skew", "signal-handler-deadlock", "gil-held", "network-partition", "user-code-blocked",
    "loader-worker-blocked", "loader-fork-deadlock", "loader-worker-died", "loader-worker-frozen",
    "file-descriptors-exhausted", "shared-memory-exhausted", "device-stall", "gpu-fault", "interconnect-stall",
    "duplicate-gpu", "exit-non-daemon-thread", "exit-child-process", "exit-queue-feeder",
    "exit-atexit-handler", "exit-destructor", "exit-orphan-holds-pipe", "exit-destroy-asymmetric",
    "exit-launcher-order", "output-pipe-full", "undetermined", "uneven-forecast", "sampler-full-copy",
    "set-epoch-missing", "sampler-world-mismatch", "gpu-leftover-process", "gpu-memory-imbalance", "straggler",
    "data-bound", "nccl-environment", "plans-differ",
]  # fmt: skip


def evidence(rank: int, *heads: GroupHead, recent: tuple[Collective, ...] = ()) -> RankEvidence:
    return RankEvidence(rank, collectives=Collectives(heads, recent, source="flight-recorder"))


# ------------------------------------------------------------------------------------------ ledger


def test_a_name_that_means_different_groups_on_different_ranks_is_two_groups() -> None:
    ledger = Ledger([evidence(0, GroupHead("1", (0, 1), issued=3)), evidence(2, GroupHead("1", (2, 3), issued=9))])
    one, other = ledger.group(0, "1"), ledger.group(2, "1")
    assert one is not None
    assert other is not None
    assert one is not other
    assert (one.issued(0), one.issued(2), other.issued(2)) == (3, None, 9)
    assert one.silent == (1,)


@pytest.mark.parametrize(
    "heads",
    [
        (GroupHead("0", (0, 1), issued=3), GroupHead("0", (0, 2), issued=4)),
        (GroupHead("0", (1, 2), issued=3),),
        (GroupHead("0", (0, 1), issued=3, completed=5),),
    ],
    ids=["twice", "no member", "completed more than issued"],
)
def test_what_contradicts_itself_is_not_used(heads: tuple[GroupHead, ...]) -> None:
    ledger = Ledger([evidence(0, *heads), evidence(1, GroupHead("0", (0, 1), issued=7))])
    assert ledger.group(0, "0") is None
    assert list(ledger.groups_of(0)) == []
    mine = ledger.group(1, "0")
    assert mine is not None
    assert mine.behind(8) == [1]


def test_calls_are_found_by_number_in_rings_that_overlap_only_in_part() -> None:
    calls = tuple(Collective("0", seq, "all_reduce") for seq in range(50, 60))
    send = Collective("0", 55, "send", peer=1)
    ledger = Ledger([evidence(0, GroupHead("0", (0, 1), issued=59), recent=(*calls, send))])
    assert ledger.call(0, "0", 49) is None
    assert ledger.call(0, "1", 55) is None
    found = ledger.call(0, "0", 55)
    assert found is not None
    assert found.op == "all_reduce"
    assert ledger.call(3, "0", 55) is None


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("all_reduce", "all_reduce"),
        ("gloo:all_reduce_coalesced", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("reduce_scatter_tensor", "reduce_scatter"),
        ("_reduce_oop", "reduce"),
        ("scatter", "scatter"),
        ("monitored_barrier", "barrier"),
        ("gradients", "all_reduce"),
        ("buffers", "broadcast"),
        ("something new", ""),
    ],
)
def test_all_of_torchs_spellings_are_one_kind(op: str, kind: str) -> None:
    assert family(op) == kind


# ------------------------------------------------------------------------------------------ graph


def test_who_waits_for_one_that_can_move_can_go_on() -> None:
    assert WaitGraph({0: Need((1,)), 1: Need((2,))}).deadlocked() == frozenset()


def test_a_circle_and_everybody_behind_it_are_deadlocked() -> None:
    graph = WaitGraph({0: Need((1,)), 1: Need((0,)), 2: Need((1,)), 3: Need((9,))})
    assert graph.deadlocked() == {0, 1, 2}
    assert sorted(graph.cycle(graph.deadlocked())) == [0, 1]


def test_every_one_of_the_absent_is_needed_unless_one_is_enough() -> None:
    dead = {5}
    assert WaitGraph({0: Need((5, 6))}, dead).deadlocked() == {0}
    assert WaitGraph({0: Need((5, 6), every=False)}, dead).deadlocked() == frozenset()
    assert WaitGraph({0: Need((5,), every=False)}, dead).deadlocked() == {0}


def test_a_wrong_partner_is_never_released() -> None:
    assert WaitGraph({0: Need((), never=(1,))}).deadlocked() == {0}


def test_the_shortest_chain_leads_from_the_victim_to_the_cause() -> None:
    graph = WaitGraph({0: Need((1, 2)), 1: Need((3,)), 2: Need((4,)), 4: Need((3,))}, {3})
    assert graph.chain(0, [3]) == [0, 1, 3]
    assert graph.chain(0, [9]) == []


def test_ranks_in_one_collective_share_one_need() -> None:
    need = Need((9,))
    assert WaitGraph(dict.fromkeys(range(9), need), {9}).deadlocked() == set(range(9))


# ------------------------------------------------------------------------------------------ words


def test_every_cause_of_the_catalogue_has_its_words() -> None:
    assert sorted(BY_ID) == sorted(IDS)
    for entry in CATALOGUE:
        assert entry.title
        assert entry.explanation.endswith(".")
        assert entry.fix
        assert entry.docs.endswith(f"#{entry.id}")
        assert set(entry.look_alikes) <= BY_ID.keys() - {entry.id}


def test_the_rules_of_the_order_are_all_different() -> None:
    assert len(set(ORDER)) == len(ORDER)


def test_ranges_plurals_steps_and_places() -> None:
    assert words.ranges([5, 0, 1, 2]) == "0-2 and 5"
    assert words.ranges(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"
    assert [words.ranks(found) for found in ([], [3], [0, 3], [0, 1], [0, 1, 2, 5])] == [
        "no rank",
        "rank 3",
        "ranks 0 and 3",
        "ranks 0-1",
        "ranks 0-2 and 5",
    ]
    assert words.plural(1, "batch") == "1 batch"
    assert words.plural(2000, "batch") == "2,000 batches"
    assert words.step(StepName(1, 12, 212)) == "epoch 1, batch 12 (step 212)"
    assert words.step(StepName(step=212)) == "step 212"
    assert words.place(Frame("/home/ann/train.py", 88, "main")) == "train.py:88"
    assert words.duration(200) == "3 min 20 s"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
