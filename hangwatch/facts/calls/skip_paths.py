"""How a rank got past a call that it left out: what the source says, in words."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import Path, Site, path
from hangwatch.facts.case import Case, once
from hangwatch.model import Bypass, Collective, Frame, LoopFacts
from hangwatch.ranks.view import RankView


def _near(case: Case, lines: Path) -> tuple[Bypass, ...]:
    """The ways past a call in a turn of the innermost loop around it; of the next one where there are none."""
    ways = _known(case).get(lines, ())
    if not any(way.inner for way in ways):
        return ways
    return tuple(way for way in ways if way.inner or way.asks == "package")


@once
def _known(case: Case) -> dict[Path, tuple[Bypass, ...]]:
    found: dict[Path, tuple[Bypass, ...]] = {}
    for each in case.snapshot.call_sites:
        found.setdefault(each.lines, each.bypasses)
    return found


def ways_past(case: Case, place: Site, times: int = 1) -> tuple[Bypass, ...]:
    """How one rank's turn of the loop can go on without the calls, so many in a step, that come from `place`.

    A condition that is the same on every rank is no such way: the others answered it likewise, and made the calls.
    """
    return past_lines(case, place.lines, times)


def past_lines(case: Case, lines: Path, times: int = 1) -> tuple[Bypass, ...]:
    """The same of calls by the lines that led to them."""
    ways = (way for way in _known(case).get(lines, ()) if way.inner or times > 1)
    return tuple(way for way in ways if way.asks not in ("alike", "package"))


def only_by_a_setting(case: Case, lines: Path) -> Bypass | None:
    """The one condition that leads past a call, where it asks for what should be alike on all ranks: it is not.

    None for a counter's, which differs where one began elsewhere.
    """
    ways = [way for way in _known(case).get(lines, ()) if way.inner and way.asks != "package"]
    one = ways[0] if len(ways) == 1 else None
    return one if one is not None and one.asks == "alike" and not (one.counts or one.of_turn) else None


def past_any_call(case: Case) -> Bypass | None:
    """The one way past calls on record, by the source of all of them; None where there are several, or none."""
    ways = {way.where.source_line: way for lines in _known(case) for way in past_lines(case, lines)}
    return next(iter(ways.values())) if len(ways) == 1 else None


def past_in_a_turn_of(case: Case, loop: LoopFacts, lines: Path) -> tuple[Bypass, ...]:
    """How a turn of `loop` can go on without the call at `lines`, by what is a rank's own.

    The call may lie in a loop within `loop`, as over the parameters: what leads past that whole loop counts first.
    """
    ways = tuple(way for way in _known(case).get(lines, ()) if way.asks not in ("alike", "package", "rank"))
    around = tuple(way for way in ways if not way.inner and loop.holds(*way.where.source_line))
    return around or tuple(way for way in ways if way.inner)


def no_way_past(case: Case, lines: Path) -> bool:
    """The source of these lines is known, and shows no way on which one rank's turn goes on without their call."""
    return lines in _known(case) and not past_lines(case, lines)


def ways_to(case: Case, call: Collective) -> tuple[Bypass, ...]:
    """The ways past `call`, which are conditions on the way to it as well."""
    return tuple(way for way in _near(case, path(call.frames)) if way.asks != "package")


def every_so_many_turns(case: Case, lines: Path, of_step: tuple[Bypass, ...] = ()) -> tuple[Bypass, ...]:
    """The conditions on a counter modulo a number, where nothing else leads past the call at `lines` alone.

    What is `of_step` leads past the rest of the turn as well.
    """
    ways = tuple(way for way in _near(case, lines) if way.asks != "package" and way not in of_step)
    return tuple(way for way in ways if way.counts) if all(way.asks == "alike" for way in ways) else ()


def rank_check(case: Case, lines: Path) -> Bypass | None:
    """The condition on the rank that leads to a call by these lines."""
    return next((way for way in _known(case).get(lines, ()) if way.asks == "rank"), None)


def own_condition(case: Case, lines: Path) -> Bypass | None:
    """The condition on something of the rank's own that leads to a call by these lines; None where several do.

    One around the call counts before those that end the turn ahead of it.
    """
    ways = [way for way in _near(case, lines) if way.asks in ("value", "check")]
    around = [way for way in ways if not way.of_turn] or ways
    return around[0] if len(around) == 1 else None


def asked_for_the_rank(guard: Bypass) -> str:
    """A sentence on a condition on the rank."""
    return f"the source asks for the rank at {_way(guard)}"


def turn_cut_short(case: Case, lines: Path, *, of_inner_loop: bool) -> tuple[Bypass, ...]:
    """Where a turn of a loop can go on without the call at `lines` and what follows it, by what is a rank's own.

    `of_inner_loop`: the loop is the innermost one around the call, and not one around that.
    """
    ways = (way for way in _near(case, lines) if way.of_turn or way.inner is of_inner_loop)
    return tuple(way for way in ways if way.asks not in ("alike", "rank", "package"))


