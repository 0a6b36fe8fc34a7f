"""`collective-mismatch`: ranks called different collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.judge import Case, diagnose
from hangwatch.model import Certainty, Frame, Judgement, ProcessFacts, RankEvidence, Snapshot, Status
from hangwatch.rules.step.collective_mismatch import collective_mismatch
from hangwatch.rules.step.rank_zero_only_collective.at_a_new_place import mispaired_at_a_new_place
from tests.unit.rules.step.worlds import STEP, Program, changed, with_ring, world
from tests.unit.simulator import SCRIPT, Call, Draw, blamed_ranks


@pytest.mark.parametrize("culprit", [0, 1, 3])
def test_another_operation_at_the_same_point_is_a_mismatch_with_both_call_sites(culprit: int) -> None:
    usual, odd = [*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=21)]
    judgement = diagnose(world(*(odd if rank == culprit else usual for rank in range(4))))
    assert judgement.verdict.cause == "collective-mismatch"
    assert judgement.verdict.certainty is Certainty.LIKELY  # from a line of its own, it may be a call too many as well
    assert blamed_ranks(judgement) == [culprit]
    assert "train.py:20" in judgement.verdict.summary
    assert "train.py:21" in judgement.verdict.summary


@pytest.mark.parametrize("culprit", [0, 1, 3])
def test_another_operation_from_the_same_line_is_proof(culprit: int) -> None:
    usual, odd = [*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=20)]
    judgement = diagnose(world(*(odd if rank == culprit else usual for rank in range(4))))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("collective-mismatch", Certainty.PROVEN)
    assert blamed_ranks(judgement) == [culprit]


@pytest.mark.parametrize(("steps", "earlier"), [(4, "all earlier calls"), (2, "the one earlier call")])
def test_another_size_is_a_mismatch_and_the_rank_that_departs_from_its_past_is_to_blame(
    steps: int, earlier: str
) -> None:
    usual: Program = [Draw(), Call("all_gather", line=20, size=64)] * steps
    judgement = diagnose(world(usual, [*usual[:-1], Call("all_gather", line=20, size=20)]))
    assert judgement.verdict.cause == "collective-mismatch"
    assert blamed_ranks(judgement) == [1]
    before = f"in {earlier} on record rank 1 called all_gather of 64 elements (float32) there"
    assert before in judgement.verdict.evidence


def test_a_mismatch_that_aborts_a_rank_is_no_mere_death() -> None:
    usual: Program = [Draw(), Call("all_gather", line=20, size=64)] * 4
    snapshot = world(usual, [*usual[:-1], Call("all_gather", line=20, size=20)])
    aborted = changed(snapshot, 0, lambda e: replace(e, process=ProcessFacts(4000, "X", exit_code=-6), stacks=()))
    judgement = diagnose(aborted)
    assert judgement.verdict.cause == "collective-mismatch"
    assert judgement.status is Status.FAILED
    assert blamed_ranks(judgement) == [1]


def _rooted(*roots: int) -> Judgement:
    """Each rank takes another one for the root of a broadcast in its fifth step."""
    return diagnose(world(*([*STEP * 4, Draw(), Call("broadcast", line=14, root=root), *STEP] for root in roots)))


@pytest.mark.parametrize("roots", [(1, 0), (1, 2, 0), (1, 0, 0)])
def test_a_broadcast_that_all_ranks_receive_can_never_complete(roots: tuple[int, ...]) -> None:
    judgement = _rooted(*roots)
    assert (judgement.status, judgement.verdict.hang) == (Status.HUNG, Certainty.PROVEN)
    assert judgement.verdict.cause == "collective-mismatch"
    assert "agree on the root" in judgement.verdict.fix


def test_where_one_rank_is_the_root_no_receiver_is_proven_to_wait_for_good() -> None:
    """A backend's tree may bring its data to a receiver that named another rank."""
    assert not Case(world(*([*STEP * 4, Call("broadcast", line=14, root=root)] for root in (0, 2, 1)))).deadlocked


