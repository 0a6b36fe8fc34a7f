"""Links between nodes: one that is slow or loses data is told, and what may have another reason is not."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.health import LinkWatch
from hangwatch.model import HealthWarning, Link, NodeFacts

FAST, SLOW = 500 << 20, 60 << 20  # bytes a second
ADDRESSES = {"node-a": "10.0.0.1", "node-b": "10.0.0.2", "node-c": "10.0.0.3"}


def link(sender: str, receiver: str, rate: int, *, busy_s: float = 10.0, sent_again: int = 0) -> Link:
    sent = int(rate * busy_s)
    return Link(ADDRESSES[sender], ADDRESSES[receiver], 4, sent, busy_s, max(sent // 1400, 1), sent_again)


def ring(**rates: int) -> list[NodeFacts]:
    """Three nodes that send around in a ring; the rate of each sender."""
    hosts = list(ADDRESSES)
    following = dict(zip(hosts, hosts[1:] + hosts[:1], strict=True))
    return [
        NodeFacts(host, (rank,), links=(link(host, following[host], rates.get(host[-1], FAST)),))
        for rank, host in enumerate(hosts)
    ]


def slow_link(nodes: list[NodeFacts]) -> HealthWarning | None:
    """What is told when the nodes have looked twice, and saw nearly the same."""
    before = [replace(node, links=tuple(replace(each, sent=each.sent + 1) for each in node.links)) for node in nodes]
    watch = LinkWatch()
    assert not watch.note(before)
    watch.note(nodes)
    return watch.told


def test_a_link_that_is_much_slower_than_the_others() -> None:
    found = slow_link(ring(b=SLOW))
    assert found is not None
    assert (found.kind, found.ranks) == ("slow-link", (1,))
    assert found.summary == "The link from node-b to node-c carries 60 MiB/s, the other links 500 MiB/s"
    assert found.evidence == ("node-b (10.0.0.2) to node-c (10.0.0.3): 60 MiB/s in 10.0 s of sending",)
    assert "ethtool" in found.fix


def test_links_between_racks_may_be_slower() -> None:
    assert slow_link(ring(b=FAST // 3)) is None
    assert slow_link(ring()) is None


def test_all_links_are_equally_slow_when_that_is_the_network() -> None:
    assert slow_link(ring(a=SLOW, b=SLOW, c=SLOW)) is None


def test_in_a_ring_a_fast_link_sends_as_much_in_less_time() -> None:
    nodes = ring(a=FAST, b=SLOW, c=FAST)
    quick = [
        replace(node, links=tuple(replace(each, busy_s=0.0, sent=SLOW * 10) for each in node.links))
        for node in (nodes[0], nodes[2])
    ]
    found = slow_link([quick[0], nodes[1], quick[1]])
    assert found is not None
    assert found.ranks == (1,)


def test_a_link_that_sends_little_shows_nothing() -> None:
    nodes = ring()
    idle = replace(nodes[1], links=(link("node-b", "node-c", SLOW, busy_s=0.5),))
    assert slow_link([nodes[0], idle, nodes[2]]) is None


def test_what_goes_to_a_machine_that_is_no_node_of_the_job_is_no_link() -> None:
    """A checkpoint on its way to a store."""
    nodes = ring()
    upload = Link("10.0.0.2", "52.1.2.3", 1, SLOW * 10, 10.0, 400_000, 40_000)
    assert slow_link([nodes[0], replace(nodes[1], links=(*nodes[1].links, upload)), nodes[2]]) is None


def test_an_address_that_several_nodes_have_tells_no_node() -> None:
    nodes = ring(b=SLOW)
    bridge = [replace(node, links=tuple(replace(each, local="172.17.0.2") for each in node.links)) for node in nodes]
    assert slow_link(bridge) is None


def test_of_two_links_one_that_loses_data_is_told_and_one_that_is_slower_is_not() -> None:
    a, b = link("node-a", "node-b", FAST), link("node-b", "node-a", SLOW)
    assert slow_link([NodeFacts("node-a", (0,), links=(a,)), NodeFacts("node-b", (1,), links=(b,))]) is None
    lossy = replace(b, sent_again=b.segments // 20)
    found = slow_link([NodeFacts("node-a", (0,), links=(a,)), NodeFacts("node-b", (1,), links=(lossy,))])
    assert found is not None
    assert found.summary == "The link from node-b to node-a carries 60 MiB/s; 5.0% of its segments had to be sent again"


def test_it_is_told_when_two_looks_show_it_and_until_one_does_not() -> None:
    watch = LinkWatch()
    nodes = ring(b=SLOW)
    assert not watch.note(nodes)
    assert not watch.note(nodes), "another node has looked, and this one has not"
    again = [nodes[0], ring(b=SLOW - 5)[1], nodes[2]]
    assert watch.note(again)
    assert watch.told is not None
    assert not watch.note(again), "it is told once"
    assert watch.note(ring())
    assert watch.told is None


def test_two_links_in_turn_are_no_slow_one() -> None:
    watch = LinkWatch()
    assert not any(watch.note(nodes) for nodes in (ring(b=SLOW), ring(c=SLOW), ring(b=SLOW - 5), ring(c=SLOW - 5)))
