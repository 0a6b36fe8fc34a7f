"""Answers of NCCL's RAS service, in both formats: whose job, which ranks, what is of note, in which words."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.judge import diagnose
from hangwatch.model import Job, NcclLaunched, NcclView, NodeFacts, Snapshot
from hangwatch.ras import RasError, of_nodes, parsed, sentences
from hangwatch.wire import codec
from tests.ras_standin import communicator, document, missing, rank

OURS = {(100 + each, "127.0.0.1"): each for each in range(4)}
WORLD = (0, 1, 2, 3)


def said(answer: bytes, world: int = 4) -> tuple[str, ...]:
    return sentences(parsed(answer, OURS, [WORLD, (2, 3)], world))


def test_a_healthy_job_has_nothing_of_note() -> None:
    view = parsed(document(communicator(*(rank(each, 100 + each) for each in WORLD))), OURS, [WORLD])
    assert (view.version, view.communicators, view.of_note) == ("2.28.9", 1, ())
    assert sentences(view) == ()


def test_ranks_that_have_launched_less_are_named() -> None:
    ranks = [rank(each, 100 + each, 99 if each == 2 else 100) for each in WORLD]
    view = parsed(document(communicator(*ranks)), OURS, [WORLD])
    (found,) = view.of_note
    assert found.launched == (NcclLaunched("AllReduce", 100, 3, (0, 1, 3)), NcclLaunched("AllReduce", 99, 1, (2,)))
    (sentence,) = sentences(view)
    assert sentence.endswith(
        "numbers of AllReduce in the communicator of 4 ranks: 100 by ranks 0-1 and 3, 99 by rank 2"
    )


def test_ranks_of_a_communicator_are_named_by_the_jobs_numbers() -> None:
    """Rank 1 of the group (2, 3) is the job's rank 3."""
    answer = document(communicator(rank(0, 102, 5), rank(1, 103, 4)))
    assert "5 by rank 2, 4 by rank 3" in said(answer)[0]


def test_ranks_that_cannot_be_named_keep_the_communicators_numbers() -> None:
    """Ranks of other machines are known by the one group that fits; without one only our own are."""
    absent = (missing(1, 7, host="10.0.0.2"),)
    view = parsed(document(communicator(rank(0, 100), absent=absent)), OURS, [])
    assert view.of_note[0].members == (0, -1)
    assert "rank 1 (by the communicator's own numbers)" in sentences(view)[0]


def test_nccl_2_28_forgets_a_comma_where_a_rank_is_missing() -> None:
    """So it answered on a GPU where one rank was stopped."""
    whole = json.dumps(json.loads(document(communicator(rank(0, 100), absent=(missing(1, 101),)))), indent=2)
    broken = re.sub(r'("nvml_dev": 1),(\s+"status")', r"\1\2", whole)
    assert broken != whole
    assert said(broken.encode()) == ("rank 1 of the communicator of 2 ranks did not answer NCCL's RAS threads in time",)


def test_the_dead_the_silent_and_errors() -> None:
    absent = (missing(2, 102), missing(3, 103, dead=True))
    answer = document(communicator(rank(0, 100, async_error=6), rank(1, 101, init_state=7), absent=absent))
    assert said(answer) == (
        "NCCL calls rank 3 of the communicator of 4 ranks dead: no answer to its RAS threads",
        "rank 2 of the communicator of 4 ranks did not answer NCCL's RAS threads in time",
        "NCCL reports an error on rank 0 of the communicator of 4 ranks: remote process error",
        "rank 1 of the communicator of 4 ranks still set it up",
    )


def test_another_jobs_answer_is_not_used() -> None:
    """The port is common to all jobs of a machine."""
    with pytest.raises(RasError, match="another job"):
        parsed(document(communicator(rank(0, 7), rank(1, 8))), OURS, [WORLD])
    with pytest.raises(RasError, match="another job"):  # the same pid on another machine
        parsed(document(communicator(rank(0, 100, host="10.0.0.9"))), OURS, [WORLD])


TEXT = """NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 103 on node 127.0.0.1 managing GPU 3

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 103 on node 127.0.0.1 managing GPU 3

#0-0 (00000005ab9f6d0c) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 managed by process 103 on node 127.0.0.1

#0-0 (00000005ab9f6d0c) ERROR
  Asynchronous error on 1 rank
  Rank 1 reported Remote process error -- GPU 1 managed by process 101 on node 127.0.0.1

Warnings
========

#0-0 (00000005ab9f6d0c) MISMATCH
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 100
  Rank 2 has launched up to operation 99 -- GPU 2 managed by process 102 on node 127.0.0.1
"""


