"""All ranks in destroy_process_group, with nothing outstanding: NCCL may wait for a graph that holds a communicator."""

from __future__ import annotations

from hangwatch.judge import diagnose
from hangwatch.report.incident import snapshot_of
from scripts import judged


def test_what_may_keep_it_is_told_as_advice_and_no_rank_is_named() -> None:
    """Seen on an H200: the program's author thought it healthy."""
    verdict = diagnose(snapshot_of([judged.incident("h200-destroy-with-a-graph")])).verdict
    assert (verdict.cause, verdict.culprits) == ("undetermined", ())
    assert "All ranks are in destroy_process_group, and every collective that they enqueued is complete." in (
        verdict.details
    )
    assert "CUDA graph" in verdict.fix
