"""The situations of which torch's own analyzer has public tests, built anew: entries of few keys, numbers as text.

torch writes `input_dtypes` there as one word, counts as text, and neither `pg_id` nor a time. What its analyzer calls
fully matched must not be called a fault here, and every mismatch must be named with the rank or the sizes.
"""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import Certainty
from hangwatch.queues import Assessment, assess
from hangwatch.recorder import QueueReader

Size = list[list[int]]
SQUARE: Size = [[4, 4]]


def _entry(
    name: str,
    given: Size = SQUARE,
    made: Size = SQUARE,
    *,
    state: str = "completed",
    number: int = 0,
    made_type: str = "float32",
    group: tuple[str, str] = ("0", "default"),
    place: int = 0,
    backend: str = "nccl",
) -> dict[str, Any]:
    return {
        "profiling_name": f"{backend}:{name}",
        "state": state,
        "process_group": group,
        "input_sizes": given,
        "output_sizes": made,
        "input_dtypes": "float32",
        "output_dtypes": made_type,
        "collective_seq_id": str(number),
        "p2p_seq_id": "0",
        "time_created_ns": 0,
        "frames": [],
        "record_id": place,
        "is_p2p": False,
    }


def _judged(*ranks: list[dict[str, Any]]) -> Assessment:
    reader = QueueReader()
    everybody = str(list(range(len(ranks))))
    for rank, entries in enumerate(ranks):
        config = {
            "0": {"name": "0", "desc": "default_pg", "ranks": everybody},
            "1": {"name": "1", "desc": "sub_pg", "ranks": f"[{rank}]"},
        }
        numbered = [{**entry, "record_id": place} for place, entry in enumerate(entries)]
        reader.add(rank, {"version": "2.8", "entries": numbered, "pg_config": config, "rank": rank})
    return assess(reader.queues())


def _blames(found: Assessment) -> list[int | None]:
    return [] if found.judgement is None else [each.rank for each in found.judgement.verdict.culprits]


@pytest.mark.parametrize("backend", ["nccl", "ncclx", "gloo", "xccl", "rccl", "hccl"])
def test_completed_calls_of_a_shared_and_of_own_groups(backend: str) -> None:
    calls = [_entry("all_reduce", backend=backend), _entry("all_reduce", [[5, 5]], [[5, 5]], group=("1", "sub_pg"))]
    if backend == "gloo":
        calls = [{**call, "retired": True} for call in calls]
    assert _judged(calls, calls).judgement is None


@pytest.mark.parametrize(
    "calls",
    [
        [_entry("allreduce_coalesced")],
        [_entry("broadcast"), _entry("broadcast"), _entry("coalesced", [[]], [[]])],
        [_entry("_reduce_oop"), _entry("_reduce_oop"), _entry("REDUCE_SCATTER_coalesced", [[]], [[]])],
    ],
    ids=["fast", "slow", "reduce-scatter"],
)
def test_coalesced_calls_that_fit(calls: list[dict[str, Any]]) -> None:
    assert _judged(calls, calls).judgement is None


@pytest.mark.parametrize("state", ["completed", "scheduled"])
def test_only_the_end_of_coalesced_calls_has_a_state(state: str) -> None:
    # GIVEN calls that were coalesced: torch gives events to the last entry only, the others stay "scheduled"
    part = _entry("_broadcast_oop", state="scheduled", number=1)
    calls = [part, part, _entry("ALLGATHER_coalesced", [[]], [[]], state=state, number=1)]
    assert (_judged(calls, calls).judgement is None) == (state == "completed")


def test_one_of_the_coalesced_calls_does_not_fit() -> None:
    end = _entry("ALLGATHER_coalesced", [[]], [[]])
    found = _judged(
        [_entry("_broadcast_oop"), _entry("_broadcast_oop", [[5, 5]], [[5, 5]]), end],
        [_entry("_broadcast_oop"), _entry("_broadcast_oop"), end],
    )
    assert found.judgement is not None
    told = found.judgement.verdict
    assert (told.cause, told.certainty) == ("collective-mismatch", Certainty.UNDETERMINED)
    assert "rank 0: broadcast (25 elements, float32)" in told.summary
    assert "rank 1: broadcast (16 elements, float32)" in told.summary
    assert told.hang is None


def test_a_rank_without_the_coalesced_call_is_named_and_no_fault_is_claimed() -> None:
    reduced = [_entry("all_reduce")]
    more = [_entry("_reduce_oop"), _entry("_reduce_oop"), _entry("REDUCE_SCATTER_coalesced", [[]], [[]])]
    found = _judged(reduced, [*reduced, *more])
    assert found.judgement is None
    assert any("rank 0 has no entry for _reduce_oop" in sentence for sentence in found.sentences)


ONE = _entry("all_reduce", state="scheduled", number=1)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(_entry("all_gather", state="scheduled", number=1), id="operation"),
        pytest.param(_entry("all_reduce", [[5, 4]], state="scheduled", number=1), id="inputs"),
        pytest.param(_entry("all_reduce", SQUARE, [[5, 4]], state="scheduled", number=1), id="outputs"),
    ],
)
def test_two_calls_that_do_not_fit(other: dict[str, Any]) -> None:
    found = _judged([ONE], [other])
    assert found.judgement is not None
    assert found.judgement.verdict.cause == "collective-mismatch"
    assert _blames(found) == [0, 1]  # nothing tells which of the two is wrong


