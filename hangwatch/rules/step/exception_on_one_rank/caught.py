"""Errors that the program caught, by which a rank left out calls: by its board, or by the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue.step import VOTE_AFTER_ERROR
from hangwatch.facts.call_site import in_backward
from hangwatch.facts.calls.skip_paths import asked_by_a_package, conditions, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import drawn_words, first_uneven
from hangwatch.facts.differences.backwards import backwards_in
from hangwatch.facts.differences.caught_errors import (
    Caught,
    caught_at_its_data,
    caught_before_a_key,
    caught_before_backward,
    caught_in_its_step,
    waits_for_a_peer,
    within_backward,
)
from hangwatch.facts.differences.decisions import disagreement
from hangwatch.facts.differences.kept_from_setting import KeptFromSetting, kept_from_setting
from hangwatch.facts.differences.unreduced import unreduced
from hangwatch.facts.processes.own_code import status_of
from hangwatch.facts.processes.store_keys import key_evidence
from hangwatch.facts.rank_end import error_at
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Certainty, Culprit, ExceptionFacts, StepName
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

_LEFT = {"with": "left its `with` block and came to", "finally": "left its `try` block and came to"}


def caught_where_it_parted(case: Case) -> Finding | None:
    """Ranks caught an error in the first step in which they issued fewer collectives than the others."""
    found = caught_in_its_step(case) if case.in_trouble else None
    if found is None:
        return None
    ranks = tuple(sorted(found.errors))
    error, rest = found.errors[ranks[0]], case.name(found.divergence.counts.keys() - {*ranks})
    text, step = words.error(error), words.step(found.divergence.name)
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} raised {text}{words.at(user_frame(error.frames))} in {step}, caught it and"
        f" went on: {_fewer(found)}; since then {words.verb(len(ranks), 'its', 'their')} calls are mispaired.",
        fix=VOTE_AFTER_ERROR,
        culprits=_where_raised(case, found.errors),
        step=found.divergence.name,
        evidence=(
            *(
                f"rank {rank} recorded {error_at(each)} in {step}"
                for rank, each in sorted(found.errors.items())[: words.SHOWN]
            ),
            f"{rest} recorded no error in that step",
        ),
        status=case.failed_status,
    )


def _where_raised(case: Case, errors: Mapping[int, ExceptionFacts]) -> tuple[Culprit, ...]:
    """The ranks that raised these errors, each at the line that raised its own."""
    return tuple(case.ranks[rank].culprit(user_frame(error.frames)) for rank, error in sorted(errors.items()))


def _fewer(found: Caught) -> str:
    counts = found.divergence.counts
    made, usual = counts[min(found.errors)], max(counts.values())
    who = "it" if len(found.errors) == 1 else "they"
    return f"{who} issued {words.plural(made, 'collective')} in that step, and the others {usual}"


def caught_without_backward(case: Case) -> Finding | None:
    """Ranks caught an error in this step and went on, and the others wait for them in its backward, or ended in it."""
    found = caught_before_backward(case) if case.in_trouble else {}
    if not found:
        return None
    ranks = tuple(sorted(found))
    first, error = case.ranks[ranks[0]], found[ranks[0]]
    rest = [view.rank for view in case if view.rank not in found]
    in_pipeline = any(waits_for_a_peer(case, case.ranks[rank]) for rank in rest)
    backward = "the rest of the backward of" if within_backward(error) else "the backward of"
    left_out = "the rest of" if in_pipeline else backward
    others = case.name(rest)
    op = case.blocked[first.rank].op if waits_for_a_peer(case, first) else ""
    left = "" if first.now.in_loop else _LEFT.get(first.now.block, "")  # the error ended the loop, and goes on
    call = first.now.call or op or (first.where.function if first.where is not None else "")
    now = f"{call}{words.at(first.where)}" if first.where is not None else "later code"
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} raised {error_at(error)} in"
        f" {words.step(first.step)}, {left or 'caught it and went on to'} {now} without {left_out} that step, in which"
        f" {others} {'ended' if case.any_rank_failed else words.verb(len(rest), 'waits', 'wait')}.",
        fix="" if left else VOTE_AFTER_ERROR,
        culprits=_where_raised(case, found),
        step=first.step,
        evidence=(f"rank {first.rank} recorded that error in {words.step(first.step)}, and {others} none",),
        status=case.failed_status,
    )


def caught_without_its_key(case: Case) -> Finding | None:
    """Ranks caught an error in their last step, and the others wait for a key of a store which is not set."""
    kept, found = kept_from_setting(case), caught_before_a_key(case)
    if kept is not None:
        return _kept_from_setting(case, kept)
    if not found:
        return None
    ranks = tuple(sorted(found))
    first, error = case.ranks[ranks[0]], found[ranks[0]]
    rest = [view.rank for view in case if not view.dead and view.rank not in found]
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} raised {error_at(error)} in {words.step(first.step)}, caught it and went on;"
        f" {case.wait_words(rest)} for a key of a store that is not set{case.at_places(rest)}.",
        fix="mend the error; set the key on every way through the program, also where a part of it fails",
        culprits=_where_raised(case, found),
        victims=tuple(rest),
        step=first.step,
        evidence=(f"rank {first.rank} recorded that error in its last step, and {case.name(rest)} none",),
        status=status_of(case, case.views(rest)),
        awaited=ranks,
    )


def _kept_from_setting(case: Case, kept: KeptFromSetting) -> Finding:
    view, error, setter = case.ranks[kept.rank], kept.error, kept.setter
    others = case.name([kept.rank])
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{others.capitalize()} raised {error_at(error)}, caught it{words.at(setter.swallows)} and went on without"
        f" setting the key {kept.key.key!r} of a store{words.at(setter.where)}; {case.wait_words(kept.waiting)} for"
        f" that key{case.at_places(kept.waiting)}.",
        fix="mend the error; set the key on every way through the program, also where a part of it fails",
        culprits=_where_raised(case, {kept.rank: error}),
        victims=tuple(rank for rank in case.ranks if rank != kept.rank),
        step=view.step,
        evidence=(f"{others} recorded that error, and the key has not come", *key_evidence(case, kept.key)),
        status=status_of(case, case.views(kept.waiting)),
        awaited=(kept.rank,),
    )


def caught_in_its_backward(case: Case) -> Finding | None:
    """An error ended a backward before its gradients were reduced; the program caught it and went on."""
    short = unreduced(case) if case.in_trouble else None
    if short is None or not short.errors:
        return None
    ranks = tuple(sorted(short.errors))
    error, who = short.errors[ranks[0]], case.name(ranks)
    witnesses = [
        Witness(
            Kind.FACT,
            f"rank {rank} recorded {error_at(each)} within that backward",
        )
        for rank, each in sorted(short.errors.items())[: words.SHOWN]
    ]
    if short.said:
        refused = f"torch refused the next forward of {who}: its last reduction was not finished"
        witnesses.append(Witness(Kind.FACT, refused))
    return Finding(
        "exception-on-one-rank",
        case.weigh(witnesses) if short.said else Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} raised {error_at(error)} within the"
        f" backward of {words.step(short.step)}, caught it and went on without the gradients of that step, for which"
        f" the others wait{'ed' if case.any_rank_failed else ''}.",
        fix=VOTE_AFTER_ERROR,
        culprits=_where_raised(case, short.errors),
        victims=case.victims(ranks),
        step=short.step,
        witnesses=tuple(witnesses),
        status=case.failed_status,
    )


def caught_at_its_loader(case: Case) -> Finding | None:
    """The loader of a rank raised an error, and the program caught it and began to draw anew: it makes other steps."""
    uneven, found = first_uneven(case), caught_at_its_data(case) if case.in_trouble else {}
    if uneven is None or not found:
        return None
    ranks = tuple(sorted(found))
    first, error = case.ranks[ranks[0]], found[ranks[0]]
    count, others = uneven.drawn[first.rank].count, [rank for rank in uneven.drawn if rank not in found]
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"The loader of {case.name(ranks)} raised {error_at(error)} after {words.plural(count, 'batch')} of epoch"
        f" {uneven.epoch}; it was caught, and {words.verb(len(ranks), 'this rank', 'these ranks')} began to draw anew:"
        f" since then {words.verb(len(ranks), 'its', 'their')} steps are not those of {case.name(others)}.",
        fix="mend the error; read such a sample again within the dataset, so that no iterator is begun anew, or begin"
        " anew on all ranks together",
        culprits=_where_raised(case, found),
        step=StepName(uneven.epoch, max(count - 1, 0), error.step),
        evidence=(
            *drawn_words(case, replace(uneven, drawn={rank: uneven.drawn[rank] for rank in others})),
            *(
                f"rank {view.rank} drew {words.plural(uneven.drawn[view.rank].count, 'batch')} of that epoch, recorded"
                f" {words.error(found[view.rank])}, and has drawn {view.loader.drawn} of a new iterator since"
                for view in case.views(ranks)[: words.SHOWN]
                if view.loader is not None
            ),
        ),
    )


def caught_past_a_call(case: Case) -> Finding | None:
    """Ranks are past a call that the others made, and the source shows no way past it but an error that is caught."""
    found = disagreement(case) if case.in_trouble else None
    if found is None or not found.ways or not all(map(_swallows, found.ways)):
        return None
    counted = found.found
    if counted is not None and (counted.who or asked_by_a_package(case, found.call.frames)):
        return None  # what the ledgers tell of is a skipped call, with this way past it; or a package leads past it
    if len(found.without) > len(found.made):
        return None
    if in_backward(found.call) and _kept_gradients(case.views(found.without), found.step.step):
        return None  # below no_sync() a backward makes no such call, and no error led past it
    where = the_only(found.ways)
    handlers = conditions(found.ways)
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.name(found.without, capital=True)} went on without {found.name}{words.in_step(found.step)}, which"
        f" {case.name(found.made)} called: an error may have led past it, caught at {handlers}.",
        fix=VOTE_AFTER_ERROR,
        culprits=case.culprits(found.without, where),
        victims=case.victims(found.without),
        step=found.step,
        evidence=(f"the source shows no way past {found.name} but {handlers}",),
        status=case.failed_status,
    )


def _kept_gradients(views: Sequence[RankView], step: int | None) -> bool:
    made = [backwards_in(view, step) for view in views if step is not None]
    return any(each is not None and each.accumulated for each in made)


def _swallows(way: Bypass) -> bool:
    """An except clause, or a manager that lets no error through."""
    return way.text.split(":")[0].split(" ")[0] in ("except", "with")
