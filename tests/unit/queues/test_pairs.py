"""Sends and receives that do not complete: a counterpart left out, a peer that is new, batches that are half done."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Certainty, Judgement, Status
from hangwatch.queues.pairs import stuck_pairs
from hangwatch.queues.stuck import Kind
from hangwatch.recorder import QueueReader
from tests.dump_programs import around, pipe, pipeline
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import WORLD as WORLD_GROUP
from tests.dump_world import Call, JobDumps, Step, Stop, Sync, every, mesh

WORLD = 4


def exchange(rank: int, without: int | None = None, line: int = 500) -> list[Step]:
    """Five rounds of a batch around the ring and an all_reduce; in the fourth, rank `without` sends nothing."""
    half = Call("batch", 430, group="ring", parts=around(rank, WORLD).parts[1:])
    rounds: list[Step] = []
    for turn in range(5):
        batch = half if rank == without and turn == 3 else around(rank, WORLD)
        rounds += [batch, Call("all_reduce", line, 4), Sync()]
    return rounds


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_left_a_send_out_of_its_batch_is_named(rank: int, timed: bool, tmp_path: Path) -> None:
    job = JobDumps({each: exchange(each, rank) for each in range(WORLD)}, {"ring": (0, 1, 2, 3)}, timed)
    found = verdict(job, tmp_path)
    behind = (rank + 1) % WORLD
    assert blamed(found) == [rank]
    gone_on = ("all_reduce 4 of the default group (train.py:500)", "recv of group 1 (ring) (train.py:430)")
    assert found.summary.startswith(tuple(f"Rank {rank} went on to {where} without" for where in gone_on))
    assert f"without the send to rank {behind}, which waits for it in a receive (train.py:430)" in found.summary
    assert "point-to-point-deadlock" in found.cause
    waits = f"rank {behind} waits for rank {rank} in recv"
    assert any(waits in text for text in found.evidence)
    assert not any("no rank" in text for text in found.evidence)


def test_ranks_that_wait_are_not_called_awaited_by_themselves(tmp_path: Path) -> None:
    job = JobDumps({each: exchange(each, 2) for each in range(WORLD)}, {"ring": (0, 1, 2, 3)}, timed=False)
    assert any("ranks 0-2 wait for rank 3 in all_reduce 4" in text for text in verdict(job, tmp_path).evidence)


def _entry(place: int, name: str, number: int, state: str, p2p: bool = True) -> dict[str, Any]:
    return {
        "record_id": place,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number if not p2p else 0,
        "p2p_seq_id": number if p2p else 0,
        "profiling_name": f"nccl:{name}",
        "state": state,
        "is_p2p": p2p,
        "time_created_ns": 1_760_000_000_000_000_000 + place,
    }


def test_what_the_peer_has_completed_is_not_waited_for() -> None:
    """Rank 1's batch is open for want of a send from rank 2; its own send has met the receive of rank 0."""
    reader = QueueReader()
    calls = {
        0: [("recv 0<-1", "completed")],
        1: [("send 1->0", "scheduled"), ("recv 1<-2", "scheduled"), ("coalesced", "scheduled")],
        2: [],
    }
    for rank, batch in calls.items():
        entries = [_entry(place, name, 1, state) for place, (name, state) in enumerate(batch)]
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
        reader.add(rank, {"version": "2.10", "pg_config": config, "entries": entries})
    waits = [(one.waiting, one.awaited) for one in stuck_pairs(reader.queues())]
    assert waits == [((1,), (2,))]


@pytest.mark.parametrize("timed", [False, True])
def test_what_the_peer_has_completed_is_known_by_number_where_older_calls_are_lost(timed: bool) -> None:
    reader = QueueReader()
    batches = {0: ["send 0->1", "recv 0<-1"], 1: ["send 1->0", "recv 1<-0"]}
    for rank, batch in batches.items():
        entries = [
            _entry(40 + 3 * turn + place, name, 70 + turn, "completed" if rank or turn < 3 else "scheduled")
            for turn in range(4)
            for place, name in enumerate([*batch, "coalesced"])
        ]
        entries.append(_entry(60, "all_reduce", 90, "started" if timed and rank else "scheduled", p2p=False))
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        reader.add(rank, {"version": "2.10", "pg_config": config, "entries": entries})
    assert not list(stuck_pairs(reader.queues()))


