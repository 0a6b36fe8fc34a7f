"""The gallery on the stand-in for NCCL: queued calls, hosts that spin for their streams, a watchdog that aborts.

Nothing of it ran on a GPU. Four cases run always, all of them with `make gallery`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hangwatch.gallery
from hangwatch.gallery import Case, command
from hangwatch.gallery.cases.nccl import NCCL
from hangwatch.gallery.standin import library
from hangwatch.model import Certainty, Status
from tests import needs
from tests.integration.playing import PATIENT, STALL_AFTER, assert_not_hung, blamed, play, play_command
from tests.integration.test_gallery import cases

pytestmark = pytest.mark.usefixtures("unmeasured")

SCRIPTS = Path(hangwatch.gallery.__file__).parent
ALWAYS = {"nccl-uneven-steps", "nccl-mismatch-size"}
ALWAYS_HEALTHY = {"nccl-stuck-kernel"}  # a long kernel
PROVEN = {"nccl-group-order-read", "nccl-group-order-first"}  # a host waits for a call to which another has not come
SURE = {each.name for each in NCCL} - {"nccl-worker-on-socket", "nccl-stuck-kernel", "nccl-rank-frozen"}
"""Those in which the queues show why no device goes on: reported at once, however long a user is patient."""


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs.compiler()


@pytest.mark.parametrize("case", cases(ALWAYS, among=NCCL))
def test_the_verdict_names_cause_and_culprit(case: Case, tmp_path: Path) -> None:
    played = play(case, tmp_path, seconds=120, stall_after=PATIENT if case.name in SURE else STALL_AFTER)
    incident = played.incident
    assert incident is not None, played.output
    assert (incident.verdict.cause, incident.status) == (case.cause, case.status), played.verdict
    assert tuple(blamed(incident)) == case.culprits(case.culprit or 0, case.ranks), played.verdict
    assert {who.process for who in incident.verdict.culprits} == {case.process}
    places = {who.where.function for who in incident.verdict.culprits if who.where is not None}
    assert not case.where or case.where in places, places
    if case.name in SURE:
        assert incident.detected_after_s < PATIENT / 2  # 3 to 5 s on a machine that has nothing else to do
        if case.name in PROVEN:
            assert incident.verdict.hang is Certainty.PROVEN
            return
        assert any("every host waits for its device" in sentence for sentence in incident.verdict.argument)
        assert incident.verdict.hang is Certainty.LIKELY  # NCCL might complete such calls, with wrong numbers


@pytest.mark.parametrize("case", cases(ALWAYS_HEALTHY, among=NCCL))
def test_the_look_alike_is_not_called_hung(case: Case, tmp_path: Path) -> None:
    played = play(case, tmp_path, healthy=True, stall_after=PATIENT, seconds=120)
    assert_not_hung(played)
    assert played.exit_code == 0, played.output


@pytest.mark.gallery
@pytest.mark.parametrize("script", ["nccl_pipeline_send.py", "nccl_graph_replay.py"])
def test_a_long_kernel_before_sends_or_replays_is_not_called_hung(script: str, tmp_path: Path) -> None:
    """The record of a replayed graph stands still, and a stage of a pipeline waits for a peer: both are well."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    played = play_command([*words, str(SCRIPTS / script), "--healthy"], tmp_path, seconds=120, stall_after=PATIENT)
    assert_not_hung(played)
    assert played.exit_code == 0, played.output


@pytest.mark.parametrize(
    ("name", "timeout", "causes"),
    [
        ("nccl-uneven-steps", 1, {"uneven-steps"}),  # both ranks wait, and are aborted
        pytest.param(  # rank 1 is in its loader, and has never called what rank 0 is aborted for
            "nccl-worker-on-socket", 2, {"loader-worker-blocked", "undetermined"}, marks=pytest.mark.gallery
        ),
    ],
)
def test_a_victim_of_the_watchdogs_abort_is_no_culprit(
    name: str, timeout: int, causes: set[str], tmp_path: Path
) -> None:
    """The ranks that wait are aborted before any verdict on the hang."""
    case = next(each for each in NCCL if each.name == name)
    words = [*command(case), "--timeout", str(timeout)]
    played = play_command(words, tmp_path, seconds=120, stall_after=PATIENT)
    incident = played.incident
    assert incident is not None, played.output
    assert "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" in played.output
    assert incident.verdict.cause in causes, played.verdict
    assert blamed(incident) == [1], played.verdict
    assert incident.status is Status.FAILED, played.verdict


@pytest.mark.gallery
def test_the_rank_that_the_launcher_ended_after_an_abort_is_told_by_the_last_look(tmp_path: Path) -> None:
    """GIVEN a rank in its own code WHEN the rank that waits is aborted, and the launcher ends the first one for it."""
    script = Path(__file__).parent / "scripts" / "nccl_socket.py"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    played = play_command(words, tmp_path, seconds=120, stall_after=PATIENT)
    incident = played.incident
    assert incident is not None, played.output
    assert (incident.verdict.cause, blamed(incident)) == ("user-code-blocked", [1]), played.verdict
    assert incident.verdict.certainty is Certainty.LIKELY
    assert "rank 0 was aborted by torch's NCCL watchdog" in played.verdict
    assert [who.where.function for who in incident.verdict.culprits if who.where is not None] == ["ask"]


def test_a_library_that_a_rank_may_have_loaded_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "device.so"
    library._compile(path)
    first = path.stat().st_ino
    library._compile(path)
    assert path.stat().st_ino == first
