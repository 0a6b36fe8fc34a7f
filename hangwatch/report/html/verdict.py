"""The verdict at the top of the page, and the warnings."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.model import Culprit, Divergence, Frame, HealthWarning, Incident, Status
from hangwatch.ranks.sides import by_value
from hangwatch.report import titles, words
from hangwatch.report.html.markup import Html, details, join, listing, prose, tag

MOST_LINES = 50  # of an excerpt


def banner(incident: Incident) -> Html:
    """What the terminal says, in the same words."""
    verdict = incident.verdict
    return tag(
        "section",
        tag("h1", tag("span", words.headline(incident), class_="state")),
        tag("p", verdict.summary or words.NO_VERDICT, class_="summary"),
        *(tag("p", sentence) for sentence in verdict.details),
        tag("dl", *_rows(incident)),
        _argument(incident),
        _alternatives(incident, "Not excluded: may be the cause as well", still_open=True),
        _alternatives(incident, "Ruled out, and why", still_open=False),
        _next_time(incident),
        class_=f"verdict {_mood(incident)}",
    )


def _mood(incident: Incident) -> str:
    calm = {Status.RECOVERED: "good", Status.LINGERING: "warn", Status.WAITING: "warn"}
    return calm.get(incident.status, "bad")


def _rows(incident: Incident) -> Iterator[Html]:
    verdict = incident.verdict
    if verdict.fix:
        yield from _row("Fix", tag("strong", prose(verdict.fix)))
    if verdict.culprits:
        yield from _row("Who", _who(incident))
    if verdict.evidence:
        yield from _row("Evidence", tag("ul", *(tag("li", sentence) for sentence in verdict.evidence[:50])))
    if missing := words.missing_evidence(incident):
        yield from _row("Unavailable", missing)
    yield from _row("Cause", _cause(incident))


def _row(label: str, content: Html | str) -> tuple[Html, Html]:
    return tag("dt", label), tag("dd", content)


def _who(incident: Incident) -> Html:
    blamed = incident.verdict.culprits
    lines = [tag("li", tag("strong", words.culprit(who)), _where(who.where), _quoted(who)) for who in blamed[:8]]
    if len(blamed) > len(lines):
        lines = [tag("li", tag("strong", words.culprits(blamed)))]
    return tag("ul", *lines)


def _where(frame: Frame | None) -> Html | None:
    return tag("code", f"{frame.file}:{frame.line} in {frame.function}", class_="place") if frame else None


def _quoted(who: Culprit) -> Html | None:
    """The line of code with its surroundings."""
    if who.excerpt is None:
        return None
    said = "the file was written after the rank had started: other lines may be running"
    code = listing(who.excerpt.lines[:MOST_LINES], who.excerpt.first, who.excerpt.line)
    return join((code, said if who.excerpt.changed else None))


_SURE = {
    "proven": "a fact of the system or independent witnesses that agree settle it",
    "likely": "the evidence fits this cause and no other in the catalogue",
    "uncertain": "the evidence points to this cause, and fits another one as well",
    "not known": "the evidence fits no cause of the catalogue, or several alike",
}


def _cause(incident: Incident) -> Html:
    verdict = incident.verdict
    word = words.sure(verdict.cause, verdict.certainty)
    sure = f"{word}: {_SURE[word]}"
    name = tag("span", titles.title(verdict.cause))
    # Only addresses of the web: a report may come from anywhere.
    linked = tag("a", name, href=verdict.docs, rel="noreferrer") if verdict.docs.startswith("https://") else name
    beside = tag("code", verdict.cause) if titles.title(verdict.cause) != verdict.cause else None
    return tag("span", linked, " ", beside, f", {sure}")


def _argument(incident: Incident) -> Html | None:
    """Why the job is dead, apart from what speaks for the cause."""
    verdict = incident.verdict
    if verdict.hang not in words.ARGUMENT or not verdict.argument:
        return None
    said = (tag("li", sentence) for sentence in verdict.argument[:50])
    return details(words.ARGUMENT[verdict.hang][1], tag("ul", *said), open_=True)


def _alternatives(incident: Incident, name: str, *, still_open: bool) -> Html | None:
    others = [other for other in incident.verdict.alternatives if other.open is still_open][:20]
    if not others:
        return None
    said = (tag("li", *_named(other.cause), ": ", prose(other.why_not)) for other in others)
    return details(name, tag("ul", *said), open_=len(others) < 3)


def _next_time(incident: Incident) -> Html | None:
    if not incident.check_next:
        return None
    said = (tag("li", tag("code", each.command), f" ({each.check}): ", prose(each.why)) for each in incident.check_next)
    return details("Next time, check first", tag("ul", *said), open_=True)


def _named(cause: str) -> tuple[Html | str, ...]:
    """The cause's title with its id; the id alone where the catalogue has no title."""
    title, known_as = titles.title(cause), tag("code", cause)
    return (known_as,) if title == cause else (f"{title} (", known_as, ")")


def warnings(incident: Incident) -> Html:
    """The health warnings, and the first step in which the ranks parted."""
    return join((*map(_warning, incident.warnings[:50]), *map(_parting, incident.divergences[:20])))


def _warning(warning: HealthWarning) -> Html:
    fix = tag("p", tag("strong", prose(warning.fix))) if warning.fix else None
    evidence = tag("ul", *(tag("li", sentence) for sentence in warning.evidence)) if warning.evidence else None
    return tag("div", tag("p", tag("code", warning.kind), f" {warning.summary}"), fix, evidence, class_="note")


def _parting(divergence: Divergence) -> Html:
    by_count = sorted(by_value(divergence.counts).items())
    said = "; ".join(f"{words.ranks(ranks)} issued {count}" for count, ranks in by_count)
    at = f"step {divergence.step}" + ("" if divergence.epoch is None else f" (epoch {divergence.epoch})")
    doubt = "; perhaps only the counts of steps differ" if divergence.doubtful else ""
    text = f"Ranks first issued different numbers of collectives of group {divergence.group} in {at}: {said}{doubt}."
    return tag("div", tag("p", text), class_="note")