def _ended(snapshot: Snapshot) -> Judgement:
    """The backend ends rank 1 at a pair of unlike sizes; the boards have what Python code called."""
    process = ProcessFacts(4001, "X", exit_code=-6)
    ended = changed(snapshot, 1, lambda e: replace(e, process=process, stacks=()))
    return diagnose(replace(ended, ranks=tuple(map(with_ring, ended.ranks))))


@pytest.mark.parametrize("culprit", [0, 1, 2])
@pytest.mark.parametrize("late", [0, 2])
def test_a_pair_that_follows_from_calls_left_out_before_is_no_mismatch(culprit: int, late: int) -> None:
    """The sizes are unlike at once, or some steps later: until then calls of one size were mispaired."""
    unlike: Program = [Draw(), Call(line=10, size=8), Call(line=10, size=8), Call(line=12, size=1)]
    alike: Program = [*unlike[:-1], Call(line=12, size=8)]
    first = alike if late else unlike
    usual = [*first * (4 + late), *unlike * 3]
    odd = [*first * 4, first[0], first[-1], *first * max(late - 1, 0), *unlike * 3]
    judgement = _ended(world(*(odd if rank == culprit else usual for rank in range(3))))
    assert (judgement.verdict.cause, judgement.status) == ("skipped-collective", Status.FAILED)
    assert blamed_ranks(judgement) == [culprit]
    assert judgement.verdict.step.step == 4


@pytest.mark.parametrize(("line", "fix"), [(20, "pad to the largest size"), (25, "the ranks are at different lines")])
def test_only_calls_of_one_line_are_to_be_padded(line: int, fix: str) -> None:
    usual: Program = [Draw(), Call("all_gather", line=20, size=64)] * 4
    verdict = diagnose(world(usual, [*usual[:-1], Call("all_gather", line=line, size=20)], usual)).verdict
    assert verdict.cause == "collective-mismatch"
    assert fix in verdict.fix


def test_branches_of_one_condition_are_a_mismatch_of_which_no_side_is_blamed() -> None:
    """GIVEN two ranks of which each makes a call that the other one never makes THEN nothing was left out."""
    verdict = diagnose(
        world([*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=22)])
    ).verdict
    assert (verdict.cause, verdict.certainty, verdict.culprits) == ("collective-mismatch", Certainty.LIKELY, ())
    assert "train.py:20" in verdict.summary
    assert "train.py:22" in verdict.summary


@pytest.mark.parametrize("turns", [0, 3])
def test_in_a_first_turn_a_rank_ahead_is_alone_in_nothing(turns: int) -> None:
    """GIVEN rank 0 with a call more ahead of a barrier THEN rank 1 is alone there only if turns lie behind rank 0.

    A line to which no condition leads is one that all come to; that no rank has called from there says so too late.
    """
    common: Program = [Draw(), Call(line=12)]
    ahead = Call("barrier", line=20)
    snapshot = world(*([*common * turns, *common, *more, ahead] for more in ([Call(line=13)], [])))
    found = mispaired_at_a_new_place(Case(replace(snapshot, ranks=tuple(map(_by_a_helper, snapshot.ranks)))))
    assert (found is not None) is bool(turns)


