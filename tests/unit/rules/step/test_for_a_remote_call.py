"""Jobs of torch's RPC, all ranks of which wait: for a function of one of them, or for an answer that none works on."""

from __future__ import annotations

import pytest

from hangwatch.judge import worth_confirming
from hangwatch.judge.patience import held
from hangwatch.model import Certainty, Frame, Judgement, RankEvidence, ThreadStack
from hangwatch.stacks.classify import activity
from tests.unit.job import LIB, SCRIPT, TORCH, frames, judge, rank, snapshot

RPC = f"{TORCH}/distributed/rpc"
ASKS = frames((f"{RPC}/api.py", 842, "rpc_sync"), below=(Frame(SCRIPT, 23, "work"),))
LEAVES = frames(
    (f"{LIB}/threading.py", 327, "wait"),
    (f"{RPC}/api.py", 320, "_wait_all_workers"),
    (f"{RPC}/api.py", 382, "shutdown"),
    below=(Frame(SCRIPT, 13, "main"),),
)
RUN = Frame(f"{RPC}/internal.py", 209, "_run_function")
PUSH = Frame(SCRIPT, 28, "push")


def serves(*inner: Frame, thread: int = 7) -> ThreadStack:
    return ThreadStack(thread, "", (*inner, RUN))


WAITS = serves(Frame(f"{LIB}/threading.py", 327, "wait"), PUSH)
ASKS_IN_TURN = serves(Frame(f"{RPC}/api.py", 842, "rpc_sync"), Frame(SCRIPT, 96, "train"))


def job(server: tuple[ThreadStack, ...], first: tuple[Frame, ...] = ASKS, **facts: object) -> list[RankEvidence]:
    return [rank(0, LEAVES, threads=server, facts={"cpu_delta_s": 0.0, **facts}), rank(1, first), rank(2, LEAVES)]


def told(ranks: list[RankEvidence]) -> Judgement:
    return judge(*ranks, world_size=3)


def test_the_rank_whose_function_does_not_come_back_is_named_with_the_line_of_it() -> None:
    judgement = told(job((WAITS,)))
    verdict = judgement.verdict
    assert (verdict.cause, verdict.certainty) == ("user-code-blocked", Certainty.LIKELY), verdict.summary
    assert [(who.rank, who.where.line if who.where else 0) for who in verdict.culprits] == [(0, 28)]
    assert "1 call of other ranks stands there in push (train.py:28); rank 1 waits for answers" in verdict.summary


def test_a_rank_whose_function_computes_still_works() -> None:
    verdict = told(job((serves(PUSH),), cpu_delta_s=0.9)).verdict
    assert verdict.cause != "user-code-blocked" or "does not answer" not in verdict.summary, verdict.summary


def test_an_answer_that_no_thread_works_on_points_to_the_rank_that_makes_no_more_calls() -> None:
    ranks = [rank(0, ASKS), rank(1, LEAVES, threads=(ASKS_IN_TURN,)), rank(2, LEAVES)]
    verdict = told(ranks).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("undetermined", [2]), verdict.summary
    assert "Rank 1 waits for the answer of a remote call (train.py:96)" in verdict.summary
    assert "Rank 2 makes no call, and runs no function for another one." in verdict.summary


def test_where_as_many_ranks_make_no_more_calls_none_is_blamed() -> None:
    ranks = [rank(0, LEAVES), rank(1, LEAVES, threads=(ASKS_IN_TURN,)), rank(2, LEAVES)]
    verdict = told(ranks).verdict
    assert (verdict.cause, verdict.culprits) == ("undetermined", ()), verdict.summary


def test_the_rank_that_left_a_call_out_is_named_and_not_the_one_whose_function_waits_for_it() -> None:
    verdict = judge(rank(0, LEAVES, threads=(WAITS,)), rank(1, ASKS), rank(2, LEAVES), rank(3, ASKS)).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("user-code-blocked", [2]), verdict.summary
    assert verdict.summary.startswith("Rank 2 makes no more calls: it stands in rpc.shutdown (train.py:13)")


# `rpc_async(...).wait()`: the thread is in C code, and native frames alone tell what it waits for.
IN_C = (Frame(SCRIPT, 52, "main"),)
FUTURE = (Frame("/lib/libtorch_python.so", 0, "torch::jit::PythonFutureWrapper::wait", native=True), *IN_C)
ASLEEP = {"private_wait": True, "cpu_delta_s": 0.0}


def test_a_rank_that_may_wait_for_an_answer_in_c_code_is_worth_its_native_frames() -> None:
    serving = rank(1, LEAVES, threads=(ASKS_IN_TURN,))
    sleeping = rank(0, IN_C, facts=ASLEEP)
    assert [each for each, _ in worth_confirming(snapshot(sleeping, serving, rank(2, LEAVES)))] == [0]
    assert worth_confirming(snapshot(sleeping, rank(1, IN_C, facts=ASLEEP))) == []
    assert held(snapshot(sleeping, serving, rank(2, LEAVES), world_size=3)).keys() == {0, 1, 2}


def test_by_its_native_frames_it_waits_for_the_answer() -> None:
    verdict = told([rank(0, FUTURE), rank(1, LEAVES, threads=(ASKS_IN_TURN,)), rank(2, LEAVES)]).verdict
    assert "Rank 1 waits for the answer of a remote call (train.py:96)" in verdict.summary
    assert activity(ThreadStack(1, "MainThread", FUTURE, main=True)).called == "a Future"


def test_a_future_under_a_condition_on_the_rank_is_no_collective_of_one_rank() -> None:
    future = frames((f"{TORCH}/futures/__init__.py", 334, "wait_all"), below=(Frame(SCRIPT, 124, "main"),))
    verdict = told([rank(0, future), rank(1, LEAVES, threads=(ASKS_IN_TURN,)), rank(2, LEAVES)]).verdict
    assert verdict.cause == "undetermined", verdict.summary


@pytest.mark.parametrize(
    ("threads", "is_held"),
    [
        ((WAITS,), True),
        ((serves(PUSH),), False),  # it runs
        ((WAITS, ThreadStack(8, "timer", (Frame(SCRIPT, 50, "notify_later"),))), False),  # it may bring it
    ],
)
def test_that_no_thread_is_left_to_make_a_call_is_a_fact(threads: tuple[ThreadStack, ...], is_held: bool) -> None:
    assert bool(held(snapshot(*job(threads), world_size=3))) is is_held
