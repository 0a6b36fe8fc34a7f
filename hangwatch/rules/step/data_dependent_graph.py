"""On one rank the graph differs by data, so that gradients or gathers of parameters never happen there."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.calls.skip_paths import conditions
from hangwatch.facts.case import Case
from hangwatch.facts.differences.decisions import Disagreement, disagreement, of_every_step
from hangwatch.facts.differences.left_out import LeftOut, left_out, witnesses_of
from hangwatch.facts.differences.parting import Left, counted
from hangwatch.facts.differences.unreduced import Unreduced, refused_everywhere, unreduced
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame
from hangwatch.rules.draws import OF_A_DRAW, drawn_at_random
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

_FOR_MODULES = (
    "run every module on every rank: send an empty or dummy input through it and add its output times 0;"
    " ZeRO-3: set_z3_leaf_modules"
)


def data_dependent_graph(case: Case) -> Finding | None:
    """A backward ended without its gradients, or a module that others ran was not run."""
    short = unreduced(case)
    if short is not None and case.in_trouble and not short.errors:
        return _without_gradients(case, short)
    found = disagreement(case)
    if found is not None and found.of_a_module and case.in_trouble:
        return _without_module(case, found)
    left = left_out(case)
    return _without_call(case, left) if left is not None and left.of_a_backward else None


def ended_without_gradients(case: Case) -> Finding | None:
    """The same, where torch has said so, or ranks ended because their call was paired with a different one."""
    if everywhere := refused_everywhere(case):
        return _on_every_rank(case, everywhere)
    short = unreduced(case)
    said = short is not None and short.said
    return data_dependent_graph(case) if said or case.any_rank_failed else None


def _on_every_rank(case: Case, said: dict[int, str]) -> Finding:
    """No rank waits for another: the same parameters have no part in the loss, or others on each rank."""
    first = case.ranks[min(said)]
    missing = {text for text in said.values() if text}
    which = f" ({_named(missing.pop())})" if len(missing) == 1 else ""
    where = user_frame(first.exception.frames) if first.exception is not None else None
    return Finding(
        "data-dependent-graph",
        Certainty.LIKELY,
        f"{case.name(said, capital=True)} failed in the next forward{words.at(where)}: the backward before it had ended"
        f" without all gradients, since parameters of the model had no part in that loss{which}. No rank waits for"
        " another one.",
        victims=(),
        step=case.furthest_step(list(said)),
        evidence=tuple(f"torch refused the next forward of rank {rank}" for rank in list(said)[: words.SHOWN]),
        status=case.failed_status,
        awaited=tuple(said),
    )


# ------------------------------------------------------------------------------------------ DistributedDataParallel


def _without_gradients(case: Case, short: Unreduced) -> Finding:
    one = len(short.ranks) == 1
    who, its = case.name(short.ranks), "its" if one else "their"
    witnesses = _witnesses(case, short)
    missing = f" ({_parameters(short)})" if short.parameters else ""
    told = short.said or (short.found is not None and short.sure)
    certainty = case.weigh(witnesses) if told else Certainty.LIKELY
    return Finding(
        "data-dependent-graph",
        certainty,
        f"The backward of {who}{words.at(short.where)} in {words.step(short.step)} ended without all of {its}"
        f" gradients: parameters of the model had no part in that loss{missing}. {_others(case, short)}",
        culprits=case.culprits(short.ranks, short.where),
        victims=case.victims(short.ranks),
        step=short.step,
        evidence=(counted(case, short.found),) if short.found is not None else (),
        witnesses=witnesses,
        status=case.failed_status,
    )


def _others(case: Case, short: Unreduced) -> str:
    others = [rank for rank in case.blocked if rank not in short.ranks]
    if not others or case.any_rank_failed:
        return f"No other rank can go on without {words.verb(len(short.ranks), 'it', 'them')}."
    wait = case.say(others, "waits", "wait", capital=True)
    return f"{wait} for them; the later calls of {case.name(short.ranks)} are mispaired."


def _parameters(short: Unreduced) -> str:
    return _named(short.parameters)


def _named(parameters: str) -> str:
    text = " ".join(parameters.split())
    named = re.fullmatch(r"[\d\s,.]+", text) is None
    return text[:160] if named else f"indices {text[:80].rstrip(' .')} of its parameters"


def _refused_at(case: Case, short: Unreduced) -> str:
    error = case.ranks[short.ranks[0]].exception
    return words.at(user_frame(error.frames)) if error is not None else ""


def _witnesses(case: Case, short: Unreduced) -> tuple[Witness, ...]:
    heard = list(short.found.witnesses) if short.found is not None else []
    who = case.name(short.ranks)
    if short.said:
        forward = f"the next forward of {who}{_refused_at(case, short)}"
        heard.append(Witness(Kind.FACT, f"torch refused {forward}: its last reduction was not finished"))
    elif short.found is not None:
        heard.append(
            Witness(Kind.SOURCE, f"{who} went on in that very step, so that backward was not left out as a whole")
        )
    else:
        past = f"{who} {words.verb(len(short.ranks), 'is', 'are')} past optimizer.step()"
        first = short.step.step == 0  # no step before shows a habit
        heard.append(
            Witness(Kind.PLACE, past)
            if first
            else Witness(Kind.HABIT, f"{past} and had reduced gradients in the steps before")
        )
        stand = case.say(short.waiting, "stands", "stand")
        heard.append(Witness(Kind.PLACE, f"{stand} in the backward of that step"))
    return tuple(heard)


# ------------------------------------------------------------------------------------------ differentiable collectives


def _without_call(case: Case, found: LeftOut) -> Finding:
    who, step = case.name(found.ahead), case.ranks[found.ahead[0]].step
    where, there = (Frame(*place.lines[0], "") for place in (found.skipped, found.reached))
    return Finding(
        "data-dependent-graph",
        Certainty.LIKELY,
        f"{case.name(found.ahead, capital=True)} went through the backward{words.at(where)}{words.in_step(step)}"
        f" without its {found.skipped.kind or 'call'}: what leads to that had no part in the loss there."
        f" {words.verb(len(found.ahead), 'It is', 'They are')} in the next call already{words.at(there)}.",
        fix="give the result a part in the loss of every rank, such as its sum times 0, instead of detaching it or"
        " leaving it out",
        culprits=case.culprits(found.ahead, where),
        step=step,
        evidence=(f"{who} called backward{words.in_step(step)}",),
        witnesses=witnesses_of(case, found),
    )


# ------------------------------------------------------------------------------------------ sharded modules


def _without_module(case: Case, found: Disagreement) -> Finding:
    made, without = case.name(found.made), case.name(found.without)
    skipped = found.found.who if found.found is not None and found.found.how is Left.SKIPPED else ()
    usual = len(found.made) == len(found.without) and of_every_step(case, found)
    odd = skipped or (found.without if usual else found.odd)
    when = words.in_step(found.step)
    ways, by_chance = conditions(found.ways), drawn_at_random(found.ways)
    one = found.ways[0].where if len(found.ways) == 1 else None
    witnesses = (
        Witness(Kind.PLACE, f"{made} called {found.name}{when} more often than {without}"),
        Witness(Kind.SOURCE, f"within the model's forward, {ways} leads past that call"),
        *((Witness(Kind.HABIT, f"{without} called it in every earlier step that is recorded"),) if usual else ()),
    )
    named = found.found is not None and found.step.batch is not None
    return Finding(
        "data-dependent-graph",
        case.weigh(witnesses) if named and not case.any_rank_failed else Certainty.LIKELY,
        f"The ranks did not run the same parts of the model{when}: {made} called {found.name} more often than"
        f" {without}; {ways} decides.",
        fix=OF_A_DRAW if by_chance else _FOR_MODULES,
        culprits=case.culprits(odd, one),
        victims=case.victims(odd),
        step=found.step,
        evidence=(counted(case, found.found),) if found.found is not None else (),
        witnesses=witnesses,
        status=case.failed_status,
    )