def _by_a_helper(entry: RankEvidence) -> RankEvidence:
    """The same rank, whose calls are made by one function that its lines call."""

    def below(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        at = next((n for n, frame in enumerate(frames) if frame.line in (12, 13)), None)
        return frames if at is None else (*frames[:at], Frame(SCRIPT, 8, "reduce"), *frames[at:])

    recent = tuple(replace(call, frames=below(call.frames)) for call in entry.collectives.recent)
    stacks = tuple(replace(each, frames=below(each.frames), in_loop=True, guard="none") for each in entry.stacks)
    return replace(entry, stacks=stacks, collectives=replace(entry.collectives, recent=recent))


def test_a_helper_that_all_use_is_told_by_the_line_that_calls_it() -> None:
    """GIVEN a function that all ranks call WHEN rank 1 waits in it from a line of its own THEN that line is apart."""
    turn: Program = [Draw(), Call(line=12)]
    snapshot = world(turn * 4, [*turn * 3, Draw(), Call("all_gather", line=13)])
    case = Case(replace(snapshot, ranks=tuple(map(_by_a_helper, snapshot.ranks))))
    assert sites_of(case).apart(1, [0]) == Frame(SCRIPT, 13, "")
    assert sites_of(case).apart(0, [1]) is None


def test_most_ranks_in_a_call_new_to_them_do_not_outvote_a_usual_call() -> None:
    """GIVEN ranks 0 to 2, which left out their last gradients and are in a barrier of the end for the first time
    WHEN rank 3 is in its gradients, as in each step before THEN neither side is blamed."""
    step: Program = [Draw(), Call(via="gradients", line=12)]
    early: Program = [*step * 3, Draw(), Call("barrier", line=88)]
    case = Case(world(early, early, early, step * 4))
    found = collective_mismatch(case)
    assert found is not None
    assert (found.cause, found.culprits) == ("undetermined", ())


def test_calls_of_the_engine_are_usual_where_it_made_some_before() -> None:
    """GIVEN gradients that the engine's own thread reduces, which has no Python frames."""
    step: Program = [Draw(), Call(via="gradients", line=12)]
    usual = world(step * 3, step * 3)
    case = Case(changed(usual, 0, by_the_engine))
    calls = case.ledger.calls_in(0, "0")
    assert [call.seq for call in sites_of(case).used(0, calls[-1])] == [1, 2]


def by_the_engine(evidence: RankEvidence) -> RankEvidence:
    entries = tuple(replace(each, frames=(), thread_name="pt_autograd_0") for each in evidence.collectives.recent)
    return replace(evidence, collectives=replace(evidence.collectives, recent=entries))


def test_a_line_that_calls_what_a_value_names_makes_one_call_another_one() -> None:
    """`MERGE[kind](tensors)` over a set, whose order differs from process to process: no call of a rank alone."""

    def merged(op: str, line: int, function: str) -> Program:
        return [*STEP * 3, Call(op, line=line, function=function, size=line)]

    odd, usual = merged("all_gather", 61, "intersect"), merged("broadcast", 55, "take_counters")
    snapshot = world(odd, usual, usual, usual)
    for rank in range(4):
        snapshot = changed(snapshot, rank, lambda entry: _called_from(entry, Frame(SCRIPT, 74, "merge_state")))
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "collective-mismatch", judgement.verdict.summary
    assert blamed_ranks(judgement) == [0]


def _called_from(entry: RankEvidence, caller: Frame) -> RankEvidence:
    """The user's functions that make calls are called from that line."""

    def below(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        made = [n for n, frame in enumerate(frames) if frame.function in ("intersect", "take_counters")]
        return (*frames[: made[-1] + 1], caller, *frames[made[-1] + 1 :]) if made else frames

    stacks = tuple(replace(each, frames=below(each.frames)) for each in entry.stacks)
    recent = tuple(replace(call, frames=below(call.frames)) for call in entry.collectives.recent)
    opened = tuple(replace(call, frames=below(call.frames)) for call in entry.collectives.open_calls)
    told = replace(entry.collectives, recent=recent, open_calls=opened)
    return replace(entry, stacks=stacks, earlier_stacks=stacks, collectives=told)


@pytest.mark.parametrize("trainers", [1, 2])
def test_two_roles_that_count_the_tensors_of_a_row_otherwise(trainers: int) -> None:
    """Trainers publish seven tensors and go on, samplers load eight; the smaller side is named, else the longer row."""
    everyone: list[tuple[int, ...]] = [(0, 1, 2, 3)]
    turn = Call(group="pair", line=30)
    publish, load = Call("broadcast", line=48, group="sync", root=0), Call("broadcast", line=55, group="sync", root=0)
    programs: list[Program] = [
        [turn, turn, *([publish] * 7 if rank < trainers else [load] * 8), turn] for rank in range(4)
    ]
    snapshot = world(*programs, groups={"sync": everyone, "pair": everyone})
    for rank in range(4):
        snapshot = changed(snapshot, rank, with_ring)
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "collective-mismatch", judgement.verdict.summary
    assert "make more than 7 broadcasts in a row" in judgement.verdict.summary
    assert blamed_ranks(judgement) == ([0] if trainers == 1 else [2, 3])
