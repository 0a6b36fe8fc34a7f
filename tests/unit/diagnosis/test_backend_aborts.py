"""A backend's abort is a consequence: its reason is looked for in the ranks' calls, and a victim is not blamed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.rank_end import Why, aborted, ending, told
from hangwatch.model import (
    Collective,
    Collectives,
    ExceptionFacts,
    Frame,
    GroupHead,
    LoaderFacts,
    Phase,
    Progress,
    RankEvidence,
)
from hangwatch.ranks.last_words import Kind
from hangwatch.ranks.view import RankView
from tests.unit.diagnosis.job import C10D, NOW, SCRIPT, blamed, frames, gone, judge, rank
from tests.unit.diagnosis.job import told as said

TRACE = f"""Fatal Python error: Aborted

Thread 0x00007f6822ca7b80 (most recent call first):
  File "{C10D}", line 3252 in all_reduce
  File "{SCRIPT}", line 27 in main
  File "{SCRIPT}", line 90 in <module>
"""
SIZES = "op.preamble.length <= op.nbytes. 676 vs 4. Received data size doesn't match expected size."
CLOSED = "[pair.cc:537] Read error [127.0.0.1]:61094: Connection reset by peer"
WATCHDOG = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8,"
    " NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)
MODULE = Frame(SCRIPT, 90, "<module>")
USUAL, EXTRA = (Frame(SCRIPT, 24, "main"), MODULE), (Frame(SCRIPT, 27, "main"), MODULE)


def view(evidence: RankEvidence) -> RankView:
    return RankView(evidence.rank, evidence, sampled_twice=True)


def calls(
    steps: int, *last: tuple[Frame, ...], gap: int = 2, site: tuple[Frame, ...] = USUAL
) -> tuple[Collective, ...]:
    """A call from `site` in each of these steps, and the last ones; between two of them C++ code issues others."""
    sites = [*[site] * steps, *last]
    in_torch = Frame(C10D, 3252, "all_reduce")
    return tuple(
        Collective("0", 1 + gap * index, "all_reduce", ((2,),), ("Float",), frames=(in_torch, *path),
                   at=NOW - 99 + index, step=min(index, steps - 1), thread_name="MainThread")
        for index, path in enumerate(sites)
    )  # fmt: skip


def dead(
    number: int, ring: tuple[Collective, ...], code: int | None = -6, *, inside: bool = True, **evidence: Any
) -> RankEvidence:
    """A rank that has ended after these calls, `inside` the last of them."""
    found = gone(number, code, Phase.STEP, calls=ring, progress=Progress(step=5, epoch=0, batch=5), evidence=evidence)
    heads = (GroupHead("0", (0, 1), "", "gloo", ring[-1].seq, ring[-1].seq - 1),)
    reading = replace(found.reading, heads=heads, open_calls=ring[-1:] if inside else ())  # type: ignore[type-var]
    stacks = rank(number, ring[-1].frames).stacks if inside else ()
    return replace(found, reading=reading, collectives=Collectives(heads), stacks=stacks)


def lost(number: int, ring: tuple[Collective, ...], message: str = CLOSED) -> RankEvidence:
    """A rank that failed in its last call, and was then ended by its launcher."""
    found = dead(number, ring, -15, inside=False)
    assert found.reading is not None
    error = ExceptionFacts("RuntimeError", message, ring[-1].frames, at=NOW - 11)
    return replace(found, reading=replace(found.reading, phase=Phase.FINALIZING, exception=error))


# ------------------------------------------------------------------------------------------ why a rank ended


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


def test_the_words_for_an_end() -> None:
    one = view(dead(0, calls(4), last_output=SIZES))
    assert told(one, ending(one)) == "was aborted by gloo: a message of 676 bytes came where 4 were expected"
    two = view(lost(1, calls(4)))
    assert told(two, ending(two)) == "lost its connection to [127.0.0.1]:61094"


def test_an_exit_code_is_believed_before_a_trace() -> None:
    assert not aborted(view(dead(0, calls(4), -9, crash_trace=TRACE)))
    assert aborted(view(dead(0, calls(4), None, crash_trace=TRACE)))


# ------------------------------------------------------------------------------------------ whose call it was


@pytest.mark.parametrize("code", [-6, None])
def test_the_rank_that_called_where_no_rank_ever_had(code: int | None) -> None:
    judgement = judge(lost(0, calls(6)), dead(1, calls(6, EXTRA), code, crash_trace=TRACE))
    assert said(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "Rank 1 called all_reduce (train.py:27) in epoch 0, batch 5" in judgement.verdict.summary


def test_it_is_named_too_where_gloo_aborted_another() -> None:
    """GIVEN an extra call with a larger message THEN gloo aborts the rank that gets it, which is a victim."""
    judgement = judge(lost(0, calls(6, EXTRA)), dead(1, calls(6), last_output=SIZES))
    assert blamed(judgement) == [(0, 100, "rank")]
    assert judgement.verdict.victims == (1,)
    assert judgement.verdict.details[0].startswith("Rank 1 was aborted by gloo: a message of 676 bytes")


def test_a_helper_that_all_use_is_told_by_its_caller() -> None:
    helper = Frame(SCRIPT, 9, "log")
    usual, extra = (helper, *USUAL), (helper, *EXTRA)
    judgement = judge(lost(0, calls(6, site=usual)), dead(1, calls(6, extra, site=usual)))
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "all_reduce (train.py:9, called from train.py:27)" in judgement.verdict.summary
    assert judgement.verdict.culprits[0].where == EXTRA[0]


def test_a_call_that_is_repeated_against_the_order_of_all_steps() -> None:
    other = (Frame(SCRIPT, 30, "main"), MODULE)
    ring = tuple(
        replace(call, step=index // 2) for index, call in enumerate(calls(0, *[USUAL, other] * 6, USUAL, USUAL))
    )
    ring = tuple(replace(call, step=min(index // 2, 6)) for index, call in enumerate(ring))
    assert [call.step for call in ring[-2:]] == [6, 6]
    odd = dead(1, ring)
    usual = dead(0, ring[:-1], -15)
    at = Progress(step=6, epoch=0, batch=6)
    odd, usual = (replace(each, reading=replace(each.reading, progress=at)) for each in (odd, usual))  # type: ignore[type-var]
    judgement = judge(usual, odd)
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "once more than usual" in judgement.verdict.summary


# ------------------------------------------------------------------------------------------ look-alikes


def test_nobody_is_blamed_where_all_stand_at_places_of_every_step() -> None:
    judgement = judge(dead(0, calls(6)), dead(1, calls(6), -15))
    assert said(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []
    assert "Rank 0 was aborted by gloo in all_reduce (train.py:24)" in judgement.verdict.summary
    assert "the reason is not known" in judgement.verdict.summary


def test_a_rank_that_came_first_to_a_new_call_and_gave_up_waiting_is_not_blamed() -> None:
    """GIVEN a rank that saves for the first time WHEN the others are slow and its timeout runs out."""
    gave_up = lost(0, calls(6, EXTRA), "Timed out waiting 6000ms for recv operation to complete")
    judgement = judge(gave_up, dead(1, calls(6), -15, inside=False))
    assert blamed(judgement) == []
    assert "gave up waiting after 6.0 s" in judgement.verdict.summary


def test_what_cxx_code_issued_is_not_taken_for_a_new_place() -> None:
    """GIVEN a rank that was aborted in a call that has no record WHEN such calls are usual THEN it is not blamed."""
    functional = frames((f"{C10D.replace('distributed_c10d', '_functional_collectives')}", 142, "wait_tensor"))
    odd = replace(dead(1, calls(6)), stacks=rank(1, functional).stacks)
    assert blamed(judge(dead(0, calls(6), -15), odd)) == []


def test_a_rank_that_ended_by_itself_is_the_one() -> None:
    judgement = judge(lost(0, calls(6)), dead(1, calls(6, EXTRA), -9))
    assert judgement.verdict.cause == "rank-died"
    assert blamed(judgement) == [(1, 101, "rank")]


def test_the_line_that_says_why_it_died_is_evidence() -> None:
    killed = dead(1, calls(6), -9, last_output="Memory cgroup out of memory: Killed process 101 (python)")
    judgement = judge(lost(0, calls(6)), killed)
    assert said(judgement)[0] == "rank-died"
    assert "its output says: Memory cgroup out of memory: Killed process 101 (python)" in judgement.verdict.evidence


# ------------------------------------------------------------------------------------------ NCCL's watchdog


def watched(number: int, issued: int, code: int = -6, output: str = "") -> RankEvidence:
    found = gone(number, code, Phase.STEP, evidence={"last_output": output})
    heads = (GroupHead("0", (0, 1), "", "nccl", issued, min(issued, 11)),)
    assert found.reading is not None
    return replace(found, reading=replace(found.reading, heads=heads), collectives=Collectives(heads))


def test_the_rank_that_never_enqueued_the_number_is_named_and_the_aborted_one_is_a_victim() -> None:
    judgement = judge(watched(0, 12, output=WATCHDOG.format(rank=0)), watched(1, 11, -15))
    assert said(judgement) == ("undetermined", "likely", "failed")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.victims == (0,)
    assert "ALLREDUCE 12 did not complete within 10 min; rank 1 never called it" in judgement.verdict.summary


def test_where_all_had_enqueued_it_nobody_is_named() -> None:
    judgement = judge(*(watched(number, 12, output=WATCHDOG.format(rank=number)) for number in (0, 1)))
    assert blamed(judgement) == []
    assert "which rank it waited for is not known" in judgement.verdict.summary


# ------------------------------------------------------------------------------------------ who had left its loop


def drew(evidence: RankEvidence, drawn: int, *finished: int, left: bool, dtype: str = "Float") -> RankEvidence:
    """It drew so many batches of this epoch, and its last call brought data of this type."""
    assert evidence.reading is not None
    loader = LoaderFacts(
        0, 40, epoch=len(finished), drawn=drawn, left=left, training=True,
        drawn_per_epoch=(*finished, drawn) if left else finished, exhausted_per_epoch=(True,) * (len(finished) + left),
    )  # fmt: skip
    ring = (*evidence.reading.calls[:-1], replace(evidence.reading.calls[-1], dtypes=(dtype,)))
    reading = replace(evidence.reading, loaders=(loader,), calls=ring, open_calls=ring[-1:])
    return replace(evidence, reading=reading)


def test_a_rank_that_its_backend_ended_behind_its_loop_had_left_it() -> None:
    """Trainer's last gather met the gather of the next batch, and gloo aborted the rank that had stopped early."""
    stopped = drew(dead(1, calls(6)), 6, left=True, dtype="Long")
    judgement = judge(drew(lost(0, calls(6)), 7, left=False), replace(stopped, rank=1))
    assert said(judgement)[0] == "early-exit"
    assert [rank for rank, _, _ in blamed(judgement)] == [1]


def test_calls_that_met_after_an_uneven_epoch_are_its_consequence() -> None:
    short = drew(dead(1, calls(6)), 5, 22, left=False, dtype="Long")
    judgement = judge(drew(lost(0, calls(6)), 5, 30, left=False), short)
    assert said(judgement)[0] == "uneven-steps"
    assert [rank for rank, _, _ in blamed(judgement)] == [1]


def test_types_that_differ_within_one_turn_stay_a_mismatch() -> None:
    judgement = judge(drew(lost(0, calls(6)), 7, left=False), drew(dead(1, calls(6)), 7, left=False, dtype="Long"))
    assert said(judgement)[0] == "collective-mismatch"