def test_batches_of_a_send_and_a_receive_fit_whatever_their_numbers() -> None:
    """A middle stage has batches with both neighbours, and so counts further than the others."""
    reader = QueueReader()
    for rank, (batch, number) in {0: (("send 0->1", "recv 0<-1"), 7), 1: (("send 1->0", "recv 1<-0"), 11)}.items():
        entries = [_entry(place, name, number, "scheduled") for place, name in enumerate([*batch, "coalesced"])]
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        reader.add(rank, {"version": "2.10", "pg_config": config, "entries": entries})
    assert {one.kind for one in stuck_pairs(reader.queues())} == {Kind.QUEUED}


def test_a_circle_of_pairs_that_cannot_be_counted_is_not_likely() -> None:
    """Of rings that have lost older calls, with numbers of their own: which send meets which receive is not known."""
    reader = QueueReader()
    batches = {0: ("send 0->1", 70, "recv 0<-1"), 1: ("recv 1<-0", 75, "send 1->0")}
    for rank, (name, number, other) in batches.items():
        entries = [_entry(40, name, number, "completed"), _entry(41, other, number + 1, "completed")]
        entries += [_entry(42, name, number + 2, "scheduled"), _entry(43, name, number + 3, "scheduled")]
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        reader.add(rank, {"version": "2.10", "pg_config": config, "entries": entries})
    found = list(stuck_pairs(reader.queues()))
    assert found
    assert not any(one.counted for one in found)


def stage(rank: int, wrong: int, *, batched: bool) -> list[Step]:
    """A stage of a pipeline of four, in which rank 1 sends the fourth microbatch to `wrong`."""
    found: list[Step] = []
    for turn in range(6):
        if rank > 0:
            found.append(_one(Call("recv", 400, 32, "pipe", peer=rank - 1), batched))
        if rank < WORLD - 1:
            peer = wrong if (rank, turn) == (1, 3) else rank + 1
            found.append(_one(Call("send", 410, 32, "pipe", peer=peer), batched))
    return [*found, Sync()]


def _one(call: Call, batched: bool) -> Call:
    return Call("batch", call.line, group=call.group, parts=(call,)) if batched else call


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_a_send_to_another_peer_than_ever_before_is_told(batched: bool, timed: bool, tmp_path: Path) -> None:
    programs = {rank: stage(rank, 3, batched=batched) for rank in range(WORLD)}
    found = verdict(JobDumps(programs, {"pipe": (0, 1, 2, 3)}, timed), tmp_path)
    assert blamed(found) == [1]
    assert found.certainty is Certainty.LIKELY
    assert "Rank 1 sends to rank 3" in found.summary
    assert "earlier calls were to rank 2; rank 3 has no receive for it, and rank 2 waits" in found.summary
    assert "train.py:410" in found.summary


def test_a_line_with_several_peers_has_no_usual_one(tmp_path: Path) -> None:
    """A loop over peers: that the last one is new to it says nothing."""
    sends: list[Step] = [Call("send", 410, 32, "pipe", peer=peer) for peer in (1, 2, 3)]
    programs: dict[int, list[Step]] = {0: [*sends, Sync()], 3: [Sync()]}
    for rank in (1, 2):
        programs[rank] = [Call("recv", 400, 32, "pipe", peer=0), Sync()]
    found = verdict(JobDumps(programs, {"pipe": (0, 1, 2, 3)}), tmp_path)
    assert blamed(found) == [3]
    assert "earlier calls" not in found.summary


def server(turn: tuple[int, ...], kind: str) -> JobDumps:
    """Rank 0 exchanges a message with each other one in turn, from one line; in the last round with those of `turn`."""
    own = [Call(kind, 410, 32, peer=peer) for peer in (1, 2, 3) * 4 + turn]
    other = "recv" if kind == "send" else "send"
    programs: dict[int, list[Step]] = {0: [*own, Sync()]}
    for rank in (1, 2, 3):
        programs[rank] = [*[Call(other, 400, 32, peer=0)] * 5, Sync()]
    return JobDumps(programs)