def test_a_call_whose_own_sizes_do_not_fit() -> None:
    wrong = _entry("all_reduce", SQUARE, [[5, 4]], state="scheduled", number=2)
    found = _judged([wrong], [wrong])
    assert found.judgement is not None
    assert found.judgement.verdict.cause == "collective-mismatch"
    assert "makes 16, and its output has 20" in found.judgement.verdict.summary


def test_types_that_differ_although_the_calls_completed() -> None:
    found = _judged(
        [_entry("all_reduce", number=1, made_type="float16")], [_entry("all_reduce", number=1, made_type="float32")]
    )
    assert found.judgement is not None
    assert found.judgement.verdict.cause == "collective-mismatch"


def test_one_rank_has_completed_what_the_other_has_not_yet() -> None:
    found = _judged([ONE], [{**ONE, "state": "completed"}])
    assert found.judgement is None
    assert any("rank 0 has not completed number 1" in sentence for sentence in found.sentences)


@pytest.mark.parametrize("elsewhere", [[[]], SQUARE])
def test_only_the_root_of_a_gather_has_outputs(elsewhere: Size) -> None:
    root = _entry("gather", SQUARE, [[4, 4], [4, 4]], number=1)
    found = _judged([root], [_entry("gather", SQUARE, elsewhere, number=1, made_type="")])
    assert found.judgement is None


def test_only_the_root_of_a_scatter_has_more_than_its_part() -> None:
    """NCCL records the part of a rank as input, and as outputs what the root gives (seen with DTensor, torch 2.11)."""
    whole = [[4, 4], [4, 4]]
    ranks = [_entry("scatter", SQUARE, whole, number=1), _entry("scatter", SQUARE, [[0]], number=1)]
    ranks[1]["output_dtypes"] = ["UNKNOWN_SCALAR"]
    assert _judged(*([each] for each in ranks)).judgement is None
    other = [_entry("scatter", [[2, 2]], [[0]], number=1), ranks[0]]
    other[0]["output_dtypes"] = ["UNKNOWN_SCALAR"]
    assert _judged(*([each] for each in other)).judgement is not None


def test_two_ranks_that_are_each_the_root_of_a_gather_do_not_fit() -> None:
    """As all other ranks give their part, only the sizes of outputs tell who collects."""
    root, part = [[4, 4], [4, 4], [4, 4]], [[0]]
    before = [_entry("gather", SQUARE, sizes, number=1) for sizes in (root, part, part)]
    now = [_entry("gather", SQUARE, sizes, number=2, state="scheduled") for sizes in (root, part, root)]
    found = _judged(*map(list, zip(before, now, strict=True))).judgement
    assert found is not None
    assert (found.verdict.cause, [each.rank for each in found.verdict.culprits]) == ("collective-mismatch", [2])
    assert "ranks 0 and 2 are each root of it" in found.verdict.summary
    assert "the same root" in found.verdict.fix


COLLECTIVES = {
    "all_gather": [[32]],
    "_all_gather_base": [[32]],
    "all_gather_into_tensor_coalesced": [[32]],
    "reduce_scatter": [[8]],
    "_reduce_scatter_base": [[8]],
    "reduce_scatter_tensor_coalesced": [[8]],
} | dict.fromkeys(
    [
        *("broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter", "all_reduce", "barrier"),
        *("all_to_all", "all_to_all_single", "all_to_all_v_single", "all_gather_v", "reduce_scatter_v"),
        *("all_reduce_barrier", "split", "new_window", "allreduce_coalesced", "ALLGATHER_coalesced"),
        "REDUCE_SCATTER_coalesced",
    ],
    SQUARE,
)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("state", ["scheduled", "completed"])
def test_equal_calls_are_never_called_a_mismatch_and_no_rank_is_blamed(name: str, state: str) -> None:
    call = _entry(name, SQUARE, COLLECTIVES[name], state=state, number=1)
    found = _judged([call], [call])
    assert _blames(found) == []
    assert found.judgement is None or found.judgement.verdict.cause != "collective-mismatch"
    assert (found.judgement is None) == (state == "completed")


def test_an_all_to_all_whose_sums_differ() -> None:
    one = _entry("all_to_all", [[4]], [[6]], state="scheduled", number=1)
    other = _entry("all_to_all", [[8]], [[7]], state="scheduled", number=1)
    found = _judged([one], [other])
    assert found.judgement is not None
    assert "the ranks send 12 elements in all and expect 13" in found.judgement.verdict.summary
    fits = _entry("all_to_all", [[8]], [[6]], state="completed", number=1)
    assert _judged([{**one, "state": "completed"}], [fits]).judgement is None


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("fits", [False, True])
def test_sums_of_completed_exchanges_differ_by_a_fault_only_where_those_of_others_fit(fits: bool, turned: bool) -> None:
    """Else the sizes on record are not those that were exchanged."""
    sent = [[[4]], [[8]]]
    made = [([[6]], [[7]]), ([[5]], [[7 if fits else 8]])]
    made = made[::-1] if turned else made
    ranks = [
        [_entry("all_to_all", sent[rank], sizes[rank], number=number + 1) for number, sizes in enumerate(made)]
        for rank in (0, 1)
    ]
    found = _judged(*ranks).judgement
    assert (found is not None) == fits


def test_entries_of_more_ranks_in_one_file() -> None:
    from json import dumps

    from hangwatch.recorder import documents

    ranks: dict[str, Any] = {
        f"dump_file_rank_{rank}": {"entries": [ONE], "pg_config": {}, "rank": rank} for rank in (0, 1)
    }
    assert [rank for rank, _ in documents(dumps(ranks).encode())] == [0, 1]
