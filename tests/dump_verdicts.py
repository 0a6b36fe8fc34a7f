"""What hangwatch says of flight-recorder dumps, read from a folder as `hangwatch analyze` reads them."""

from __future__ import annotations

from pathlib import Path

from hangwatch.commands import evidence_files
from hangwatch.model import Verdict
from tests.dump_world import JobDumps


def verdict_on(folder: Path) -> Verdict:
    """The verdict on the dumps that lie in a folder."""
    found = evidence_files.sort_out([folder]).assessment.judgement
    assert found is not None
    return found.verdict


def verdict(job: JobDumps, folder: Path, *, as_json: bool = False) -> Verdict:
    """The verdict on the dumps that a job leaves in a folder."""
    job.write(folder, as_json=as_json)
    return verdict_on(folder)


def blamed(found: Verdict) -> list[int | None]:
    """The ranks at fault, in order."""
    return sorted((each.rank for each in found.culprits), key=lambda rank: -1 if rank is None else rank)
