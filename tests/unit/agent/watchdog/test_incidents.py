from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Certainty, Culprit, Incident, Job, Judgement, RankEvidence, Snapshot, Stage, Status, Verdict
from hangwatch.report import files
from hangwatch.report.incident import incident
from hangwatch_agent.watchdog.incidents import Incidents

SNAPSHOT = Snapshot(Job("j", "j", 2), taken_at=20.0, ranks=(), last_progress_at=17.0)


def judgement(
    certainty: Certainty = Certainty.PROVEN,
    status: Status = Status.HUNG,
    cause: str = "uneven-steps",
    rank: int = 1,
    hang: Certainty | None = Certainty.PROVEN,
) -> Judgement:
    hang = hang if status is Status.HUNG else None
    verdict = Verdict(cause, certainty, f"Rank {rank} ran out of data.", culprits=(Culprit(rank),), hang=hang)
    return Judgement(status, Stage.STEP, verdict)


def incidents(folder: Path, told: list[Incident] | None = None) -> tuple[Incidents, io.StringIO]:
    stream = io.StringIO()
    told = [] if told is None else told
    return Incidents(str(folder), stream, told=told.append, clock=lambda: 20.0), stream


def test_a_hang_is_written_shown_and_told(tmp_path: Path) -> None:
    told: list[Incident] = []
    book, stream = incidents(tmp_path / "reports", told)
    book.judged(judgement(), SNAPSHOT)
    assert "HUNG, proven, 3.0 s after the last" in stream.getvalue()
    assert "Rank 1 ran out of data." in stream.getvalue()
    path = files.latest(tmp_path / "reports")
    assert path is not None
    assert files.read(path) == book.open == told[0]


def test_waiting_is_no_incident_and_leaves_no_file(tmp_path: Path) -> None:
    book, stream = incidents(tmp_path / "reports")
    book.judged(judgement(status=Status.WAITING), SNAPSHOT)
    assert book.open is None
    assert stream.getvalue() == ""
    assert not (tmp_path / "reports").exists()


def test_a_surer_verdict_replaces_the_first_in_the_same_file(tmp_path: Path) -> None:
    book, stream = incidents(tmp_path)
    book.judged(judgement(Certainty.UNDETERMINED, cause="undetermined"), SNAPSHOT)
    book.judged(judgement(Certainty.LIKELY), SNAPSHOT)
    book.judged(judgement(Certainty.UNDETERMINED, cause="undetermined"), SNAPSHOT)
    assert len(list(tmp_path.glob("incident-*.json"))) == 1
    assert book.open is not None
    assert book.open.verdict.certainty is Certainty.LIKELY
    assert stream.getvalue().count("hangwatch: HUNG") == 2


def test_a_proof_of_the_hang_sharpens_an_incident_and_lends_its_word_to_no_cause(tmp_path: Path) -> None:
    book, stream = incidents(tmp_path)
    book.judged(judgement(Certainty.LIKELY, hang=Certainty.LIKELY), SNAPSHOT)
    book.judged(judgement(Certainty.LIKELY, hang=Certainty.PROVEN), SNAPSHOT)
    assert "hangwatch: HUNG, proven, 3.0 s after the last progress; cause likely\n" in stream.getvalue()
    assert stream.getvalue().count("hangwatch: HUNG") == 2


def test_neither_answer_becomes_less_sure(tmp_path: Path) -> None:
    book, _ = incidents(tmp_path)
    book.judged(judgement(Certainty.LIKELY, hang=Certainty.LIKELY), SNAPSHOT)
    book.judged(judgement(Certainty.UNDETERMINED, cause="undetermined", hang=Certainty.PROVEN), SNAPSHOT)
    assert book.open is not None
    verdict = book.open.verdict
    assert (verdict.cause, verdict.certainty, verdict.hang) == ("uneven-steps", Certainty.LIKELY, Certainty.PROVEN)
    book.judged(judgement(Certainty.PROVEN, hang=Certainty.LIKELY), SNAPSHOT)
    verdict = book.open.verdict
    assert (verdict.certainty, verdict.hang) == (Certainty.PROVEN, Certainty.PROVEN)


@pytest.mark.parametrize("certainty", [Certainty.LIKELY, Certainty.UNDETERMINED])
def test_how_ranks_that_hung_were_ended_is_not_why_they_hung(tmp_path: Path, certainty: Certainty) -> None:
    book, _ = incidents(tmp_path)
    book.judged(judgement(certainty), SNAPSHOT)
    book.judged(judgement(Certainty.PROVEN, Status.FAILED, "rank-died"), SNAPSHOT)
    assert book.open is not None
    assert book.open.verdict.cause == ("uneven-steps" if certainty is Certainty.LIKELY else "rank-died")


