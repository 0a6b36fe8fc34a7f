"""The chain of waits: from the victims to the culprits, and to what these wait for themselves."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from hangwatch.judge import Case, diagnose
from hangwatch.judge.chain import chain, chain_ends
from hangwatch.model import (
    Certainty,
    Culprit,
    ExceptionFacts,
    Incident,
    LockFile,
    LockOwner,
    OpenFile,
    Phase,
    RankEvidence,
    Verdict,
    Wait,
)
from hangwatch.report import html, markdown, summary, terminal, words
from hangwatch.report.incident import incident, snapshot_of
from hangwatch.wire import codec
from scripts import judged
from tests.unit.job import (
    FETCHING,
    IDLE,
    IN_BARRIER,
    IN_CODE,
    NOW,
    feeding,
    gone,
    judge,
    rank,
    snapshot,
    starting,
    worker,
)
from tests.unit.rules.step.worlds import STEP, stuck, world
from tests.unit.simulator import Call, Peer

PATH = "/data/shards.lock"


def barred(number: int = 0) -> RankEvidence:
    """A rank in a barrier, for which rank 1 has not come."""
    return rank(number, IN_BARRIER, issued=4, completed=3)


def behind(number: int = 1, **parts: object) -> RankEvidence:
    return rank(number, IN_CODE, issued=3, completed=3, **parts)  # type: ignore[arg-type]


def locked(number: int, owner: LockOwner | None, *, alive: bool = True) -> RankEvidence:
    """A rank that the kernel keeps waiting for a lock; without an owner that can be seen pid 9 has made it."""
    lock = LockFile(PATH, owner.pid if owner is not None else 9, alive, 600.0, owner=owner)
    facts = {"system_call": "flock", "blocked_on": OpenFile(7, PATH, "ext4")}
    return behind(number, facts=facts, evidence={"lock_files": (lock,)})


def kept(name: str) -> Incident:
    """A report of a real program, judged anew."""
    evidence = snapshot_of([judged.incident(name)])
    return incident(diagnose(evidence), evidence, id="1", opened_at=evidence.taken_at)


def end(*ranks: RankEvidence) -> str:
    """What the only end of the chain says."""
    (found,) = judge(*ranks).verdict.ends
    return words.end(found)


# ------------------------------------------------------------------------------------------ what is no rank


def test_a_loader_worker_is_the_end_of_the_chain() -> None:
    workers = (worker(0, FETCHING, rank=1, system_call="clock_nanosleep"), worker(1, IDLE, rank=1))
    fed = feeding(1, *workers, issued=3, completed=3)
    verdict = judge(barred(), fed).verdict
    assert words.chain(verdict) == [
        "rank 0 waits for rank 1 in barrier 4 of group 0 (train.py:50)",
        "rank 1 waits (train.py:50) for loader worker 0 (pid 210), which sleeps in __getitem__ (train.py:12)",
    ]
    assert [(each.awaits, each.pid) for each in verdict.ends] == [("loader worker 0 (pid 210)", 210)]


def test_a_lock_that_another_process_holds_is_the_end_of_the_chain() -> None:
    stranger = LockOwner(9, "stranger", None, "python prepare.py", NOW - 600, 0.0)
    verdict = judge(barred(), locked(1, stranger)).verdict
    assert words.chain(verdict)[-1] == (
        f"rank 1 waits in main (train.py:50) for the lock file {PATH}, which pid 9 (`python prepare.py`) holds, no"
        " process of this job"
    )
    assert verdict.ends[0].awaits == f"the lock file {PATH}, held by pid 9 (`python prepare.py`)"
    assert verdict.ends[0].pid == 9


def test_ranks_that_do_the_same_share_an_end() -> None:
    stranger = LockOwner(9, "stranger", None, "python prepare.py", NOW - 600, 0.0)
    case = Case(snapshot(barred(), locked(1, stranger), locked(2, stranger)))
    (only,) = chain_ends(case, case.culprits((1, 2)), ())
    assert only.ranks == (1, 2)
    assert words.end(only).startswith("ranks 1-2: each waits in main (train.py:50) for the lock file")


def test_a_lock_of_a_culprit_is_what_its_victims_wait_for() -> None:
    # GIVEN rank 0, which holds a lock in a barrier, and rank 1, which waits for that lock
    verdict = judge(barred(), locked(1, LockOwner(100, "rank", 0))).verdict
    assert words.chain(verdict) == [
        f"rank 1 waits for rank 0 in acquiring the lock file {PATH} (train.py:50)",
        "rank 0 waits for rank 1 in barrier 4 of group 0 (train.py:50)",
    ]
    assert verdict.ends == ()


def test_a_culprit_is_told_apart_from_victims_that_wait_as_it_does() -> None:
    waits = (Wait(0, (), "all_reduce 67 of group 0", also=(1, 2)),)
    verdict = Verdict("skipped-collective", Certainty.LIKELY, "", culprits=(Culprit(1),), waits=waits)
    assert words.chain(verdict) == [
        "ranks 0 and 2 wait in all_reduce 67 of group 0",
        "rank 1 waits in all_reduce 67 of group 0",
    ]


@pytest.mark.parametrize(
    ("kind", "says"),
    [("lock", "waits for a lock or a queue in push (train.py:40)"), ("checkpoint", "reads or writes a checkpoint (")],
)
def test_code_of_the_program_is_the_end_of_the_chain(kind: str, says: str) -> None:
    verdict = diagnose(stuck(kind)).verdict
    (found,) = verdict.ends
    assert words.end(found).startswith(f"rank 1 {says}")
    assert (found.awaits, found.where is not None) == ("", True)


def test_a_rank_that_ended_and_one_of_which_nothing_is_known() -> None:
    assert end(barred(), gone(1, -9)) == "rank 1 has ended (exit code -9)"
    raised = gone(1, 1, exception=ExceptionFacts("ValueError", "no data", (), fatal=True, at=NOW - 5))
    assert end(barred(), raised) == "rank 1 has raised ValueError: no data"
    verdict = judge(*(starting(number, world_size=3) for number in (0, 1))).verdict
    assert words.chain(verdict) == [
        "ranks 0-1 wait for rank 2 in init_process_group (train.py:50)",
        "rank 2 has no process that is known",
    ]


# ------------------------------------------------------------------------------------------ other ranks


def test_a_culprit_in_another_call_waits_for_its_victims() -> None:
    usual, odd = [*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=21)]
    verdict = diagnose(world(usual, odd, usual, usual)).verdict
    assert words.chain(verdict) == [
        "ranks 0 and 2-3 wait for rank 1 in all_gather 7 of group 0 (train.py:20)",
        "rank 1 waits for ranks 0 and 2-3 in reduce_scatter 7 of group 0 (train.py:21)",
    ]
    assert verdict.ends == ()


def test_a_circle_ends_where_it_began() -> None:
    verdict = diagnose(world([*STEP * 3, Peer("recv", 1)], [*STEP * 3, Peer("recv", 0)])).verdict
    assert [(wait.rank, wait.awaited) for wait in verdict.waits] == [(0, (1,)), (1, (0,))]
    assert verdict.ends == ()


def test_no_rank_is_said_to_do_anything_where_none_is_blamed() -> None:
    verdict = diagnose(snapshot_of([judged.incident("h100-endless-kernel-untimed")])).verdict
    assert (verdict.culprits, verdict.ends) == ((), ())


# ------------------------------------------------------------------------------------------ real programs


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("name", "last"),
    [
        (
            "gallery-worker-on-socket",
            "rank 1 waits (loader_worker_blocked.py:71) for loader worker 1 (pid 31786), which",
        ),
        ("gallery-blocked-on-file-lock", "rank 1 waits in append_row (lock_held_flock.py:33) for the lock of /tmp/"),
        ("gallery-blocked-on-database", "rank 1 waits for rank 2 in all_reduce 109 of group 0"),
        ("gallery-busy-loop", "rank 1 computes in project (user_code_loop.py:22)"),
        ("gallery-rank-frozen", "rank 1 is stopped (state T)"),
        ("gallery-exit-writer-thread", "rank 1 has left its training and waits for its thread 'metric-writer' (exit_"),
        ("gallery-exit-child-process", "rank 1 has left its training and waits for its child process 494"),
        ("gallery-nccl-uneven-steps", "rank 1 waits for rank 0 in barrier 126 of group 0"),
        ("deepspeed-save-on-rank-zero", "rank 0 waits for ranks 1-2 in barrier 1 of group 0 (f9_ds_save.py:22)"),
        ("gallery-group-order-ring", "rank 1 waits for rank 0 in all_reduce 1 of group 1 (group_order_ring.py:46)"),
    ],
)
def test_all_reports_of_a_real_program_tell_the_same_end(name: str, last: str) -> None:
    made = kept(name)
    said = words.chain(made.verdict)[-1]
    assert said.startswith(last)
    assert _bare(said) in _bare(terminal.render(made, verbose=True))
    assert _bare(said) in _bare(markdown.render(made))
    ends = made.verdict.ends
    told = ends[0].does if ends else f"{made.verdict.waits[-1].what} "
    assert _bare(told) in _bare(unescape(re.sub("<[^>]*>", "", html.render(made))))
    assert summary.of(made).verdict.ends == ends


def _bare(text: str) -> str:
    """Without line breaks, and without the backslashes of Markdown."""
    return "".join(text.replace("\\", "").split())


def test_a_rank_of_a_report_waits_for_the_end_of_the_chain() -> None:
    made = kept("gallery-worker-on-socket")
    assert made.ranks[1].waiting_for == "loader worker 1 (pid 31786)"
    # AND one that waits for nothing that is known for nothing, although it has calls under way
    assert kept("gallery-busy-loop").ranks[1].waiting_for == ""


def test_a_rank_of_which_the_verdict_tells_nothing_is_inside_of_its_call() -> None:
    made = kept("gallery-early-exit")
    silent = incident(
        replace(diagnose(snapshot_of([made])), verdict=Verdict("undetermined", made.verdict.certainty, "")),
        snapshot_of([made]),
        id="1",
        opened_at=NOW,
    )
    assert [each.waiting_for for each in silent.ranks] == ["", "barrier 126 of group 0"]


def test_a_report_of_an_older_version_has_no_end() -> None:
    document = codec.encode(kept("gallery-busy-loop").verdict)
    del document["ends"]
    (said,) = words.chain(codec.decode(Verdict, document))
    assert said == "rank 0 waits for rank 1 in all_reduce 107 of group 0 (user_code_loop.py:44)"


def test_a_rank_that_ended_in_its_backward_unseen_is_awaited_by_none() -> None:
    """GIVEN ranks in a barrier that rank 1 has not counted WHEN it is gone amid its backward, or in another phase."""
    for phase, awaited in ((Phase.BACKWARD, ()), (Phase.DATA, (1,))):
        ended = gone(1, -15, phase, issued=3, completed=3)
        assert chain(Case(snapshot(barred(), ended)), (1,), (0,))[0].awaited == awaited