@pytest.mark.parametrize(("kind", "to"), [("send", "sends to"), ("recv", "receives from")])
def test_a_line_that_took_its_peers_in_turn_left_one_out(kind: str, to: str, tmp_path: Path) -> None:
    """The message to the wrong peer was received, as that peer's own; it waits with the next one."""
    found = verdict(server((1, 3, 3), kind), tmp_path)
    assert blamed(found) == [0]
    assert f"Rank 0 {to} rank 3 in the default group (train.py:410), where its earlier calls took" in found.summary
    assert "rank 2 was next" in found.summary
    assert "and rank 2 waits" in found.summary


def test_a_stage_that_stopped_is_named_and_not_the_one_before(tmp_path: Path) -> None:
    found = verdict(pipe({2: pipeline(2, 2)[:-1]}), tmp_path)
    assert blamed(found) == [2]


# ------------------------------------------------------------------------------------------ several groups


GROUPS: dict[str, tuple[int, ...]] = {"ema": (0, 1, 2, 3)}


def turn(*, without: bool = False, group: str = "ema") -> list[Step]:
    """One call of the world's group and one of another group, and then the host waits."""
    average: list[Step] = [] if without else [Call("all_reduce", 42, 32, group)]
    return [*average, Call("all_reduce", 40, 64), Sync()]


def test_a_call_in_another_group_than_ever_before_is_told(tmp_path: Path) -> None:
    usual, other = turn() * 5, [*turn() * 3, *turn(group="world"), *turn()]
    found = verdict(JobDumps(every(4, usual, {2: other}), GROUPS), tmp_path)
    assert (blamed(found), found.certainty) == ([2], Certainty.LIKELY)
    assert (
        "Rank 2 called all_reduce 4 of the default group (train.py:42), where its earlier calls were in"
        in found.summary
    )
    assert "ranks 0-1 and 3 wait for it in all_reduce 4 of group 1 (ema)" in found.summary


def test_ranks_that_wait_there_in_another_call_are_told_with_theirs(tmp_path: Path) -> None:
    """Rank 1 gathers among all instead of its half; all others have enqueued the next call of all."""

    def rounds(rank: int, group: str = "") -> list[Step]:
        return [Call("all_gather", 88, 32, group or f"tp{rank // 4}", out=128), Call("all_reduce", 99, 1), Sync()]

    programs = {rank: rounds(rank) * 5 for rank in range(8)}
    programs[1] = [*rounds(1) * 3, *rounds(1, "world"), *rounds(1)]
    found = verdict(JobDumps(programs, mesh(2, 4)), tmp_path)
    assert blamed(found) == [1]
    assert [(edge.rank, edge.where.line) for edge in found.waits if edge.where] == [(0, 88), (0, 99)]


