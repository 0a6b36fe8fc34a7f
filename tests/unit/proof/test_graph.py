"""The wait-for graph on its own: which ranks are released."""

from __future__ import annotations

from hangwatch.proof.graph import Need, WaitGraph


def test_a_rank_that_waits_for_one_that_can_move_can_go_on() -> None:
    assert WaitGraph({0: Need((1,)), 1: Need((2,))}).deadlocked() == frozenset()


def test_a_circle_and_all_ranks_that_wait_for_it_are_deadlocked() -> None:
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
    assert graph.chain([0], [3]) == [0, 1, 3]
    assert graph.chain([0], [9]) == []
    assert graph.chain([0, 1], [3]) == [1, 3]
    assert graph.chain([3], [3]) == []


def test_ranks_in_one_collective_share_one_need() -> None:
    need = Need((9,))
    assert WaitGraph(dict.fromkeys(range(9), need), {9}).deadlocked() == set(range(9))
