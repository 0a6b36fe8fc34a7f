"""Calls that one rank alone makes: whether gloo aborts a rank for it or all stand, the verdict names that call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hangwatch.model import Incident
from tests.integration.playing import blamed, play_command

pytestmark = pytest.mark.usefixtures("unmeasured")

SCRIPTS = Path(__file__).parent / "scripts"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def line_of(script: str, mark: str) -> int:
    lines = (SCRIPTS / script).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def failed(script: str, folder: Path, *options: str) -> Incident:
    played = play_command([*TORCHRUN, *options, str(SCRIPTS / script)], folder, seconds=60.0)
    assert played.incident is not None, played.output
    return played.incident


def test_one_all_reduce_more_on_one_rank_is_no_mere_death(tmp_path: Path) -> None:
    incident = failed("extra_call.py", tmp_path)
    verdict = incident.verdict
    assert (verdict.cause, incident.status, blamed(incident)) == ("rank-zero-only-collective", "failed", [1])
    where = verdict.culprits[0].where
    assert where is not None
    assert where.line == line_of("extra_call.py", "the extra call")
    assert "in epoch 0, batch 12 (step 12)" in verdict.summary
    assert "find out why it died" not in verdict.fix
    # gloo's line is in the log that both ranks write to, and is read as the reason of the abort.
    assert any("aborted by gloo: a message of" in sentence for sentence in verdict.evidence)
    assert not [note for note in incident.capture if note.source == "collectives" and not note.ok]


def test_a_full_state_dict_on_rank_0_alone(tmp_path: Path) -> None:
    """torchrun keeps each rank's output in a file of its own, which is found after the rank's end."""
    incident = failed("fsdp_gather.py", tmp_path, "--redirects", "3", "--log-dir", str(tmp_path / "logs"))
    verdict = incident.verdict
    assert (verdict.cause, incident.status, blamed(incident)) == ("rank-zero-only-collective", "failed", [0])
    where = verdict.culprits[0].where
    assert where is not None
    assert where.line == line_of("fsdp_gather.py", "the gather")
    assert "get_model_state_dict" in verdict.summary
    assert any("aborted by gloo: a message of" in sentence for sentence in verdict.evidence)


@pytest.mark.gallery
def test_a_save_on_rank_0_alone_between_two_epochs_is_no_end_of_the_training(tmp_path: Path) -> None:
    script = str(SCRIPTS / "guarded_save.py")
    played = play_command([*TORCHRUN, script, str(tmp_path / "checkpoint")], tmp_path, seconds=60.0)
    assert played.incident is not None, played.output
    verdict = played.incident.verdict
    assert (verdict.hang, verdict.cause, verdict.certainty) == ("proven", "rank-zero-only-collective", "proven")
    assert blamed(played.incident) == [0]
    where = verdict.culprits[0].where
    assert where is not None
    assert where.line == line_of("guarded_save.py", "the save")
    # Each sentence of evidence is true of this program: 8 batches an epoch, one all_reduce a step, and the save's own.
    counted = "in epoch 0, batch 7 (step 7), rank 1 issued 1 and rank 0 issued 2 collectives in group 0"
    assert counted in verdict.evidence
    assert any("only under a condition on the rank" in sentence for sentence in verdict.evidence)
    assert "early-exit" not in {other.cause for other in verdict.alternatives if other.certainty == "likely"}


def test_steps_without_a_loader_are_named_as_the_loop_counts_them(tmp_path: Path) -> None:
    played = play_command([*TORCHRUN, str(SCRIPTS / "bare_steps.py")], tmp_path, seconds=60.0)
    assert played.incident is not None, played.output
    verdict = played.incident.verdict
    assert (verdict.cause, blamed(played.incident)) == ("skipped-collective", [1])
    assert verdict.step.step == 7
    assert " in step 7" in verdict.summary
    assert f"bare_steps.py:{line_of('bare_steps.py', 'the gradients')}" in played.verdict