@pytest.mark.parametrize("waits", [True, False])
def test_a_call_in_another_group_is_told_where_hosts_run_ahead(waits: bool, tmp_path: Path) -> None:
    """Nobody waits for the rank in its usual group: the call of the next round stands in the place there."""
    end: list[Step] = [Sync()] if waits else []

    def rounds(group: str) -> list[Step]:
        return [Call("all_reduce", 42, 32, group), Call("all_reduce", 44, 512, "ema"), Call("all_reduce", 40, 64), *end]

    usual, other = rounds("ema") * 6, [*rounds("ema") * 3, *rounds("world"), *rounds("ema") * 2]
    found = verdict(JobDumps(every(4, usual, {2: other}), GROUPS), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("collective-mismatch", [2], Certainty.LIKELY)
    assert (
        "Rank 2 called all_reduce 4 of the default group (train.py:42), where its earlier calls were in"
        in found.summary
    )


def test_of_two_ranks_the_one_whose_line_never_was_in_that_group_is_told(tmp_path: Path) -> None:
    """A layer's call goes to the group of the replicas, which are two: their own call stands against it there."""

    def rank_turn(rank: int, group: str = "") -> list[Step]:
        layer = [Call("all_reduce", 31, 512, group or f"tp{rank // 4}"), Call("all_reduce", 31, 512, f"tp{rank // 4}")]
        return [*layer, Call("all_reduce", 150, 9000, f"dp{rank % 4}"), Call("all_reduce", 99, 1)]

    programs = {rank: rank_turn(rank) * 6 for rank in range(8)}
    programs[5] = [*rank_turn(5) * 4, *rank_turn(5, "dp1"), *rank_turn(5)]
    found = verdict(JobDumps(programs, mesh(2, 4)), tmp_path)
    assert (found.cause, blamed(found)) == ("collective-mismatch", [5])
    assert "Rank 5 called all_reduce 5 of group 4 (dp1) (train.py:31), where its earlier calls were in" in found.summary


def test_a_first_call_that_all_made_in_another_group_is_no_stray_one(tmp_path: Path) -> None:
    """GIVEN a round that all made in the world's group, and then rounds in another one, in one of which rank 2 leaves
    a call out THEN that is told."""

    def rounds(group: str, *, without: bool = False) -> list[Step]:
        left_out: list[Step] = [] if without else [Call("all_reduce", 44, 512, "ema")]
        return [Call("all_reduce", 42, 32, group), *left_out, Call("all_reduce", 40, 64)]

    usual = [*rounds("world"), *rounds("ema") * 9]
    other = [*rounds("world"), *rounds("ema") * 4, *rounds("ema", without=True), *rounds("ema") * 4]
    found = verdict(JobDumps(every(4, usual, {2: other}), GROUPS), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [2])


def test_the_one_rank_that_keeps_a_group_which_the_others_have_left_is_told(tmp_path: Path) -> None:
    """Most of those that call there have gone over to another group, of which it is a member too."""
    groups: dict[str, tuple[int, ...]] = {"before": (0, 1, 2, 3), "after": (0, 1, 2, 3)}
    usual = [*turn(group="before") * 3, *turn(group="after")]
    found = verdict(JobDumps(every(4, usual, {2: turn(group="before") * 4}), groups), tmp_path)
    assert (found.cause, blamed(found)) == ("collective-mismatch", [2])
    assert "it has kept a group that the others have left" in found.summary


def test_a_line_that_uses_several_groups_has_no_usual_one(tmp_path: Path) -> None:
    """The same line calls in both groups in every round: that one rank stands in the other one is its order."""
    both: list[Step] = [Call("all_reduce", 42, 32, "ema"), Call("all_reduce", 42, 32), Sync()]
    other: list[Step] = [Call("all_reduce", 42, 32), Call("all_reduce", 42, 32, "ema"), Sync()]
    found = verdict(JobDumps(every(4, both * 5, {2: [*both * 3, *other, *both]}), GROUPS), tmp_path)
    assert "earlier calls were in" not in found.summary


def test_a_rank_that_went_on_without_a_call_of_another_group_is_told(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, turn() * 5, {1: [*turn() * 3, *turn(without=True), *turn()]}), GROUPS), tmp_path)
    assert blamed(found) == [1]
    assert found.certainty is not Certainty.PROVEN
    assert found.summary.startswith(
        "Rank 1 went on to all_reduce 4 of the default group (train.py:40) without all_reduce 4"
    )
    assert [each.cause for each in found.alternatives] == ["skipped-collective"]


