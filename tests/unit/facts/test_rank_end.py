"""Why a rank ended, by its last words, its error and its exit code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.rank_end import Why, aborted, ending, failed_in_torch, follows, told, with_followers
from hangwatch.model import ExceptionFacts, Frame, RankEvidence
from hangwatch.ranks.last_words import Kind
from hangwatch.ranks.view import RankView
from tests.unit.job import NOW
from tests.unit.rules.step.aborts import SIZES, TRACE, WATCHDOG, calls, dead, lost
from tests.unit.simulator import SCRIPT, TORCH


def view(evidence: RankEvidence) -> RankView:
    return RankView(evidence.rank, evidence, sampled_twice=True)


@pytest.mark.parametrize(
    ("evidence", "why", "kind"),
    [
        (dead(0, calls(4), last_output=SIZES), Why.BACKEND, Kind.SIZE_MISMATCH),
        (dead(0, calls(4)), Why.BACKEND, None),
        (dead(0, calls(4), None, crash_trace=TRACE), Why.BACKEND, None),
        (dead(0, calls(4), inside=False), Why.ITSELF, None),
        (dead(0, calls(4), -9), Why.ITSELF, None),
        (dead(0, calls(4), -9, last_output="Out of memory: Killed process 100 (python)"), Why.ITSELF,
         Kind.OUT_OF_MEMORY),
        (dead(0, calls(4), inside=False, last_output=WATCHDOG.format(rank=0)), Why.BACKEND, Kind.WATCHDOG),
        (dead(0, calls(4), inside=False, last_output=WATCHDOG.format(rank=1)), Why.ITSELF, None),
        (dead(0, calls(4), last_output="CUDA error: device-side assert triggered"), Why.ITSELF, Kind.DEVICE),
        (dead(0, calls(4), -15), Why.LAUNCHER, None),
        (lost(0, calls(4)), Why.PEER, Kind.CONNECTION),
        (lost(0, calls(4), "Timed out waiting 6000ms for recv operation to complete"), Why.BACKEND, Kind.TIMEOUT),
        (lost(0, calls(4), "cannot reshape array"), Why.ITSELF, None),
    ],
)  # fmt: skip
def test_why_a_rank_ended(evidence: RankEvidence, why: Why, kind: Kind | None) -> None:
    end = ending(view(evidence))
    assert (end.why, end.word.kind if end.word is not None else None) == (why, kind)


@pytest.mark.parametrize(("code", "why"), [(1, Why.PEER), (0, Why.ITSELF)])
def test_an_error_of_a_peers_end_that_was_caught_tells_why_a_process_left_with_an_error(code: int, why: Why) -> None:
    found = lost(0, calls(4))
    assert found.reading is not None
    assert found.reading.exception is not None
    caught = replace(found.reading.exception, fatal=False)
    found = replace(found, reading=replace(found.reading, exception=caught))
    assert found.process is not None
    found = replace(found, process=replace(found.process, exit_code=code))
    assert ending(view(found)).why is why


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("/usr/lib/python3.12/urllib/request.py", Why.ITSELF),
        ("/venv/lib/python3.12/site-packages/requests/adapters.py", Why.ITSELF),
        (f"{TORCH}/distributed/distributed_c10d.py", Why.PEER),
        ("/usr/lib/python3.12/multiprocessing/connection.py", Why.PEER),
    ],
)
def test_a_server_that_refuses_a_connection_is_no_rank_that_ended(library: str, why: Why) -> None:
    frames = (Frame(library, 1351, "do_open"), Frame(SCRIPT, 32, "download"))
    error = ExceptionFacts("URLError", "<urlopen error [Errno 111] Connection refused>", frames, fatal=True)
    found = lost(0, calls(4))
    assert found.reading is not None
    found = replace(found, reading=replace(found.reading, exception=error))
    assert ending(view(found)).why is why


def test_the_words_for_an_end() -> None:
    one = view(dead(0, calls(4), last_output=SIZES))
    assert told(one, ending(one)) == "was aborted by gloo: a message of 676 bytes came where 4 were expected"
    two = view(lost(1, calls(4)))
    assert told(two, ending(two)) == "lost its connection to [127.0.0.1]:61094"


def test_an_exit_code_is_believed_before_a_trace() -> None:
    assert not aborted(view(dead(0, calls(4), -9, crash_trace=TRACE)))
    assert aborted(view(dead(0, calls(4), None, crash_trace=TRACE)))


@pytest.mark.parametrize(
    ("frames", "inside"),
    [
        ((("pipelining/_backward.py", "stage_backward"), ("pipelining/schedules.py", "step")), False),
        (
            (("distributed_c10d.py", "all_gather"), ("fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather")),
            True,
        ),
        ((("tensor/_dispatch.py", "dispatch"),), False),
        ((("utils.py", "_verify_param_shape_across_processes"),), True),
        ((("checkpoint/utils.py", "reduce_scatter"),), True),  # it made something of what other ranks had sent
    ],
)
def test_an_error_of_the_users_module_is_no_failed_call_though_torch_ran_it(
    frames: tuple[tuple[str, str], ...], inside: bool
) -> None:
    own = ExceptionFacts(
        "RuntimeError",
        "Failed to run stage backward",
        (*(Frame(f"{TORCH}/distributed/{file}", 475, name) for file, name in frames), Frame(SCRIPT, 15, "main")),
    )
    evidence = dead(0, calls(4), 1, inside=False)
    assert evidence.reading is not None
    failed = view(replace(evidence, reading=replace(evidence.reading, exception=own)))
    assert failed_in_torch(failed) is inside
    assert told(failed, ending(failed)) == "failed with RuntimeError: Failed to run stage backward"


@pytest.mark.parametrize(
    ("first", "second", "followed"),
    [
        (dead(0, calls(4)), {}, True),
        (dead(0, calls(4), -9), {}, True),
        (dead(0, calls(4)), {"ended_at": NOW - 13}, False),  # it ended before the other
        (dead(0, calls(4)), {"last_output": "[rank1]: CUDA error: device-side assert triggered"}, False),
        (dead(0, calls(4)), {"last_output": SIZES}, True),  # of a log that all ranks share
        (dead(0, calls(4)), {"crash_trace": TRACE}, False),
        (lost(0, calls(4)), {}, False),  # what it lost may be the rank whose end nobody saw
        (dead(0, calls(4), -15), {}, False),
        (dead(0, calls(4), None), {}, False),
    ],
)
def test_a_rank_whose_end_nobody_saw_followed_one_that_had_failed(
    first: RankEvidence, second: dict[str, Any], followed: bool
) -> None:
    unseen = replace(dead(1, calls(4), None, inside=False), **{"ended_at": NOW - 11, **second})
    views = with_followers([view(first), view(unseen)])
    assert (views[0].followed, views[1].followed) == (False, followed)
    if followed:
        assert told(views[1], ending(views[1])) == "ended after another rank had failed; how is not known"
        assert ending(views[1]).why is Why.LAUNCHER


GLOO = "/__w/pytorch/pytorch/third_party/gloo/gloo"
REFUSED = f"[enforce fail at {GLOO}/alltoallv.cc:138] inLengthPerRank[myRank] == outLengthPerRank[myRank]. "
SENT_BY_A_PEER = f"[enforce fail at {GLOO}/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 676 vs 4"


@pytest.mark.parametrize(
    ("message", "inside"),
    [
        (REFUSED, False),
        ("input tensor has to be contiguous", False),
        ("ProcessGroupGloo::allgather: input and output tensors must have the same type", False),
        ("ProcessGroupGloo::broadcast: invalid root rank: 9", False),
        ("No backend type associated with device type cuda", False),
        (SENT_BY_A_PEER, True),
        ("Connection closed by peer [127.0.0.1]:13703", True),
    ],
)
def test_arguments_that_a_backend_refuses_are_the_ranks_own(message: str, inside: bool) -> None:
    frames = (Frame(f"{TORCH}/distributed/distributed_c10d.py", 4836, "all_to_all_single"), Frame(SCRIPT, 44, "main"))
    failed = raised(ExceptionFacts("RuntimeError", message, frames))
    assert failed_in_torch(failed) is inside


@pytest.mark.parametrize(
    ("error", "function", "inside"),
    [
        ("ValueError", "get_group_rank", False),
        ("TypeError", "_check_single_tensor", False),
        ("RuntimeError", "all_reduce", True),
        ("ValueError", "_tensor_to_object", True),  # another rank may have sent something else
    ],
)
def test_arguments_that_torch_refuses_are_the_ranks_own(error: str, function: str, inside: bool) -> None:
    """GIVEN `dst=` with the number of a rank that is not in the group THEN no other rank led to it."""
    frames = (Frame(f"{TORCH}/distributed/distributed_c10d.py", 983, function), Frame(SCRIPT, 34, "main"))
    failed = raised(ExceptionFacts(error, "Global rank 1 is not part of group <...>", frames))
    assert failed_in_torch(failed) is inside


MISSING = "wait timeout after 30000ms, keys: /data/statistics"


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        ("DistStoreError", MISSING, "gave up waiting for key 'data/statistics' of a store after 30 s"),
        ("TimeoutError", "no answer: timed out", "failed with TimeoutError: no answer: timed out"),
        ("RuntimeError", "Connection closed by peer", "lost a connection"),
    ],
)
def test_only_a_broken_connection_is_a_lost_one(kind: str, message: str, said: str) -> None:
    failed = raised(ExceptionFacts(kind, message, (Frame(SCRIPT, 29, "statistics"),)))
    assert told(failed, ending(failed)) == said


def raised(error: ExceptionFacts) -> RankView:
    evidence = dead(0, calls(4), 1, inside=False)
    assert evidence.reading is not None
    return view(replace(evidence, reading=replace(evidence.reading, exception=error)))


def test_an_error_of_a_loaders_worker_follows_from_no_other_rank() -> None:
    lines = (
        'Original Traceback (most recent call last):\n  File "/job/data.py", line 24, in fetch\nOSError: timed out\n'
    )
    error = ExceptionFacts("OSError", f"Caught OSError in DataLoader worker process 0.\n{lines}", ())
    assert not follows(error)
    assert follows(ExceptionFacts("RuntimeError", "Connection closed by peer", ()))
