"""The ledger's tolerance: groups by name and members, contradictions, rings that overlap."""

from __future__ import annotations

import pytest

from hangwatch.model import Collective, Collectives, Frame, GroupHead, Identity, RankEvidence, Reading
from hangwatch.ranks.ledger import Ledger, family


def evidence(rank: int, *heads: GroupHead, recent: tuple[Collective, ...] = ()) -> RankEvidence:
    return RankEvidence(rank, collectives=Collectives(heads, recent, source="flight-recorder"))


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


LINE = (Frame("train.py", 7, "main"),)


@pytest.mark.parametrize("told", [LINE, (), None], ids=["with frames", "without frames", "not at all"])
@pytest.mark.parametrize("own", [LINE, (), None], ids=["with frames", "without frames", "not at all"])
def test_a_call_is_the_same_whether_asked_for_alone_or_among_all(
    told: tuple[Frame, ...] | None, own: tuple[Frame, ...] | None
) -> None:
    """GIVEN a call that the recorder, the board or both have THEN one with frames comes first."""
    recent = () if told is None else (Collective("0", 3, "gloo:all_reduce", frames=told),)
    board = () if own is None else (Collective("0", 3, "all_reduce", frames=own),)
    inside = (Collective("0", 3, "open"),)
    rank = RankEvidence(
        0,
        collectives=Collectives((), recent, open_calls=inside),
        reading=Reading(Identity(0, 2, 0, "here", 7, 0.0, "job"), 0.0, calls=board),
    )
    alone = Ledger([rank]).call(0, "0", 3)
    assert alone == Ledger([rank]).calls(0)["0", 3]
    assert alone is not None
    assert alone.op == (
        "gloo:all_reduce" if told or (told is not None and not own) else "all_reduce" if board else "open"
    )


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


# ------------------------------------------------------------------------------------------ groups of two backends


def in_a_call(rank: int, issued: int, *open_calls: Collective, backend: str = "cpu:gloo,cuda:nccl") -> RankEvidence:
    head = GroupHead("0", (0, 1), backend=backend, issued=issued)
    calls = tuple(Collective("0", seq, "all_reduce") for seq in range(1, issued + 1))
    return RankEvidence(rank, collectives=Collectives((head,), calls, open_calls, "flight-recorder"))


def test_a_call_of_a_groups_other_backend_is_not_compared_by_number() -> None:
    """torch counts the calls of one backend: rank 1 has come through the gather that rank 0 is in, uncounted."""
    gather = Collective("0", 5, "gather", peer=0)
    ledger = Ledger([in_a_call(0, 4, gather), in_a_call(1, 6)])
    group = ledger.group(0, "0")
    assert group is not None
    assert (ledger.counted(group, 0), ledger.counted(group, 1)) == (4, 6)
    assert ledger.call(0, "0", 5) is None
    assert ("0", 5) not in ledger.calls(0)
    # AND what it waits for is still the call that it is in
    assert group.behind(6) == [0]


@pytest.mark.parametrize(("backend", "issued"), [("nccl", 6), ("cpu:gloo,cuda:nccl", 4)])
def test_a_call_of_the_counted_backend_or_that_no_member_has_passed_is(backend: str, issued: int) -> None:
    gather = Collective("0", 5, "gather", peer=0)
    ledger = Ledger([in_a_call(0, 4, gather, backend=backend), in_a_call(1, issued, backend=backend)])
    group = ledger.group(0, "0")
    assert group is not None
    assert ledger.counted(group, 0) == 5
    assert ledger.call(0, "0", 5) == ledger.calls(0)["0", 5] == gather