def test_the_line_of_a_send_that_was_left_out_is_that_of_the_sends_before(tmp_path: Path) -> None:
    """And not that of the receive in which its rank waits now."""

    def taught(leaves_out: int = -1) -> list[Step]:
        found: list[Step] = []
        for each in range(9):
            found += [] if each == leaves_out else [Call("send", 30, 64, peer=1)]
            found += [Call("recv", 35, 1, peer=1), Sync()]
        return found

    learns: list[Step] = [Call("recv", 44, 64, peer=0), Call("send", 55, 1, peer=0), Sync()]
    found = verdict(JobDumps({0: taught(6), 1: learns * 9}, timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("point-to-point-deadlock", [0])
    assert [each.where.line for each in found.culprits if each.where] == [30]


# ------------------------------------------------------------------------------------------ counts between collectives


def rounds(rank: int, without: tuple[str, int] = ("", -1), group: str = WORLD_GROUP, last: int = 3) -> list[Step]:
    """Four rounds of a pipeline of two microbatches, each ended by an all_reduce that the hosts wait for."""
    found: list[Step] = []
    for turn in range(4):
        for batch in range(2):
            if rank > 0 and without != ("recv", 2 * turn + batch):
                found.append(Call("recv", 400, 32, group, peer=rank - 1))
            if rank < last and without != ("send", 2 * turn + batch):
                found.append(Call("send", 410, 32, group, peer=rank + 1))
        found += [Call("all_reduce", 420, 4), Sync()]
    return found


@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("group", [WORLD_GROUP, "pipe"])
@pytest.mark.parametrize(("rank", "kind", "peer"), [(1, "send", 2), (2, "recv", 1), (0, "send", 1)])
def test_the_end_of_a_pair_that_left_a_call_out_is_told_by_the_other_pairs(
    rank: int, kind: str, peer: int, group: str, frames: bool, tmp_path: Path
) -> None:
    programs = {each: rounds(each, (kind, 5) if each == rank else ("", -1), group) for each in range(WORLD)}
    groups: dict[str, tuple[int, ...]] = {} if group == WORLD_GROUP else {group: (0, 1, 2, 3)}
    found = verdict(JobDumps(programs, groups, timed=False, frames=frames), tmp_path)
    assert (found.cause, blamed(found)) == ("point-to-point-deadlock", [rank])
    assert found.certainty is Certainty.LIKELY
    word, to = ("send", "to") if kind == "send" else ("receive", "from")
    counted = f"Rank {rank} left out 1 {word} {to} rank {peer}: between collectives 2 and 3 of the default group"
    gone_on = f"without the {word} {to} rank {peer}, which waits for it"
    assert counted in found.summary or gone_on in found.summary


def test_stages_that_always_send_other_numbers_are_no_fault(tmp_path: Path) -> None:
    """The last stage gets a second message in each round; a rank that stops later is named, and not that pair."""
    more = {2: [Call("send", 411, 8, peer=3)], 3: [Call("recv", 401, 8, peer=2)]}
    programs = {rank: [*more.get(rank, []), *rounds(rank)] * 2 for rank in range(WORLD)}
    programs[1] = [*programs[1][:-7], Stop()]
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert blamed(found) == [1]
    assert "left out" not in found.summary


def test_the_first_stage_of_a_pipeline_is_not_astray_for_an_order_of_its_own(tmp_path: Path) -> None:
    """Two stages in the middle receive before they send to each other; the ends call in an order that no other has."""
    swap = {1: [("send", 2), ("recv", 2)], 2: [("recv", 1), ("send", 1)]}
    turned = {1: swap[1][::-1], 2: swap[2]}
    programs = {
        rank: [
            step
            for turn in range(5)
            for step in (
                *rounds(rank)[: 2 * (2 if 0 < rank < 3 else 1)],
                *(Call(op, 430, 8, peer=peer) for op, peer in (turned if turn == 4 else swap).get(rank, [])),
                *rounds(rank)[-2:],
            )
        ]
        for rank in range(WORLD)
    }
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert found.cause == "point-to-point-deadlock"
    assert set(blamed(found)) <= {1, 2}


# ------------------------------------------------------------------------------------------ hosts that ran ahead


@pytest.mark.parametrize("timed", [False, True])
def test_calls_that_hosts_enqueued_behind_the_messages_are_no_round_without_messages(
    timed: bool, tmp_path: Path
) -> None:
    """Three batches around the ring in each round; in the fourth one rank leaves out a whole batch."""
    behind: list[Step] = [Call("all_reduce", 500, 4), Call("all_reduce", 501, 8), Call("all_reduce", 502, 2), Sync()]
    programs = {
        rank: [
            step
            for turn in range(5)
            for step in (*[around(rank, WORLD)] * (2 if (rank, turn) == (3, 3) else 3), *behind)
        ]
        for rank in range(WORLD)
    }
    found = verdict(JobDumps(programs, {"ring": (0, 1, 2, 3)}, timed), tmp_path)
    assert (found.cause, blamed(found)) == ("point-to-point-deadlock", [3])
    assert "Rank 3 left out 1" in found.summary


def test_an_order_of_calls_behind_the_circle_is_no_reason_for_it(tmp_path: Path) -> None:
    """Both send before they receive, from the first round on; rank 0 has enqueued later calls in another order."""
    pair: list[Step] = [Call("send", 410, 32, peer=1), Call("recv", 400, 32, peer=1)]
    other: list[Step] = [Call("send", 410, 32, peer=0), Call("recv", 400, 32, peer=0)]
    start: list[Step] = [Call("all_reduce", 420, 4), Sync()]
    programs = {0: [*start, *pair, *pair[::-1], Sync()], 1: [*start, *other, *other, Sync()]}
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert found.cause == "point-to-point-deadlock"
    assert blamed(found) == [0, 1]


def test_the_ranks_of_a_whole_stage_are_named_where_none_of_its_replicas_comes(tmp_path: Path) -> None:
    """Two pipelines of two stages: in the third round neither second stage receives any more."""

    def stage(first: bool, group: str, peer: int) -> list[Step]:
        call = Call("send", 410, 32, group, peer=peer) if first else Call("recv", 400, 32, group, peer=peer)
        return [call, Sync()] * (3 if first else 2)

    groups: dict[str, tuple[int, ...]] = {"left": (0, 2), "right": (1, 3)}
    start: list[Step] = [Call("all_reduce", 500, 4), Sync()]
    programs = {rank: [*start, *stage(True, group, rank + 2)] for rank, group in ((0, "left"), (1, "right"))}
    programs |= {rank: [*start, *stage(False, group, rank - 2), Stop()] for rank, group in ((2, "left"), (3, "right"))}
    found = verdict(JobDumps(programs, groups), tmp_path)
    assert blamed(found) == [2, 3]
    assert "So it is with rank 3 in other groups" in found.summary


def _of_other_moments(folder: Path, *, older: bool) -> Judgement:
    """Rank 0 of a pipeline sends no more; the dump of rank 1 lacks its last sends, which rank 2 received."""
    job = pipe({0: [*pipeline(0, 6), Stop()], **{rank: pipeline(rank, 8) for rank in (1, 2, 3)}})
    job.written_after_s = None
    job.write(folder)
    document = job.document(1)
    entries = [each for each in document["entries"] if each["state"] == "completed"]
    if older:
        entries = entries[:-4]
    (folder / "nccl_trace_rank_1").write_bytes(pickle.dumps({**document, "entries": entries}, protocol=2))
    found = evidence_files.sort_out([folder]).assessment.judgement
    assert found is not None
    return found


def test_a_rank_whose_sends_others_received_without_its_record_went_on(tmp_path: Path) -> None:
    """As in a healthy pipeline, whose dumps are of different moments and have lost their dates."""
    found = _of_other_moments(tmp_path, older=True)
    assert (found.status, found.verdict.culprits) == (Status.WAITING, ())
    assert "that of rank 1 ends before sends that other ranks received from it" in found.verdict.summary


def test_a_rank_that_sent_all_that_others_received_may_be_to_blame(tmp_path: Path) -> None:
    found = _of_other_moments(tmp_path, older=False)
    assert (found.status, blamed(found.verdict)) == (Status.HUNG, [1])


def test_the_end_of_a_message_whose_size_is_new_is_named_where_its_peer_counts_its_calls_otherwise(
    tmp_path: Path,
) -> None:
    """Each rank numbers its own sends and receives: rank 1, between two others, has made twice as many as rank 2."""
    programs: dict[int, list[Step]] = {rank: pipeline(rank, 5, last=2) for rank in range(3)}
    last = max(place for place, step in enumerate(programs[2]) if isinstance(step, Call))
    programs[2][last] = Call("recv", 400, 16, "pipe", peer=1)
    found = verdict(JobDumps(programs, {"pipe": (0, 1, 2)}), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("collective-mismatch", Certainty.LIKELY, [2])


def test_a_send_and_a_receive_wait_each_in_a_call_of_their_own(tmp_path: Path) -> None:
    """Rank 3 takes rank 1 for its peer; it is not said to stand in the send in which rank 2 waits for it."""
    programs: dict[int, list[Step]] = {rank: pipeline(rank, 5) for rank in range(4)}
    programs[3] = [*pipeline(3, 3)[:-1], Call("recv", 400, 32, "pipe", peer=1), *pipeline(3, 1)]
    found = verdict(JobDumps(programs, {"pipe": (0, 1, 2, 3)}, timed=False), tmp_path)
    assert blamed(found) == [3]
    waits = {each.rank: each for each in found.waits}
    assert (waits[2].what.split()[0], waits[2].awaited) == ("send", (3,))
    assert (waits[3].what.split()[0], waits[3].awaited) == ("recv", (1,))
    assert all(not each.also for each in found.waits)
