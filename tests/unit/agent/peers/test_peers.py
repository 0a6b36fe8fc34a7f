"""Nodes that share a report directory. A node's nap is the other nodes' time: nothing here waits for a clock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import (
    Certainty,
    Incident,
    Job,
    Judgement,
    Launched,
    RankEvidence,
    Snapshot,
    Stage,
    Status,
    Verdict,
)
from hangwatch.report import files
from hangwatch.report.incident import incident, snapshot_of
from hangwatch.wire import codec
from hangwatch.wire.clocks import shifted
from hangwatch_agent.peers import peers
from hangwatch_agent.peers.peers import Opinion, Peers, Present, Ruling, elsewhere, missing, present
from hangwatch_agent.peers.shared_folder import Outcome, Question, SharedFolder
from tests.unit.agent.readings import rank_state
from tests.unit.big import training
from tests.unit.simulator import World

JOB = Job("torchrun-lab", "train.py", 4)


def whole() -> Snapshot:
    """Four ranks, of which the last has a batch less."""
    snapshot = World([training(40)] * 3 + [training(39)]).run().snapshot()
    return replace(snapshot, job=replace(JOB, world_size=4), divergences=())


def part_of(snapshot: Snapshot, ranks: Sequence[int]) -> Snapshot:
    return replace(snapshot, ranks=tuple(rank for rank in snapshot.ranks if rank.rank in ranks))


@dataclass
class Node:
    """A watchdog as its peers see it."""

    folder: Path
    name: str
    ranks: tuple[int, ...]
    said: list[str] = field(default_factory=list)
    ahead_s: float = 0.0

    def __post_init__(self) -> None:
        self.peers = Peers(str(self.folder), self.name, say=self.said.append, clock=lambda: time.time() + self.ahead_s)
        evidence = part_of(whole(), self.ranks)
        self.snapshot = shifted(evidence, -self.ahead_s)
        self.judgement = diagnose(self.snapshot)
        self.present = Present(
            {rank.rank: rank.pid for rank in evidence.ranks if rank.pid is not None}, still_s=3.0, age_s=900.0
        )

    def heeds(self) -> Question | Ruling | None:
        """One poll of this node's watchdog."""
        heard = self.peers.heard(JOB, self.present, still=True)
        if isinstance(heard, Question):
            self.peers.answer(heard, JOB, self.judgement, self.snapshot)
        return heard

    def asks(self, *others: Node, ending: bool = False, judgement: Judgement | None = None) -> Opinion | Ruling:
        def nap(seconds: float) -> bool:
            for other in others:
                other.heeds()
            return not others

        return self.peers.together(
            JOB, judgement or self.judgement, self.snapshot, self.present, ending=ending, nap=nap
        )

    def concludes(self, opinion: Opinion) -> Path:
        """Writes the incident, as `Incidents` does, and closes the question."""
        found = incident(opinion.judgement, opinion.snapshot, id="a1", opened_at=time.time())
        files.write(found, self.folder)
        self.peers.told(opinion.question, found)
        return self.folder / f"{files.name(found)}.json"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Node, Node]:
    return Node(tmp_path / "reports", "node-a", (0, 1)), Node(tmp_path / "reports", "node-b", (2, 3))


def opinion_of(found: Opinion | Ruling) -> Opinion:
    assert isinstance(found, Opinion)
    return found


def test_two_nodes_know_what_none_of_them_knows_alone(pair: tuple[Node, Node]) -> None:
    first, second = pair
    assert first.judgement.status is Status.WAITING
    opinion = opinion_of(first.asks(second))
    verdict = opinion.judgement.verdict
    assert (opinion.judgement.status, verdict.cause, verdict.certainty) == ("hung", "uneven-steps", "proven")
    assert [who.rank for who in verdict.culprits] == [3]
    assert [rank.rank for rank in opinion.snapshot.ranks] == [0, 1, 2, 3]
    assert opinion.question == 1
    assert (first.said, second.said) == ([], [])


def test_the_other_node_points_to_the_incident(pair: tuple[Node, Node]) -> None:
    first, second = pair
    path = first.concludes(opinion_of(first.asks(second)))
    ruling = second.heeds()
    assert isinstance(ruling, Ruling)
    assert (ruling.node, ruling.path) == ("node-a", str(path.with_suffix(".html")))
    assert ruling.incident == files.read(path)
    assert second.heeds() is None, "it is told once"
    again = second.asks()
    assert isinstance(again, Ruling), "a node that is about to report by itself points to that report too"
    assert not list(path.parent.glob("nodes-*/*part*"))