def test_a_guess_at_who_died_first_does_not_replace_a_hang_of_unknown_cause(tmp_path: Path) -> None:
    """Its ranks are ended by SIGTERM, one after the other."""
    book, _ = incidents(tmp_path)
    book.judged(judgement(Certainty.UNDETERMINED), SNAPSHOT)
    book.judged(judgement(Certainty.LIKELY, Status.FAILED, "rank-died"), SNAPSHOT)
    assert book.open is not None
    assert book.open.status is Status.HUNG


def test_an_incident_whose_ranks_we_end_is_settled(tmp_path: Path) -> None:
    book, _ = incidents(tmp_path)
    book.judged(judgement(Certainty.UNDETERMINED, cause="undetermined"), SNAPSHOT)
    book.settle()
    book.judged(judgement(Certainty.PROVEN, Status.FAILED, "rank-died"), SNAPSHOT)
    assert book.open is not None
    assert book.open.verdict.cause == "undetermined"
    book.file_away()
    book.judged(judgement(), SNAPSHOT)
    assert book.open.verdict.cause == "uneven-steps"


def test_the_same_verdict_is_not_repeated(tmp_path: Path) -> None:
    book, stream = incidents(tmp_path)
    book.judged(judgement(), SNAPSHOT)
    book.judged(judgement(), SNAPSHOT)
    assert stream.getvalue().count("hangwatch: HUNG") == 1


def test_a_recovered_incident_is_rewritten(tmp_path: Path) -> None:
    book, stream = incidents(tmp_path)
    book.judged(judgement(), SNAPSHOT)
    book.moved_on()
    assert book.open is None
    (path,) = tmp_path.glob("incident-*.json")
    assert files.read(path).status is Status.RECOVERED
    assert "RECOVERED" in stream.getvalue()


def test_a_folder_that_cannot_be_written_is_named_once_and_the_verdict_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    book, stream = incidents(tmp_path / "file")
    book.judged(judgement(Certainty.LIKELY), SNAPSHOT)
    book.judged(judgement(Certainty.PROVEN), SNAPSHOT)
    assert "Rank 1 ran out of data." in stream.getvalue()
    complaints = [line for line in stream.getvalue().splitlines() if line.startswith("hangwatch: cannot")]
    assert len(complaints) == 1


def test_a_closed_terminal_is_no_trouble(tmp_path: Path) -> None:
    book, stream = incidents(tmp_path)
    stream.close()
    book.judged(judgement(), SNAPSHOT)
    assert files.latest(tmp_path) is not None


def others(certainty: Certainty = Certainty.LIKELY, ranks: int = 4) -> Incident:
    """An incident that another node has judged."""
    snapshot = replace(SNAPSHOT, ranks=tuple(RankEvidence(rank) for rank in range(ranks)))
    found = judgement(certainty)
    return incident(found, snapshot, id="b0b", opened_at=20.0)


def test_another_nodes_incident_is_pointed_to_and_not_written(tmp_path: Path) -> None:
    book, stream = incidents(tmp_path)
    assert book.adopt(others(), "reports/incident-1.html", "node-b-7\x1b")
    assert not book.adopt(others(), "reports/incident-1.html", "node-b-7"), "it is known"
    book.enrich(judgement(), SNAPSHOT)
    book.moved_on()
    assert book.open is None
    assert book.closed[0].status is Status.RECOVERED
    assert not list(tmp_path.iterdir())
    assert stream.getvalue().splitlines()[1].endswith("with the evidence of all nodes; report reports/incident-1.html")
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("Rank 1 ran out of data.") == 1


def test_what_a_node_sees_alone_does_not_replace_what_all_have_seen(tmp_path: Path) -> None:
    book, _ = incidents(tmp_path)
    book.adopt(others(), "incident-1.html", "node-b")
    book.judged(judgement(Certainty.PROVEN), SNAPSHOT)
    assert book.open == others()
    everybody = replace(SNAPSHOT, ranks=tuple(RankEvidence(rank) for rank in range(4)))
    book.judged(judgement(Certainty.PROVEN), everybody)
    assert book.open is not None
    assert (book.open.id, book.open.verdict.certainty) == ("b0b", Certainty.PROVEN)
    assert len(list(tmp_path.glob("incident-*.json"))) == 1


def test_a_surer_incident_of_all_takes_the_place_of_our_own(tmp_path: Path) -> None:
    book, _ = incidents(tmp_path)
    book.judged(judgement(Certainty.LIKELY), SNAPSHOT)
    assert not book.adopt(others(Certainty.LIKELY), "x", "node-b")
    assert book.adopt(others(Certainty.PROVEN), "x", "node-b")
    assert book.open == others(Certainty.PROVEN)
