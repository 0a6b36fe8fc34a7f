"""`point-to-point-deadlock`: sends and receives do not match."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from hangwatch.judge import Case, diagnose
from hangwatch.model import (
    Bypass,
    CallSite,
    Certainty,
    Collective,
    Frame,
    GroupHead,
    Judgement,
    LoopFacts,
    PeerCount,
    Progress,
    RankEvidence,
    Snapshot,
    Status,
)
from tests.unit.job import C10D, IN_BARRIER, IN_CODE, SCRIPT, TORCH, blamed, judge, rank, snapshot, told
from tests.unit.rules.step.endings import ended, failed
from tests.unit.rules.step.worlds import STEP, Program, changed, with_ring, world
from tests.unit.simulator import Action, Call, Draw, LoopEnd, Peer, Stall


def test_all_ranks_sending_is_a_point_to_point_deadlock() -> None:
    judgement = diagnose(world([*STEP * 3, Peer("send", 1)], [*STEP * 3, Peer("send", 0)]))
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert judgement.status is Status.HUNG


@pytest.mark.parametrize(
    ("size", "end"), [(4, "rank 3 waits for rank 0 in send (train.py:30)."), (6, "(train.py:30); and 3 more.")]
)
def test_a_small_circle_is_told_as_a_whole(size: int, end: str) -> None:
    verdict = diagnose(world(*([*STEP * 3, Peer("send", (number + 1) % size)] for number in range(size)))).verdict
    assert verdict.summary.endswith(end)


def test_a_receive_whose_sender_waits_elsewhere_is_one_too() -> None:
    judgement = diagnose(world([*STEP, Peer("recv", 1), Call("barrier")], [*STEP, Call("barrier")]))
    assert judgement.verdict.cause == "point-to-point-deadlock"


def _tagged(entry: RankEvidence) -> RankEvidence:
    assert entry.reading is not None
    calls, inside = (
        tuple(replace(call, tag=7) if call.op == "send" else call for call in some)
        for some in (entry.reading.calls, entry.reading.open_calls)
    )
    collectives = replace(entry.collectives, recent=calls, open_calls=inside)
    return replace(entry, reading=replace(entry.reading, calls=calls, open_calls=inside), collectives=collectives)


def test_messages_of_several_tags_are_counted_by_tag_and_it_is_said() -> None:
    snapshot = world([*STEP, Peer("send", 1)], [*STEP, Peer("send", 0)])
    evidence = diagnose(changed(snapshot, 0, _tagged)).verdict.evidence
    assert "rank 0 made 1 send of tag 7 with rank 1, which made 0 receives of tag 7 with it" in evidence
    assert "rank 1 made 1 send of tag 0 with rank 0, which made 0 receives of tag 0 with it" in evidence
    untagged = diagnose(snapshot).verdict.evidence
    assert "rank 0 made 1 send with rank 1, which made 0 receives with it" in untagged


def test_a_receive_whose_sender_still_computes_is_none() -> None:
    judgement = diagnose(world([*STEP, Peer("recv", 1)], [*STEP, Stall(kind="loop"), Peer("send", 0)]))
    assert judgement.verdict.cause == "user-code-blocked"
    assert judgement.status is Status.WAITING


ROUND = Call("barrier", line=90)


def rounds(call: Peer, *sizes: int) -> Program:
    """So many of that call in each round."""
    found: Program = []
    for size in sizes:
        found += [call] * size
        found.append(ROUND)
    return found


def _collecting(*present: Peer) -> Snapshot:
    """Rank 0 receives from ranks 1 and 2 in each round; `present` is what rank 2 sends in the last one."""
    collect: Program = [Peer("recv", 1), Peer("recv", 2), Peer("recv", 2), ROUND]
    two: Program = [Peer("send", 0, line=41), Peer("send", 0, line=42), ROUND]
    return world(
        [ROUND, *collect * 4],
        [ROUND, *rounds(Peer("send", 0), 1, 1, 1, 1)],
        [ROUND, *two * 3, *present, ROUND],
    )


def test_the_rank_that_left_out_a_send_is_the_culprit_and_not_the_one_that_waits_for_it() -> None:
    judgement = diagnose(_collecting())
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [2]
    assert "rank 2 made 2 sends to rank 0 in each of the 3 rounds before, and 0 in the next" in (
        judgement.verdict.evidence
    )
    assert set(judgement.verdict.victims) == {0, 1}


WEIGHTS: Program = [Call("broadcast", line=91)] * 4


def _actors(*last: Peer) -> Judgement:
    """Two actors send to the learner, which broadcasts its parameters one by one; `last` is what actor 2 sends."""
    turn: Program = [Peer("send", 0), *WEIGHTS]
    learner: Program = [Peer("recv", 1), Peer("recv", 2), *WEIGHTS]
    return diagnose(world(learner * 5, turn * 5, [*turn * 4, *last, *WEIGHTS]))


def test_a_turn_with_several_collectives_of_one_line_shows_who_left_out_a_send() -> None:
    judgement = _actors()
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [2]
    assert "left out 1 send to rank 0" in judgement.verdict.summary
    assert (
        "rank 2 made 1 send to rank 0 in each of the 4 rounds before, and 0 in the next" in judgement.verdict.evidence
    )


def test_one_of_several_sends_of_a_turn_is_left_out_before_its_collectives() -> None:
    turn: Program = [Peer("send", 0, line=41), Peer("send", 0, line=42), *WEIGHTS]
    stage: Program = [Peer("recv", 1), Peer("recv", 1), *WEIGHTS]
    judgement = diagnose(world(stage * 5, [*turn * 4, turn[0], *WEIGHTS]))
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [1]
    assert (
        "rank 1 made 2 sends to rank 0 in each of the 4 rounds before, and 1 in the next" in judgement.verdict.evidence
    )


def test_a_sender_that_has_ended_its_loop_is_not_known_to_have_left_out_a_send() -> None:
    """GIVEN as many turns as ever WHEN it is past its loop THEN the receiver may have expected one too many."""
    turn: Program = [Peer("send", 0), *WEIGHTS]
    learner: Program = [Peer("recv", 1), *WEIGHTS]
    judgement = diagnose(world([*learner * 4, Peer("recv", 1)], [*turn * 4, Call("barrier", line=99)]))
    assert {culprit.rank for culprit in judgement.verdict.culprits} != {1}


@pytest.mark.parametrize("exhausted", [True, False])
def test_a_send_that_was_due_in_the_last_turn_of_a_loop_was_left_out(exhausted: bool) -> None:
    """WHEN the rank is behind the loop, past the line of a message that was due after as many collectives as ever."""

    def program(peer: Peer, *, whole: bool) -> Program:
        turns: list[Program] = [[Draw(0, n), Call(line=20), *([peer] if n % 3 == 2 else [])] for n in range(18)]
        turns[-1] = turns[-1] if whole else turns[-1][:-1]
        return [
            *(action for turn in turns for action in turn),
            LoopEnd(exhausted or whole),
            Call("all_gather", line=60),
        ]

    def reached_by_all(entry: RankEvidence) -> RankEvidence:
        return replace(entry, stacks=tuple(replace(stack, guard="none", in_loop=False) for stack in entry.stacks))

    receiver, sender = program(Peer("recv", 1, line=30), whole=True), program(Peer("send", 0, line=30), whole=False)
    judgement = diagnose(changed(world(receiver, sender), 1, reached_by_all))
    left_out = "Rank 1 left out 1 send to rank 0 (train.py:30)" in judgement.verdict.summary
    assert left_out is exhausted  # else it may have left the loop ahead of that line
    if exhausted:
        assert (judgement.verdict.cause, blamed(judgement)) == ("point-to-point-deadlock", [(1, 4001, "rank")])


def test_one_of_several_sends_is_left_out() -> None:
    judgement = diagnose(_collecting(Peer("send", 0, line=41)))
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [2]
    assert "left out 1 send to rank 0" in judgement.verdict.summary


def test_the_stage_that_expects_one_message_too_many_is_the_culprit() -> None:
    first: Program = [Peer("send", 1), Peer("send", 1), ROUND]
    last: Program = [Peer("recv", 0), Peer("recv", 0), ROUND]
    judgement = diagnose(world([*first * 4, ROUND], [*last * 3, *last[:2], *last[1:]]))
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [1]
    assert "made 1 receive from rank 0 more than in the rounds before" in judgement.verdict.summary


def test_rounds_of_different_lengths_are_no_habit() -> None:
    send, recv = Peer("send", 1), Peer("recv", 0)
    judgement = diagnose(world(rounds(send, 1, 2, 3, 1), rounds(recv, 1, 2, 3, 2)))
    assert sorted(culprit.rank or 0 for culprit in judgement.verdict.culprits) == [0, 1]


def test_a_peer_that_has_not_ended_its_round_has_left_nothing_out() -> None:
    """Both send first in the last round, where rank 1 received first before: the send of rank 0 is as usual."""
    turn: Program = [Peer("send", 1), Peer("recv", 1), ROUND]
    other: Program = [Peer("recv", 0), Peer("send", 0), ROUND]
    judgement = diagnose(world([*turn * 4], [*other * 3, Peer("send", 0), Peer("recv", 0), ROUND]))
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert "left out" not in judgement.verdict.summary


def test_a_send_that_was_left_out_some_steps_ago_is_found_where_the_backward_follows_it() -> None:
    """Messages run ahead: the peer misses the last one, and the habit of steps says in which step it was left out."""

    def step(*messages: Peer) -> Program:
        return [Draw(), Call(line=12, via="gradients"), *messages, Call(line=13)]

    send, recv = Peer("send", 1, line=30), Peer("recv", 0, line=40)
    judgement = diagnose(world([*step(send) * 4, *step()], step(recv) * 5))
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [0]
    assert judgement.verdict.step.step == 4
    said = "rank 0 made 1 send to rank 1 in each of the 4 steps before, and 0 in step 4"
    assert said in judgement.verdict.evidence


@pytest.mark.parametrize("made", [1, 3])
def test_a_stage_that_goes_on_with_a_part_of_its_microbatches_is_the_culprit(made: int) -> None:
    """Four microbatches a step, of which one stage sends fewer and then waits for their gradients."""

    def stage(sends: int, peer: int) -> Program:
        forward, backward = Peer("send", peer, line=30), Peer("recv", peer, line=30)
        return [Draw(), *[forward] * sends, *[backward] * 4]

    last: Program = [Draw(), *[Peer("recv", 0, line=40)] * 4, *[Peer("send", 0, line=40)] * 4]
    verdict = diagnose(world([*stage(4, 1) * 4, *stage(made, 1)], last * 5)).verdict
    assert [culprit.rank for culprit in verdict.culprits] == [0]
    assert f"went on after {made} of the 4 sends to rank 1 (train.py:30)" in verdict.summary


def test_where_several_went_on_early_no_number_is_told_of_the_rank_that_waits_for_them() -> None:
    """GIVEN two stages that take fewer microbatches than in every step before, and a first one amid its sends
    THEN it is told that this one waits, and not that it kept to a number to which it has not come."""
    first: Program = [Draw(), *[Peer("send", 1, line=30), Peer("send", 2, line=31)] * 4]
    first += [Peer("recv", 1, line=35), Peer("recv", 2, line=36)] * 4

    def stage(taken: int) -> Program:
        return [Draw(), *[Peer("recv", 0, line=40)] * taken, *[Peer("send", 0, line=45)] * 4]

    loop = LoopFacts(Frame(SCRIPT, 29, "main"), items="range(n_micro)", bounded=True)
    seen = changed(
        world(first * 5, *[[*stage(4) * 4, *stage(2)]] * 2),
        0,
        lambda entry: replace(entry, stacks=tuple(replace(stack, loop=loop) for stack in entry.stacks)),
    )
    verdict = diagnose(seen).verdict
    assert "rank 0 stands in the loop at train.py:29, which goes through `range(n_micro)`" in verdict.evidence
    assert verdict.summary == (
        "Ranks 1-2 went on after fewer sends or receives than in every round before, while rank 0 waits in one more of"
        " them: which side is wrong is not known."
    )


def test_receives_that_came_before_lack_a_send_and_not_another_order() -> None:
    """GIVEN a worker that goes on to its next item without the result, for which the coordinator waits
    THEN the advice is about the send, which was made before; of two first receives one rank must send first."""
    give, take = Peer("send", 1, line=30), Peer("recv", 1, line=35)
    item, result = Peer("recv", 0, line=40), Peer("send", 0, line=45)
    left_out = diagnose(world([give, take] * 4, [*[item, result] * 3, item, item])).verdict
    assert left_out.cause == "point-to-point-deadlock"
    assert left_out.fix.startswith("make each send on every path")
    at_once = diagnose(world([take], [item])).verdict
    assert at_once.fix.startswith("all of these ranks receive, so one of them must send first")


def test_a_condition_that_leads_past_one_of_many_sends_of_a_line_is_not_the_only_way() -> None:
    """GIVEN a stage that made 2 of 4 sends by one line, below a condition that the source shows
    THEN the loop around that line may have made fewer turns: that condition is not told as what led past it."""
    send, back = Peer("send", 1, line=30), Peer("recv", 1, line=35)
    first: Program = [Draw(), *[send] * 4, *[back] * 4]
    last: Program = [Draw(), *[Peer("recv", 0, line=40)] * 4, *[Peer("send", 0, line=40)] * 4]
    way = Bypass(Frame(SCRIPT, 29, "main"), "if not self.last", inner=True)
    found = world([*first * 4, Draw(), *[send] * 2, *[back] * 4], last * 5)
    verdict = diagnose(replace(found, call_sites=(CallSite((Frame(SCRIPT, 30, "main"),), (way,)),))).verdict
    assert "went on after 2 of the 4 sends to rank 1 (train.py:30)" in verdict.summary
    assert "if not self.last" not in verdict.summary
    assert not any("no other way" in sentence for sentence in verdict.evidence)


IN_RECV = (Frame(C10D, 2799, "recv"), Frame(SCRIPT, 11, "serve"))


def _serving(peer: int | None, *others: RankEvidence) -> Judgement:
    """Rank 0 waits in a receive; it has come to no barrier yet."""
    call = Collective("0", 9, "recv", peer=peer, frames=IN_RECV, thread_name="MainThread", at=1.0)
    server = rank(0, IN_RECV, issued=4, completed=4, patience_s=10.0, world_size=3)
    return judge(replace(server, collectives=replace(server.collectives, open_calls=(call,))), *others)


def _in_barrier(number: int) -> RankEvidence:
    return rank(number, IN_BARRIER, issued=5, completed=4, world_size=3)


def test_a_receive_from_any_rank_where_all_of_them_wait_for_the_receiver() -> None:
    judgement = _serving(None, _in_barrier(1), _in_barrier(2))
    assert told(judgement) == ("point-to-point-deadlock", "likely", "hung")
    assert blamed(judgement) == []
    assert "receive from any rank (train.py:11), and no rank is left that would send" in judgement.verdict.summary


def test_a_rank_that_may_yet_send_keeps_it_open() -> None:
    works = rank(2, IN_CODE, issued=4, completed=4, world_size=3)
    assert told(_serving(None, _in_barrier(1), works))[0] != "point-to-point-deadlock"


def test_a_collective_that_one_stage_of_a_pipeline_makes_alone() -> None:
    """GIVEN ranks that only send and receive WHEN the last one calls a collective THEN it is no circle of messages."""
    first: Program = [Draw(), Peer("send", 1, line=30), Peer("recv", 1, line=31)]
    last: Program = [Draw(), Peer("recv", 0, line=40), Peer("send", 0, line=41)]
    verdict = diagnose(_in_loops(world(first * 5, [*last * 4, Call(line=55), *last]))).verdict
    assert verdict.cause == "rank-zero-only-collective", verdict.summary
    assert [culprit.rank for culprit in verdict.culprits] == [1]
    assert "which the other ranks have not called; rank 0 waits elsewhere (train.py:30)" in verdict.summary


def _in_loops(snapshot: Snapshot) -> Snapshot:
    """Every rank stands in a loop, and its board has all that Python code called."""

    def inside(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, in_loop=True) for stack in entry.stacks)
        return with_ring(replace(entry, stacks=stacks))

    return replace(snapshot, ranks=tuple(map(inside, snapshot.ranks)))


def _dealt_anew(*kept: int) -> Judgement:
    """Four ranks in a ring exchange with both neighbours; then 1 and 2 swap places, of which `kept` have not heard."""

    def exchange(rank: int, order: tuple[int, ...]) -> Program:
        at = order.index(rank)
        left, right = order[at - 1], order[(at + 1) % 4]
        first, second = (left, right) if at % 2 else (right, left)
        made: Program = []
        for peer in (first, second):
            both = [Peer("send", peer, line=20), Peer("recv", peer, line=21)]
            made += both if order.index(peer) % 2 == 0 else both[::-1]
        return made

    def program(rank: int) -> Program:
        return [
            *exchange(rank, (0, 1, 2, 3)) * 8,
            *exchange(rank, (0, 1, 2, 3) if rank in kept else (0, 2, 1, 3)),
            ROUND,
        ]

    snapshot = world(*map(program, range(4)))
    return diagnose(replace(snapshot, ranks=tuple(map(with_ring, snapshot.ranks))))


def test_the_rank_that_kept_its_partners_where_all_others_have_new_ones() -> None:
    judgement = _dealt_anew(3)
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [3]
    told = "ranks 0-2 lately exchanged messages with ranks that are new to them; rank 3 alone has not"
    assert told in judgement.verdict.evidence


HEAD = GroupHead("0", (0, 1, 2))


def _stage(entry: RankEvidence, peer: int, made: int, counted: int | None) -> RankEvidence:
    """It made so many messages with `peer`; one that has destroyed its groups counts none any more."""
    assert entry.reading is not None
    call = Collective("0", made, "recv", peer=peer, frames=(Frame(SCRIPT, 46, "step"), Frame(SCRIPT, 60, "main")))
    heads = () if counted is None else (replace(HEAD, sent=counted, peers=(PeerCount(peer, sent=counted),)),)
    return replace(entry, reading=replace(entry.reading, calls=(call,), heads=heads))


@pytest.mark.parametrize(
    ("step", "made", "cause"),
    [
        (30, 238, "point-to-point-deadlock"),
        (29, 238, "early-exit"),  # it may have left the loop in that step
        (30, 242, "undetermined"),  # it did not wait until its messages were received
    ],
)
def test_a_stage_that_ended_ahead_of_the_others_has_left_out_messages_and_is_not_early(
    step: int, made: int, cause: str
) -> None:
    """GIVEN a pipeline WHEN its last stage goes past a batch THEN it is done when the others lack its messages."""
    down = [
        failed(number, (f"{TORCH}/distributed/pipelining/schedules.py", 683, "_wait_batch_p2p")) for number in (0, 1)
    ]
    down = [replace(each, reading=replace(each.reading, progress=Progress(step=29))) for each in down if each.reading]
    ranks = [_stage(down[0], 1, 243, 243), _stage(down[1], 2, 484, 242), _stage(ended(2, step=step), 1, made, None)]
    ways = (Bypass(Frame(SCRIPT, 44, "step"), "if mask.sum() == 0: return", asks="check"),)
    sites = (CallSite((Frame(SCRIPT, 46, "step"), Frame(SCRIPT, 60, "main")), ways),)
    judgement = diagnose(replace(snapshot(*ranks, world_size=3), call_sites=sites))
    assert judgement.verdict.cause == cause, judgement.verdict.summary
    if cause == "point-to-point-deadlock":
        assert blamed(judgement) == [(2, 102, "rank")]
        assert "probably at train.py:44 (`if mask.sum() == 0: return`)" in judgement.verdict.summary


def with_counts(found: Snapshot) -> Snapshot:
    """The same with heads that count all messages by peer, as boards do."""
    ledger = Case(found).ledger

    def counted(entry: RankEvidence) -> RankEvidence:
        made = Counter((call.peer or 0, call.op) for call in ledger.messages(entry.rank))
        peers = tuple(PeerCount(peer, made[peer, "send"], made[peer, "recv"]) for peer in sorted({p for p, _ in made}))
        sent, received = sum(each.sent for each in peers), sum(each.received for each in peers)
        assert entry.reading is not None
        heads = tuple(replace(head, peers=peers, sent=sent, received=received) for head in entry.reading.heads)
        collectives = replace(entry.collectives, heads=heads)
        return replace(entry, reading=replace(entry.reading, heads=heads), collectives=collectives)

    return replace(found, ranks=tuple(map(counted, found.ranks)))


def _pipeline(*micro_batches: int) -> list[Program]:
    """Three stages that each take so many activations, pass them on, and wait for or send the first gradient."""
    first, middle, last = micro_batches
    passes: Program = [Peer("send", 1) for _ in range(first)]
    between: Program = [each for _ in range(middle) for each in (Peer("recv", 0), Peer("send", 2))]
    takes: Program = [Peer("recv", 1) for _ in range(last)]
    return [[*passes, Peer("recv", 1)], [*between, Peer("recv", 2)], [*takes, Peer("send", 1)]]


@pytest.mark.parametrize(("micro_batches", "odd"), [((4, 8, 4), [1]), ((3, 4, 4), [0, 1]), ((4, 5, 4), [1])])
def test_the_stage_whose_count_of_messages_no_other_ranks_share_is_named(
    micro_batches: tuple[int, ...], odd: list[int]
) -> None:
    """Where the first stage made too few, the others have come no further either: nothing tells it from the second."""
    judgement = diagnose(with_counts(world(*_pipeline(*micro_batches))))
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert [who.rank for who in judgement.verdict.culprits] == odd
    if odd == [1]:
        assert any("rank 1 counts 5 messages with rank 0, as no other" in each for each in judgement.verdict.evidence)
        assert judgement.verdict.fix.startswith("compute the number of messages from the same values")


def _served(turns: int, *, without: int | None = None) -> Program:
    """Rank 0 takes what ranks 1 and 2 send in turns, and answers; in turn `without` it does not answer rank 1."""
    program: Program = []
    for turn in range(turns):
        for peer in (1, 2):
            program.append(Peer("recv", peer, line=49))
            if (turn, peer) != (without, 1):
                program.append(Peer("send", peer, line=54))
    return program


def _asking(turns: int) -> Program:
    return [Peer("send", 0, line=83), Peer("recv", 0, line=85)] * turns


def test_a_server_that_left_out_an_answer_is_named_with_what_led_past_it() -> None:
    ways = (
        Bypass(Frame(SCRIPT, 48, "main"), "if kind == BYE: continue", inner=True),
        Bypass(Frame(SCRIPT, 52, "main"), "if bad: continue", inner=True),
    )
    found = world(_served(12, without=9), _asking(12), _asking(12))
    verdict = diagnose(replace(found, call_sites=(CallSite((Frame(SCRIPT, 54, "main"),), ways),))).verdict
    assert (verdict.cause, [(each.rank, each.where) for each in verdict.culprits]) == (
        "point-to-point-deadlock",
        [(0, Frame(SCRIPT, 52, "main"))],
    )
    assert "Rank 0 took a request of rank 1 and went on without the send to it (train.py:54)" in verdict.summary
    assert "BYE" not in verdict.summary, "that condition lies ahead of the request"


@pytest.mark.parametrize("end", [Stall(kind="checkpoint"), Peer("recv", 3, line=60)])
def test_a_server_that_answered_late_has_left_out_no_answer(end: Action) -> None:
    """In one round it took both requests before it answered: that is long over, and both were served since."""
    both = [Peer(op, peer, line=line) for op, line in (("recv", 49), ("send", 54)) for peer in (1, 2)]
    found = world([*_served(5), *both, *_served(7), end], _asking(14), _asking(14), [Stall(kind="lock")])
    assert "took a request" not in diagnose(found).verdict.summary


def test_a_server_without_a_habit_of_answers_has_left_out_none() -> None:
    verdict = diagnose(world(_served(2, without=1), _asking(2), _asking(2))).verdict
    assert "took a request" not in verdict.summary
