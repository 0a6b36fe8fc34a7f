"""From evidence to an incident and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from hangwatch.judge import diagnose
from hangwatch.model import Incident, Judgement, RankEvidence, Snapshot, Status
from hangwatch.report.incident import evidence_of, incident, new_id, recovered, snapshot_of
from hangwatch.wire import codec
from tests import examples
from tests.strategies import record

thorough = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.untraced
@thorough
@given(rank=record(RankEvidence), judgement=record(Judgement))
def test_a_rank_report_gives_its_evidence_back(rank: RankEvidence, judgement: Judgement) -> None:
    snapshot = replace(examples.uneven_steps_snapshot(), ranks=(rank,))
    (report,) = incident(judgement, snapshot, id="1", opened_at=snapshot.taken_at).ranks
    assert evidence_of(report) == rank


@pytest.mark.untraced
@thorough
@given(snapshot=record(Snapshot), judgement=record(Judgement))
def test_an_incident_gives_its_snapshot_back_also_through_json(snapshot: Snapshot, judgement: Judgement) -> None:
    made = incident(judgement, snapshot, id="1", opened_at=snapshot.taken_at)
    read = codec.loads(Incident, codec.dumps(made))
    assert read == made
    assert snapshot_of([read]) == snapshot


def test_which_rank_waits_for_which_is_a_sentence() -> None:
    made = examples.uneven_steps()
    assert made.ranks[0].waiting_for == "rank 3, in all_reduce 501 of group 0 (train.py:71)"
    assert made.ranks[3].waiting_for == "ranks 0-2, in barrier 501 of group 0 (train.py:88)"


def test_the_example_is_what_the_diagnosis_says_of_its_evidence() -> None:
    found, told = diagnose(examples.uneven_steps_snapshot()), examples.uneven_steps_judgement()
    assert (found.status, found.stage) == (told.status, told.stage)
    assert (found.verdict.cause, found.verdict.certainty) == (told.verdict.cause, told.verdict.certainty)
    assert (found.verdict.culprits, found.verdict.victims) == (told.verdict.culprits, told.verdict.victims)


def test_the_time_to_detection_counts_from_the_last_progress() -> None:
    snapshot = examples.uneven_steps_snapshot()
    judgement = examples.uneven_steps_judgement()
    made = incident(judgement, snapshot, id="1", opened_at=examples.NOTICED_AT)
    assert made.detected_after_s == pytest.approx(3.1, abs=1e-4)
    # A job that never moved: from its start.
    still = replace(snapshot, last_progress_at=0.0)
    assert incident(judgement, still, id="1", opened_at=examples.HUNG_AT).detected_after_s == pytest.approx(412)


def test_recovery_keeps_the_verdict() -> None:
    made = examples.uneven_steps()
    closed = recovered(made, made.opened_at + 90)
    assert (closed.status, closed.closed_at) == (Status.RECOVERED, made.opened_at + 90)
    assert closed.verdict == made.verdict


def test_ids_differ() -> None:
    assert new_id() != new_id()


def _part(whole: Incident, host: str, taken_at: float = 100.0) -> Incident:
    """What the watchdog of one node would have written."""
    return replace(
        whole,
        id=host,
        taken_at=taken_at,
        ranks=tuple(rank for rank in whole.ranks if rank.host == host),
        nodes=tuple(node for node in whole.nodes if node.host == host),
        launchers=whole.launchers[: 1 if host == "node-a" else 2],
    )


def test_incidents_of_several_nodes_are_merged() -> None:
    # GIVEN the incident files of two nodes
    whole = examples.uneven_steps()
    parts = [_part(whole, "node-b", 101.0), _part(whole, "node-a")]
    # WHEN they are merged
    merged = snapshot_of(parts)
    # THEN nothing is missing and nothing is there twice
    expected = examples.uneven_steps_snapshot()
    assert merged.ranks == expected.ranks
    assert {node.host for node in merged.nodes} == {"node-a", "node-b"}
    assert sorted(launcher.facts.pid for launcher in merged.launchers) == [4700, 4701]
    assert (merged.divergences, merged.warnings, merged.notes) == (
        expected.divergences,
        expected.warnings,
        expected.notes,
    )
    assert merged.taken_at == 101.0


def test_of_two_incidents_of_one_node_the_newer_counts() -> None:
    whole = examples.uneven_steps()
    older, newer = _part(whole, "node-a", 50.0), _part(whole, "node-a", 100.0)
    older = replace(older, ranks=tuple(replace(rank, pid=1) for rank in older.ranks), launchers=())
    merged = snapshot_of([older, newer, _part(whole, "node-b")])
    assert [rank.pid for rank in merged.ranks] == [4708, 4709, 4710, 4711]


def test_one_node_that_two_files_tell_of_keeps_the_ranks_of_both() -> None:
    whole = examples.uneven_steps()
    node = replace(whole.nodes[0], host="shared")
    parts = [
        replace(_part(whole, "node-a", 2.0), nodes=(replace(node, ranks=(0, 1)),)),
        replace(_part(whole, "node-b", 1.0), nodes=(replace(node, ranks=(2, 3)),)),
    ]
    assert snapshot_of(parts).nodes == (replace(node, ranks=(0, 1, 2, 3)),)


def test_incidents_of_different_jobs_are_refused() -> None:
    whole = examples.uneven_steps()
    other = replace(whole, job=replace(whole.job, id="other"))
    with pytest.raises(ValueError, match="found 2 jobs"):
        snapshot_of([whole, other])
    with pytest.raises(ValueError, match="found 0 jobs"):
        snapshot_of([])