def test_who_was_asked_does_not_ask_at_the_same_time(pair: tuple[Node, Node]) -> None:
    """GIVEN a question of one node WHEN the other needs a verdict too THEN it waits for that of the first."""
    first, second = pair
    done: list[Path] = []

    def second_looks() -> None:
        assert first.peers.heard(JOB, first.present, still=True) is None, "it is its own question"
        found = second.peers.together(
            JOB, second.judgement, second.snapshot, second.present, ending=False, nap=lambda seconds: first_goes_on()
        )
        assert isinstance(found, Ruling)
        assert found.incident.verdict.certainty is Certainty.PROVEN

    def first_goes_on() -> bool:
        if not done:
            question = meeting.look()
            assert question is not None
            part = meeting.take(question.number, question.parts[0])
            assert part is not None
            merged = snapshot_of([_report(first), part])
            done.append(first.concludes(Opinion(diagnose(merged), merged, question.number)))
        return False

    meeting = first.peers._meet(JOB)
    assert meeting.look() is None
    assert meeting.ask(1)
    second_looks()
    assert len(list(first.folder.glob("incident-*.json"))) == 1


def test_two_that_ask_at_once_are_one(tmp_path: Path) -> None:
    first, second = (SharedFolder(tmp_path / "nodes-x", name, clock=time.time) for name in ("a", "b"))
    assert (first.look(), second.look()) == (None, None)
    assert (first.ask(1), second.ask(1)) == (True, False)
    assert (question := second.look()) is not None
    assert question.node == "a"


