from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from hangwatch.judge import diagnose
from hangwatch.model import Collectives, Excerpt, GroupHead, NodeCapture, RankEvidence, Snapshot, Status
from hangwatch.wire import codec
from hangwatch.wire.clocks import shifted
from hangwatch_dashboard.clocks import ClockEstimate
from hangwatch_dashboard.judge import Case, judge, judge_apart, packed
from hangwatch_dashboard.merge import Interner, Part, merged
from hangwatch_dashboard.store.rows import PartRow
from hangwatch_dashboard.store.text import pack
from hangwatch_dashboard.thin import thinned
from tests.examples import SCRIPT, lingering, uneven_steps, uneven_steps_judgement, uneven_steps_snapshot
from tests.nodes import FakeNode


def split(snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
    """The snapshot as two nodes would have taken it."""
    hosts = sorted({rank.host for rank in snapshot.ranks})
    halves = [
        dataclasses.replace(
            snapshot,
            ranks=tuple(rank for rank in snapshot.ranks if rank.host == host),
            nodes=tuple(node for node in snapshot.nodes if node.host == host),
            launchers=(),
        )
        for host in hosts
    ]
    return halves[0], halves[1]


def test_parts_become_the_whole_again() -> None:
    whole = dataclasses.replace(uneven_steps_snapshot(), launchers=())
    first, second = split(whole)
    rest = dataclasses.replace(whole, ranks=(), nodes=(), divergences=(), warnings=(), notes=(), last_progress_at=0.0)
    found = merged([Part("b", second), Part("a", first)], rest)
    assert found.ranks == whole.ranks
    assert {node.host: node for node in found.nodes} == {node.host: node for node in whole.nodes}
    assert found.divergences == whole.divergences
    assert found.last_progress_at == whole.last_progress_at


def test_the_line_of_code_comes_from_the_node_of_the_culprit() -> None:
    # GIVEN a job whose nodes have quoted the lines where their ranks stand, partly the same
    whole = uneven_steps_snapshot()
    waits, ends = (Excerpt(SCRIPT, line, line, (f"line {line}",)) for line in (71, 88))
    first, second = split(dataclasses.replace(whole, excerpts=()))
    parts = [
        Part("a", dataclasses.replace(first, excerpts=(waits,))),
        Part("b", dataclasses.replace(second, excerpts=(waits, ends))),
    ]
    # WHEN the job is judged as a whole
    snapshot = merged(parts, dataclasses.replace(whole, ranks=(), nodes=(), excerpts=()))
    # THEN everything stands there once, and the culprit's line in the verdict
    assert snapshot.excerpts == (waits, ends)
    assert [who.excerpt for who in diagnose(snapshot).verdict.culprits] == [ends]


def test_every_time_is_shifted_and_nothing_else() -> None:
    snapshot = uneven_steps_snapshot()
    moved = shifted(snapshot, 100.0)
    assert moved.taken_at == snapshot.taken_at - 100.0
    reading, before = moved.ranks[0].reading, snapshot.ranks[0].reading
    assert reading is not None
    assert before is not None
    assert reading.progress.at == before.progress.at - 100.0
    assert reading.steps[0].at == before.steps[0].at - 100.0
    assert reading.progress.batch == before.progress.batch
    back = shifted(moved, -100.0)
    assert codec.encode(back)["ranks"][0]["stacks"] == codec.encode(snapshot)["ranks"][0]["stacks"]


def test_the_members_of_groups_are_not_looked_through() -> None:
    """Each of 10,000 ranks lists 10,000 of them: a capture from clocks that are off would take minutes."""
    looked: list[int] = []

    class Members(tuple[int, ...]):
        def __iter__(self) -> Iterator[int]:
            looked.append(len(self))
            return super().__iter__()

    head = GroupHead("0", Members(range(10_000)), "default_pg", "nccl")
    rank = RankEvidence(0, "node-a", 1, collectives=Collectives((head,), ()))
    found = shifted(dataclasses.replace(uneven_steps_snapshot(), ranks=(rank,)), 5.0)
    assert found.ranks == (rank,)
    assert looked == []


def test_a_small_difference_is_left_alone() -> None:
    snapshot = uneven_steps_snapshot()
    assert shifted(snapshot, 0.01) is snapshot


def test_the_interner_changes_nothing_but_identity() -> None:
    snapshot = uneven_steps_snapshot(8, 3, 4)
    twin = codec.loads(Snapshot, codec.dumps(snapshot))
    found = Interner().snapshot(twin)
    assert found == snapshot
    assert found.ranks[0].stacks[0].frames is found.ranks[1].stacks[0].frames


@given(st.floats(-1000, 1000), st.lists(st.floats(0.0, 0.5), min_size=1, max_size=80))
def test_the_clock_is_off_by_the_shortest_way_at_most(offset: float, ways: list[float]) -> None:
    clock = ClockEstimate()
    for second, way in enumerate(ways):
        clock.update(second + offset, second + way)
    assert abs(clock.offset - (offset - min(ways[-64:]))) < 1e-6


def case() -> Case:
    node = FakeNode()
    rows = [
        PartRow("c", f"n{index}", 0.0, 0.0, pack(codec.encode(node.capture(part, "c"))))
        for index, part in enumerate(split(uneven_steps_snapshot()))
    ]
    rest = dataclasses.replace(uneven_steps_snapshot(), ranks=(), nodes=())
    return Case("3f2a", 1795203003.1, tuple(rows), codec.dumps(NodeCapture(rest.job.id, "", "", rest)))


def test_a_case_is_judged_into_a_document() -> None:
    judged = judge(case(), lambda snapshot: uneven_steps_judgement())
    assert (judged.head.id, judged.head.status, judged.head.ranks) == ("3f2a", Status.HUNG, ())
    assert json.loads(zlib.decompress(judged.document))["schema"] == "hangwatch.incident/2"


def test_documents_are_the_same_as_reports() -> None:
    for found in (uneven_steps(), lingering(), uneven_steps(40, 3, 8)):
        assert json.loads(zlib.decompress(packed(found))) == json.loads(codec.dumps(found))
    odd = dataclasses.replace(uneven_steps(), id="\udc80")
    assert json.loads(zlib.decompress(packed(odd))) == json.loads(codec.dumps(odd))


def test_documents_of_large_jobs_keep_what_tells() -> None:
    found = uneven_steps(300, 299, 8)
    thin = thinned(found)
    assert len(thin.ranks) == 300
    assert thin.stack_tree == found.stack_tree
    assert thin.ranks[299] == found.ranks[299]
    full = [rank.rank for rank in thin.ranks if rank.stacks]
    assert 1 < len(full) <= 64
    assert f"{300 - len(full)} of 300 ranks" in thin.capture[-1].detail
    assert thin.ranks[150].progress == found.ranks[150].progress
    assert thinned(uneven_steps()) == uneven_steps()


def test_a_case_is_judged_alike_in_a_process_of_its_own() -> None:
    here, there = judge(case()), judge_apart(case())
    assert there == here
    assert here.judgement.verdict.cause == "uneven-steps"
