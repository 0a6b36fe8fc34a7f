"""A node that sends nothing any more while the others need its ranks: it has crashed, or hangs as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.nccl_view import answer
from hangwatch.facts.processes.process_end import ended_for
from hangwatch.facts.rank_end import Why
from hangwatch.model import Certainty, NodeFacts, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

LOST_S = 10.0  # seconds of silence, after which a node is taken for lost: one that only pauses is back by then
STEP_ENDED_S = 5.0  # seconds; the others may end the step in which it went, and batches come a second or two apart


def node_lost(case: Case) -> Finding | None:
    """A node is silent, and the ranks of all other nodes wait for its ranks, or have lost the connection to them."""
    silent = [node for node in case.snapshot.nodes if node.silent_s and node.ranks]
    lost = sorted({rank for node in silent for rank in node.ranks if rank in case.ranks})
    seen = [view for view in case if view.rank not in lost]
    failed = [view.rank for view in seen if _lost_a_peer(view)]
    if not lost or not seen or not all(view.rank in case.blocked or view.rank in failed for view in seen):
        return None
    if _went_on(case, silent, seen) or answer(case, lost):
        return None  # only its watchdog has ended, or its connection to us is lost
    waiting = [view.rank for view in seen if view.rank not in failed]
    silent_s = max(node.silent_s for node in silent)
    hosts = words.listed(sorted({node.host for node in silent}))
    effects = []
    if waiting:
        effects.append(f"{case.wait_words(waiting)} for {_them(lost)}{words.at(case.usual_place(waiting))}")
    if failed:
        had = words.verb(len(failed), "has", "have")
        effects.append(f"{case.name(failed)} {had} lost the connection to {_them(lost)}")
    return Finding(
        "node-lost",
        Certainty.LIKELY,
        f"Nothing has been heard of {hosts} for {words.duration(silent_s)}, where"
        f" {case.say(lost, 'runs', 'run')}; {words.listed(effects)}.",
        culprits=case.culprits(lost),
        victims=tuple(view.rank for view in seen),
        step=case.furthest_step(waiting or failed),
        evidence=(
            *(_last_word(case, node) for node in silent[: words.SHOWN]),
            *(f"rank {rank} failed with {words.error(case.ranks[rank].exception)}" for rank in failed[: words.SHOWN]),
        ),
        details=("Its watchdog and its ranks went together: ranks that only lose their watchdog go on.",),
        status=Status.FAILED if failed else Status.HUNG if silent_s >= LOST_S else Status.WAITING,
    )


def _lost_a_peer(view: RankView) -> bool:
    return (view.dead or view.raised) and ended_for(view) is Why.PEER


def _went_on(case: Case, silent: Sequence[NodeFacts], seen: Sequence[RankView]) -> bool:
    """A rank has moved so long after the node's last message that the node's ranks must have lived on."""
    readings = [view.reading for view in seen if view.reading is not None]
    longest_step_s = max((reading.times.slowest_recent_s for reading in readings), default=0.0)
    moved_at = max((reading.progress.at for reading in readings), default=0.0)
    heard_at = max(case.snapshot.taken_at - node.silent_s for node in silent)
    return moved_at > heard_at + STEP_ENDED_S + 1.5 * longest_step_s


def _them(lost: Sequence[int]) -> str:
    return words.verb(len(lost), "it", "them")


def _last_word(case: Case, node: NodeFacts) -> str:
    steps = words.step(case.furthest_step(node.ranks))
    place = f", when {words.ranks(node.ranks)} {words.verb(len(node.ranks), 'was', 'were')} in {steps}" if steps else ""
    return f"{node.host} was last heard of {words.duration(node.silent_s)} before{place}"