def test_the_text_of_older_versions() -> None:
    view = parsed(TEXT.encode(), OURS, [WORLD], 4)
    (found,) = view.of_note
    assert (view.version, found.size, found.members) == ("2.26.2", 4, WORLD)
    assert found.launched == (NcclLaunched("AllReduce", 100, 2), NcclLaunched("AllReduce", 99, 1, (2,)))
    assert found.missing == (3,)
    assert found.errors == {1: "remote process error"}
    assert view.dead_processes == ("process 103 on node 127.0.0.1",)
    words = sentences(view)
    assert "NCCL (2.26.2) calls process 103 on node 127.0.0.1 dead" in words
    assert any("100 by 2 ranks, 99 by rank 2" in each for each in words)


@pytest.mark.parametrize(("said", "missing"), [("The missing rank: 3", (3,)), ("The missing ranks: 0,3", (0, 3))])
def test_missing_ranks_as_the_first_version_lists_them(said: str, missing: tuple[int, ...]) -> None:
    """2.24 gives their numbers alone; they are not dead yet."""
    text = TEXT.partition("DEAD")[0] + (
        f"#0-0 (00000005ab9f6d0c) INCOMPLETE\n  Missing communicator data from {len(missing)} rank\n  {said}\n\n"
        "#0-0 (00000005ab9f6d0c) MISMATCH\n  Communicator ranks have different collective operation counts\n"
        "  Rank 2 has launched up to operation 99 -- GPU 2 managed by process 102 on node 127.0.0.1\n"
    )
    view = parsed(text.encode(), OURS, [WORLD], 4)
    (found,) = view.of_note
    assert (found.missing, found.dead) == (missing, ())
    assert any("did not answer NCCL's RAS threads in time" in each for each in sentences(view))


def test_text_with_counts_of_all_collectives_together() -> None:
    """As 2.24 counts them; ranks of one count are listed below it."""
    text = TEXT.partition("#0-0")[0] + (
        "#0-0 (00000005ab9f6d0c) MISMATCH\n"
        "  Communicator ranks have different collective operation counts\n"
        "  2 ranks have launched up to operation 7\n"
        "  Rank 0 -- GPU 0 managed by process 100 on node 127.0.0.1\n"
        "  Rank 1 -- GPU 1 managed by process 101 on node 127.0.0.1\n"
        "  2 ranks have not launched any operations\n"
    )
    (found,) = parsed(text.encode(), OURS, [WORLD]).of_note
    assert found.launched == (NcclLaunched("collective", 7, 2, (0, 1)), NcclLaunched("collective", 0, 2))


def test_text_of_a_healthy_job() -> None:
    view = parsed(TEXT.partition("Errors\n")[0].encode(), OURS, [WORLD])
    assert view == NcclView("2.26.2")


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"{", b"[]", b"\xff\x00", b"HTTP/1.1 400 Bad Request\r\n", b'{"nccl_version": "2"}',
        b'{"nccl_version": "2", "communicators": [{"size": -1, "ranks": []}]}',
        b'{"nccl_version": "2", "communicators": [{"size": 2, "ranks": [{"rank": 5}]}]}',
        b'{"nccl_version": "2", "communicators": 7}', b"[" * 100000,
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(RasError):
        parsed(answer, OURS, [WORLD])


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.booleans(), lambda each: st.lists(each, max_size=3)
    )
)
def test_odd_values_never_raise_anything_else(value: object) -> None:
    whole = json.loads(document(communicator(rank(0, 100), rank(1, 101), absent=(missing(2, 102),))))
    for where in (whole, whole["communicators"][0], *whole["communicators"][0]["ranks"]):
        for key in list(where):
            before, where[key] = where[key], value
            with contextlib.suppress(RasError):
                assert all(sentences(parsed(json.dumps(whole).encode(), OURS, [WORLD])))
            where[key] = before


def test_a_report_tells_it_as_evidence_and_keeps_it() -> None:
    view = parsed(document(communicator(*(rank(each, 100 + each, each) for each in (0, 1)))), OURS, [(0, 1)])
    node = NodeFacts("a", nccl=view)
    judged = diagnose(Snapshot(Job("j", "j", 2), 10.0, (), nodes=(NodeFacts("b"), node)))
    assert of_nodes([node])[0] in judged.verdict.evidence
    assert codec.loads(NodeFacts, codec.dumps(node)) == node