def test_no_node_answers(pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a directory that is not shared THEN the node judges alone, blames nobody, and says what is missing."""
    monkeypatch.setattr(peers, "ANSWER_S", 0.0)
    _, second = pair
    assert second.judgement.verdict.certainty is Certainty.PROVEN
    opinion = opinion_of(second.asks())
    verdict = opinion.judgement.verdict
    assert (opinion.judgement.status, verdict.cause, verdict.certainty) == ("hung", "uneven-steps", "likely")
    assert verdict.culprits == ()
    assert verdict.details[0] == "Nothing is known of ranks 0-1, which may be on other nodes, so no rank is blamed."
    assert opinion.snapshot.notes[-1].detail.startswith("nothing of ranks 0-1 came to ")
    assert not opinion.snapshot.notes[-1].ok


def test_what_is_proven_whatever_the_others_do_is_blamed(pair: tuple[Node, Node]) -> None:
    """A stopped process is stopped, whichever other nodes there are."""
    _, second = pair
    *others, last = second.snapshot.ranks
    assert last.process is not None
    stopped = replace(last, process=replace(last.process, state="T"))
    second.snapshot = replace(second.snapshot, ranks=(*others, stopped))
    opinion = opinion_of(second.asks(judgement=diagnose(second.snapshot)))
    verdict = opinion.judgement.verdict
    assert (verdict.cause, verdict.certainty, [who.rank for who in verdict.culprits]) == ("rank-frozen", "proven", [3])


def test_waiting_is_not_asked_about_again_at_once(pair: tuple[Node, Node]) -> None:
    """GIVEN a question that came to nothing THEN nodes whose silence is not much longer do not ask the same."""
    first, second = pair
    opinion = opinion_of(first.asks(second))
    first.peers.told(opinion.question, None)
    waiting = Judgement(Status.WAITING, Stage.STEP, Verdict("undetermined", Certainty.UNDETERMINED, "."))
    assert opinion_of(second.asks(judgement=waiting)).question == 0
    second.present = replace(second.present, still_s=600.0)
    for left in (first.folder / "nodes-torchrun-lab").iterdir():
        old(left, 400)
    assert opinion_of(second.asks(judgement=waiting)).question == 2


def old(path: Path, seconds: float) -> None:
    """Makes a file as old as that by the file server's clock."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_question_whose_asker_has_gone_is_taken_over(pair: tuple[Node, Node]) -> None:
    first, second = pair
    meeting = first.peers._meet(JOB)
    meeting.look()
    meeting.ask(1)
    old(meeting.path / "0001.question", 60)
    assert second.heeds() is None
    assert opinion_of(second.asks(first)).question == 2


def test_what_an_earlier_run_has_left_is_not_taken_for_an_answer(pair: tuple[Node, Node]) -> None:
    """GIVEN a verdict and evidence of yesterday's run of the job WHEN it hangs today THEN it is judged anew."""
    first, second = pair
    path = first.concludes(opinion_of(first.asks(second)))
    for left in (path.parent / "nodes-torchrun-lab").iterdir():
        old(left, 86_400)
    assert second.heeds() is None
    opinion = opinion_of(second.asks(first))
    assert opinion.question == 2
    assert [rank.rank for rank in opinion.snapshot.ranks] == [0, 1, 2, 3]


def test_a_verdict_from_before_the_restart_is_none_of_ours(pair: tuple[Node, Node]) -> None:
    first, second = pair
    path = first.concludes(opinion_of(first.asks(second)))
    outcome = path.parent / "nodes-torchrun-lab" / "0001.outcome.json"
    old(outcome, 4)
    second.present = Present({2: 77, 3: 78}, still_s=3.0, age_s=3.5)
    assert second.heeds() is None, "its processes are younger than the verdict"
    second.peers._ruled = (0, "")
    second.present = Present({2: 77, 3: 78}, still_s=3.0, age_s=900.0)
    assert second.heeds() is None, "and have other pids"


def test_evidence_of_a_node_whose_clock_is_wrong_is_put_right(tmp_path: Path) -> None:
    first = Node(tmp_path, "node-a", (0, 1))
    second = Node(tmp_path, "node-b", (2, 3), ahead_s=3600.0)
    opinion = opinion_of(first.asks(second))
    at = {rank.rank: rank.reading.progress.at for rank in opinion.snapshot.ranks if rank.reading is not None}
    true = {rank.rank: rank.reading.progress.at for rank in whole().ranks if rank.reading is not None}
    assert at[3] == pytest.approx(true[3], abs=30.0)
    assert at[0] == true[0]
    assert opinion.judgement.verdict.certainty is Certainty.PROVEN


def test_files_that_are_no_evidence_are_passed_over(pair: tuple[Node, Node]) -> None:
    first, second = pair
    question: list[bool] = []

    def others(seconds: float) -> bool:
        folder = first.folder / "nodes-torchrun-lab"
        if not question:
            question.append(True)
            (folder / "0001.part-liar-1.json").write_text("{}")
            (folder / "0001.part-cut-2.json").write_text('{"schema": "hangwatch.incident/2", "id": ')
            stranger = replace(files.parse(codec.dumps(_report(second)).encode(), "it"), job=replace(JOB, id="other"))
            (folder / "0001.part-other-3.json").write_text(codec.dumps(stranger))
            (folder / "notes.txt").write_text("mine")
        second.heeds()
        return False

    found = first.peers.together(JOB, first.judgement, first.snapshot, first.present, ending=False, nap=others)
    assert opinion_of(found).judgement.verdict.certainty is Certainty.PROVEN


def _report(node: Node) -> Incident:
    return node.peers._report(node.judgement, node.snapshot, JOB)


def test_a_directory_that_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    node = Node(tmp_path / "file", "node-b", (2, 3))
    for _ in range(3):
        opinion = opinion_of(node.asks())
        assert (opinion.question, opinion.judgement.verdict.culprits) == (0, ())
        assert node.heeds() is None
    assert len(node.said) == 1
    assert "without the other nodes" in node.said[0]


def test_a_file_system_that_hangs_does_not_hold_up_the_watch(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "FOLDER_S", 0.05)
    answers = threading.Event()
    monkeypatch.setattr(SharedFolder, "look", lambda self: answers.wait(60))
    _, second = pair
    assert opinion_of(second.asks()).question == 0
    assert "does not answer" in second.said[0]
    monkeypatch.setattr(SharedFolder, "look", lambda self: pytest.fail("it is left alone from then on"))
    assert second.heeds() is None
    answers.set()


def test_a_job_that_moves_leaves_no_trace(tmp_path: Path) -> None:
    node = Node(tmp_path / "reports", "node-a", (0, 1))
    assert node.peers.heard(JOB, node.present, still=False) is None
    node.peers.leave(tidy=True)
    assert not (tmp_path / "reports").exists()


def test_who_has_asked_for_nothing_tidies_up(pair: tuple[Node, Node]) -> None:
    first, second = pair
    first.peers.told(opinion_of(first.asks(second)).question, None)
    first.peers.leave(tidy=True)
    second.peers.leave(tidy=True)
    assert not first.folder.exists()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"LOCAL_WORLD_SIZE": "1"}, True),
        ({"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}, False),
        ({"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}, True),
        ({"MASTER_ADDR": "localhost"}, False),
        ({"MASTER_ADDR": "10.0.0.1"}, True),
    ],
)
def test_a_job_of_one_machine_asks_no_node(environment: dict[str, str], expected: bool) -> None:
    assert elsewhere((rank_state(0, environment=environment),), (), 2) is expected


def test_a_node_with_all_ranks_asks_no_other() -> None:
    assert not elsewhere((rank_state(0), rank_state(1)), (), 2)
    assert not elsewhere((rank_state(0),), (Launched(1, 7, 1.0),), 2)
    assert not elsewhere((), (), 2)
    assert not elsewhere((rank_state(0),), (), None)


def test_what_is_present() -> None:
    found = present((rank_state(0, moved_at=10.0), rank_state(1, moved_at=12.0)), 15.0)
    assert (found.pids, found.still_s, found.age_s) == ({0: 1000, 1: 1001}, 3.0, 14.0)


def test_missing_ranks_are_those_without_any_trace() -> None:
    snapshot = Snapshot(JOB, 1.0, (RankEvidence(2),), launched=(Launched(0, 7, 1.0),))
    assert missing(snapshot) == [1, 3]


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    meeting = SharedFolder(tmp_path / "nodes-x", "a/b c", clock=time.time)
    assert meeting.node == "a_b_c"
    meeting.look()
    meeting.ask(1)
    meeting.close(1, Outcome(meeting.node, "incident.json"))
    question = meeting.look()
    assert question is not None
    assert question.outcome == Outcome("a_b_c", "incident.json")
    assert oct((tmp_path / "nodes-x").stat().st_mode & 0o777) == "0o700"
    assert oct((tmp_path / "nodes-x" / "0001.question").stat().st_mode & 0o777) == "0o600"
