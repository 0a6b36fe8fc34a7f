"""Programs of Lightning, transformers and Accelerate as users write them, under `hangwatch run`: `make frameworks`.

Cause, culprit and the user's line are asserted, the line by its mark in the program (`# the line: CASE`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.playing import Played, assert_not_hung, blamed, play_command

pytestmark = [pytest.mark.gallery, pytest.mark.timeout(500)]

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 15.0  # seconds; longer than any pause of these programs between two steps, but in `hook`
CASES = ("hook", "uneven", "guarded", "swallowed")


@dataclass(frozen=True)
class Framework:
    """A program, the packages that it needs, and whether it starts its ranks itself."""

    program: str
    packages: tuple[str, ...]
    starts_ranks: bool = False

    def command(self, case: str) -> list[str]:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        return [sys.executable, *([] if self.starts_ranks else torchrun), str(PROGRAMS / self.program), case]

    def lines(self, case: str) -> set[str]:
        """`file:line` of those that are marked for `case`."""
        text = (PROGRAMS / self.program).read_text()
        marked = (number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# the line: {case}"))
        return {f"{self.program}:{number}" for number in marked}


FRAMEWORKS = {
    "lightning": Framework("light.py", ("lightning",), starts_ranks=True),
    "transformers": Framework("hugging.py", ("transformers", "accelerate")),
    "accelerate": Framework("accelerated.py", ("accelerate",)),
}
CULPRITS = {  # of all frameworks but those named with it
    "hook": {"": 0},
    "uneven": {"": 1},
    "guarded": {"": 0},
    "swallowed": {"": 1, "transformers": 0},
}
CAUSES = {
    "hook": {"": "user-code-blocked"},
    "uneven": {"": "uneven-steps"},
    "guarded": {"": "rank-zero-only-collective"},
    # Trainer's user goes on with the next batch: what is missing from then on is a backward.
    "swallowed": {"": "exception-on-one-rank", "transformers": "skipped-collective"},
}


def play(name: str, case: str, folder: Path, patience: float) -> Played:
    framework = FRAMEWORKS[name]
    for package in framework.packages:
        pytest.importorskip(package, reason=f"{package} is not installed; `make frameworks` installs it")
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return play_command(framework.command(case), folder, seconds=300, stall_after=patience, environment=settings)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_hang(name: str, case: str, tmp_path: Path) -> None:
    played = play(name, case, tmp_path, PATIENCE)
    assert played.incident is not None, played.output
    verdict = played.incident.verdict
    assert verdict.cause == CAUSES[case].get(name, CAUSES[case][""]), played.verdict
    assert blamed(played.incident) == [CULPRITS[case].get(name, CULPRITS[case][""])], played.verdict
    told = played.verdict + json.dumps(
        [f"{Path(c.where.file).name}:{c.where.line}" for c in verdict.culprits if c.where]
    )
    assert any(line in told for line in FRAMEWORKS[name].lines(case)), told
    assert "__main__" not in told  # what stands around the trainer is in none of its turns


def test_a_validation_that_is_limited_on_one_rank(tmp_path: Path) -> None:
    played = play("lightning", "limited", tmp_path, PATIENCE)
    assert played.incident is not None, played.output
    verdict = played.incident.verdict
    assert (verdict.cause, blamed(played.incident)) == ("uneven-steps", [0]), played.verdict
    assert any("drew 3 of 4 batches there, and rank 1 4 so far" in said for said in verdict.evidence), played.verdict


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_healthy(name: str, tmp_path: Path) -> None:
    """Rank 0 pauses for 12 s after each epoch; Lightning and transformers run with hangwatch's own callback."""
    played = play(name, "healthy", tmp_path, 60.0)
    assert_not_hung(played)
    assert played.exit_code == 0, played.output
    assert played.output.count("trained\n") == 2, played.output