def reached_by_all(case: Case, view: RankView) -> bool:
    """No condition leads to where `view` stands, or none but those that come out alike on every rank."""
    if view.now.guard != "other":
        return view.now.guard == "none"
    ways = _near(case, path(view.evidence.main_stack))
    return bool(ways) and all(way.asks == "alike" for way in ways)


def asked_by_a_package(case: Case, frames: tuple[Frame, ...]) -> bool:
    """A framework may ask for the rank before it calls the user's function on the way to a call from these frames."""
    return any(way.asks == "package" for way in _near(case, path(frames)))


def past_by_an_error(case: Case, lines: Path) -> tuple[Bypass, ...]:
    """The clauses that lead past the call at `lines` after an error, where that is all that leads past it.

    Then to make the call is the rule, whatever most ranks did. A framework that asks for the rank before it calls the
    user's function leads past it as well.
    """
    ways = _near(case, lines)
    return ways if all(not way.asks and way.inner for way in ways) else ()


def the_only(ways: tuple[Bypass, ...]) -> Frame | None:
    """The line by which the call was passed, where the source of that loop has only one."""
    return ways[0].where if len(ways) == 1 and ways[0].inner else None


def skip_path(ways: tuple[Bypass, ...]) -> str:
    """`, probably at train.py:61 (`if loss.isnan(): continue`)`; "" where there are several ways, or none."""
    return f", probably at {_way(ways[0])}" if the_only(ways) is not None else ""


def evidence_of(ways: tuple[Bypass, ...], call: str = "that call") -> tuple[str, ...]:
    """A sentence on the ways past `call`; of several all are named, since which one was taken is not known."""
    if not ways:
        return ()
    if the_only(ways) is not None:
        return (f"the source shows no other way for one rank to pass {call}",)
    return (passed_at(ways, call),)


def only_by_an_error(ways: tuple[Bypass, ...]) -> str:
    """A sentence on clauses that catch errors, as all that leads past a call."""
    return f"by the source, only an error leads past that call, at {words.either(_way(way) for way in ways)}"


def only_by_a_check(ways: tuple[Bypass, ...]) -> str:
    """A sentence on checks whether data is there and fit, as all that leads past a call."""
    return (
        "by the source, only a check that data is there leads past that call, at"
        f" {words.either(_way(way) for way in ways[: words.SHOWN])}"
    )


def passed_at(ways: tuple[Bypass, ...], call: str) -> str:
    """A sentence that names the ways past `call`."""
    shown = words.either(_way(way) for way in ways[: words.SHOWN])
    return f"a turn of the loop can go on without {call} at {shown}"


def condition(way: Bypass) -> str:
    """The text of a condition, or of a clause that catches errors, and its place: where it begins a sentence."""
    return f"`{way.text}` ({words.place(way.where)}{_given(way)})"


def conditions(ways: tuple[Bypass, ...]) -> str:
    """The same of several, one of which it was."""
    return words.either(condition(way) for way in ways[: words.SHOWN])


def _way(way: Bypass) -> str:
    return f"{words.place(way.where)} (`{way.text}`{_given(way)})"


def _given(way: Bypass) -> str:
    """Where the name for which it asks got its value."""
    return f"; `{way.given_text}` at {words.place(way.given)}" if way.given is not None else ""


def past_some_call(way: Bypass) -> str:
    """The same where it is not known which of the calls was left out."""
    return f"by the source of the calls on record, only {_way(way)} leads past some of them"


def by_a_cache(ways: tuple[Bypass, ...]) -> bool:
    """Only functions that remember their results lead past the call."""
    return bool(ways) and all(way.text.startswith("@") and way.asks == "value" and way.given is None for way in ways)


def conditional(ways: tuple[Bypass, ...]) -> tuple[Bypass, ...]:
    """Those around the call itself that may come out unlike on the ranks."""
    return tuple(way for way in ways if way.inner and way.asks != "alike")


def of_one_condition(case: Case, one: Site | None, other: Site | None) -> bool:
    """One condition of the source leads to the call of the one or of the other: each stands in the place of the other.

    The way past a call is then the line that makes the other one, or each is past one and the same condition where
    that is not what leads past the other. What leads past both leads to neither.
    """
    if one is None or other is None:
        return False
    past_one, past_other = _asked(ways_past(case, one)), _asked(ways_past(case, other))
    if not (past_one.keys().isdisjoint(other.lines) and past_other.keys().isdisjoint(one.lines)):
        return True
    return any(past_one[line] != past_other[line] for line in past_one.keys() & past_other.keys())


def _asked(ways: tuple[Bypass, ...]) -> dict[tuple[str, int], str]:
    return {way.where.source_line: way.text for way in ways}
