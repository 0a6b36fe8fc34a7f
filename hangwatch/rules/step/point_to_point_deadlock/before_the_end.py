"""A rank ended its program, and had made too few messages for a peer, which failed then."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.last_calls import brought_down
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.messages.ended_unanswered import ended_unanswered
from hangwatch.facts.messages.ways_past import past_its_sends, past_message
from hangwatch.facts.processes.ended_ahead import ended_ahead
from hangwatch.model import Certainty, Status, StepName
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.point_to_point_deadlock import ANSWER_EACH
from hangwatch.stacks.frames import user_frame


def ended_with_fewer_messages(case: Case) -> Finding | None:
    """A rank ended its program steps ahead of the others, with fewer messages than its peer counts with it."""
    found = ended_ahead(case)
    if found is None or not brought_down(case):
        return None
    rank, ways = words.ranks([found.rank]), past_message(case, found.last)
    where = user_frame(found.last.frames)
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"{words.capital(rank)} left out sends or receives{words.at(where)} in an earlier step{skip_path(ways)}: it had"
        f" ended its program when {case.name(found.failed)} were in step {found.step}, and failed for want of {rank}.",
        culprits=case.culprits([found.rank], the_only(ways) or where),
        victims=found.failed,
        step=StepName(None, None, found.step),
        evidence=(
            f"{rank} made {words.plural(found.made, 'message')}, and rank {found.peer} {found.counted:,} with it alone",
            f"{rank} had completed step {found.step}",
            *evidence_of(ways),
        ),
        status=Status.FAILED,
    )


def ended_without_an_answer(case: Case) -> Finding | None:
    """It went on for many calls while a peer waited for its send, and ended as it should: it was done with that one."""
    found = ended_unanswered(case)
    if found is None:
        return None
    rank, peer, where = words.ranks([found.rank]), words.ranks([found.waiting]), user_frame(found.receive.frames)
    ways = past_its_sends(case, found.rank, found.receive.group)
    made = case.ranks[found.rank].evidence.board_calls
    usual = next((user_frame(call.frames) for call in reversed(made) if "send" in call.op), None)
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"{words.capital(rank)} left out a send{words.at(usual)} to {peer}{skip_path(ways)}, which waited for"
        f" it{words.at(where)}; {rank} made {found.after:,} more calls, and {peer} failed when it had ended.",
        fix=ANSWER_EACH,
        culprits=case.culprits([found.rank], the_only(ways) or usual),
        victims=(found.waiting,),
        evidence=(
            f"{rank} made its last {found.after:,} calls after {peer} had come to {found.receive.op}{words.at(where)}",
            *evidence_of(ways, "its send"),
        ),
        status=Status.FAILED,
    )
