"""`exit-destructor`: a destructor does not return."""

from __future__ import annotations

from hangwatch.model import Frame, Phase
from tests.unit.job import IN_DESTRUCTOR, SCRIPT, judge, leaving, main_thread, told
from tests.unit.rules.exit.exits import DONE
from tests.unit.rules.step.endings import DDP, failed


def test_a_destructor() -> None:
    judgement = judge(DONE, leaving(1, IN_DESTRUCTOR, Phase.FINALIZING))
    assert told(judgement) == ("exit-destructor", "proven", "lingering")
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 11, "close")


def test_a_destructor_of_what_main_leaves_behind() -> None:
    """It runs before Python's exit, as main() returns: the groups are destroyed then."""
    judgement = judge(DONE, leaving(1, (*IN_DESTRUCTOR, Frame(SCRIPT, 80, "<module>")), Phase.DESTROYED))
    assert told(judgement) == ("exit-destructor", "proven", "lingering")
    assert any("has destroyed its groups" in sentence for sentence in judgement.verdict.evidence)


def test_a_destructor_in_the_middle_of_the_program_is_no_end_of_it() -> None:
    """`del uploader` ahead of an export: what follows is not known."""
    under_way = (*IN_DESTRUCTOR, Frame(SCRIPT, 50, "main"), Frame(SCRIPT, 80, "<module>"))
    judgement = judge(DONE, leaving(1, under_way, Phase.DESTROYED))
    assert judgement.verdict.cause != "exit-destructor"


def test_a_native_destructor() -> None:
    judgement = judge(DONE, leaving(1, (), Phase.FINALIZING, threads=(main_thread(()),)))
    assert told(judgement)[:2] == ("exit-destructor", "likely")


def test_an_interpreter_that_is_being_taken_down_on_a_busy_machine() -> None:
    busy = leaving(1, (), Phase.FINALIZING, threads=(main_thread(()),), facts={"state": "R", "cpu_delta_s": 0.4})
    assert told(judge(DONE, busy))[2] == "waiting"


def test_a_rank_on_its_way_out_of_a_job_that_failed_is_given_its_time() -> None:
    lost = failed(0, (DDP, 1, "forward"))
    at_once = judge(lost, leaving(1, (), Phase.FINALIZING, threads=(main_thread(()),), still_s=1.0))
    assert (at_once.verdict.cause, at_once.status.value) != ("exit-destructor", "waiting")
    held = judge(lost, leaving(1, IN_DESTRUCTOR, Phase.FINALIZING))
    assert told(held) == ("exit-destructor", "proven", "lingering")
