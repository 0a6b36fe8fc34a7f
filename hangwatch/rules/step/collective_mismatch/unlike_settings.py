"""DistributedDataParallel set up with other arguments on some ranks: it makes other calls there from the first step."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.last_calls import brought_down, end_sentences
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Phase
from hangwatch.ranks.sides import by_value
from hangwatch.rules.finding import Finding

FIRST_STEPS = 2  # steps: with its arguments DDP makes its calls in the first one, and regroups them in the second
_IN_ITS_CALLS = (Phase.FORWARD, Phase.BACKWARD)
_ARGUMENTS = ("find_unused_parameters", "static_graph", "comm_hook")
_FIX = (
    "give DistributedDataParallel the same arguments and the same communication hook on every rank: what they follow"
    " from (an option, a variable of the environment, a version) must be the same there"
)


def unlike_settings(case: Case) -> Finding | None:
    """The ranks are in DDP's own calls of the first steps, and its arguments differ. Which are right is not known."""
    sides = _sides(case)
    if len(sides) < 2 or not case.in_trouble or (case.any_rank_failed and not brought_down(case)):
        return None
    step = case.furthest_step(case.ranks)
    early = step.step is not None and step.step < FIRST_STEPS
    if not early or not any(view.phase in _IN_ITS_CALLS for view in case):
        return None
    fewest = min(sides.values(), key=len)
    odd = tuple(fewest) if 2 * len(fewest) < len(case.ranks) else ()
    differs = words.listed([f"{said} on {case.name(ranks)}" for said, ranks in sides.items()])
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"DistributedDataParallel is set up differently on the ranks: {differs}; so its calls differ from the first"
        " step on.",
        fix=_FIX,
        culprits=case.culprits(odd),
        victims=case.victims(odd),
        step=step,
        evidence=(f"the ranks' models were wrapped with {differs}", *end_sentences(case)),
        status=case.failed_status,
        awaited=odd,
    )


def _sides(case: Case) -> dict[str, list[int]]:
    """The first argument that differs, by its value in words; empty where not all ranks have copies of one model.

    Stages of a pipeline have parameters of their own, and perhaps arguments.
    """
    plans = {view.rank: view.reading.identity.plan for view in case if view.reading is not None}
    if len(plans) < len(case.ranks) or len({_model(plan) for plan in plans.values()}) != 1:
        return {}
    for name in _ARGUMENTS:
        values = by_value({rank: plan.get(name, "") for rank, plan in plans.items()})
        if len(values) > 1:
            return {_said(name, value): ranks for value, ranks in values.items()}
    return {}


def _model(plan: dict[str, str]) -> tuple[str, str]:
    return plan.get("wraps", ""), plan.get("parameters", "")


def _said(name: str, value: str) -> str:
    if name != "comm_hook":
        return f"{name}={value}"
    return f"the communication hook {value}" if value else "no communication hook"
