"""The verdict as Markdown, to be pasted into an issue or a chat; the page's "Copy as Markdown" writes the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hangwatch.model import Excerpt, Incident, NextCheck, Verdict
from hangwatch.report import titles, words

MOST = 10
MOST_DETAILS = 3
_MARKUP = re.compile(r"[\\*<\[\]|#`]")
_QUOTE = re.compile("^>")  # markup at the start of a line alone: what does not know Markdown would show the backslash
_BACKTICKS = re.compile("`+")


def render(incident: Incident, report: str = "") -> str:
    """The text, ending in a line break. `report` is the file that holds the rest, "" for none."""
    verdict = incident.verdict
    name = _code(incident.job.name or incident.job.id)
    said = " ".join((verdict.summary or words.NO_VERDICT, *verdict.details[:MOST_DETAILS]))
    parts = [f"**{_plain(words.headline(incident))}** in `{name}`", f"> {_plain(said)}"]
    parts += ["\n".join(_rows(verdict)), *_excerpts(verdict), *_list("Evidence", verdict.evidence)]
    parts += _others(verdict)
    parts += _list("Next time, check first", [_check(each) for each in incident.check_next], ready=True)
    if report:
        parts.append(f"More: `{_code(report)}`")
    return "\n\n".join(parts) + "\n"


def _rows(verdict: Verdict) -> Iterator[str]:
    yield f"- **Cause:** {_named(verdict.cause)}, {words.cause(verdict)}"
    for who in verdict.culprits[:MOST]:
        at = f" at `{_code(f'{who.where.file}:{who.where.line}')}`" if who.where else ""
        yield f"- **Who:** {_plain(words.culprit(who))}{at}"
    if len(verdict.culprits) > MOST:
        yield f"- and {len(verdict.culprits) - MOST} more"
    if waits := words.chain(verdict):
        yield f"- **Chain:** {_plain('; '.join(waits[:MOST]))}"
    if verdict.fix:
        yield f"- **Fix:** {_plain(verdict.fix)}"


def _excerpts(verdict: Verdict) -> Iterator[str]:
    found: Excerpt | None = next((who.excerpt for who in verdict.culprits if who.excerpt), None)
    if found is not None:
        lines = (_line(found, number, text) for number, text in enumerate(found.lines, found.first))
        yield "\n".join(("```python", *lines, "```"))


def _line(excerpt: Excerpt, number: int, text: str) -> str:
    mark = ">" if number == excerpt.line else " "
    return f"{mark} {number:4} {words.clean(text).replace('```', chr(39) * 3)}"


def _list(name: str, sentences: Sequence[str], *, ready: bool = False) -> Iterator[str]:
    """A list; `ready` sentences are Markdown already."""
    if sentences:
        lines = (sentence if ready else _plain(sentence) for sentence in sentences[:MOST])
        yield "\n".join((f"**{name}**", "", *(f"- {line}" for line in lines)))


def _check(each: NextCheck) -> str:
    return f"`{_code(each.command)}` ({_plain(each.check)}): {_plain(each.why)}"


def _others(verdict: Verdict) -> Iterator[str]:
    """The causes that nothing excludes, and those that were ruled out."""
    for name, still_open in (("Not excluded", True), ("Ruled out", False)):
        others = [other for other in verdict.alternatives if other.open is still_open][:MOST]
        if others:
            yield "\n".join(
                (f"**{name}**", "", *(f"- {_named(other.cause)}: {_plain(other.why_not)}" for other in others))
            )


def _named(cause: str) -> str:
    """The cause's title with its id; the id alone, as text, where the catalogue has no title."""
    name = titles.title(cause)
    return _plain(name) if name == cause else f"{_plain(name)} (`{_code(cause)}`)"


def _plain(text: str) -> str:
    """A sentence on one line without markup and without mentions, except `code`, where a backslash would be shown."""
    line = " ".join(words.clean(text).split())
    spans = [(part, index % 2 == 1) for index, part in enumerate(_split_code(line))]
    made = "".join(part if code else _escaped(part) for part, code in spans)
    return _QUOTE.sub(r"\\>", made).replace("@", "@\u200b")


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda sign: f"\\{sign[0]}", text)


def _split_code(line: str) -> list[str]:
    """Text and `code` in turns, as CommonMark pairs backticks: code ends at the next run of as many of them."""
    parts, start = [""], 0
    runs = list(_BACKTICKS.finditer(line))
    for number, run in enumerate(runs):
        if run.start() < start:
            continue  # inside of a code span
        end = next((other.end() for other in runs[number + 1 :] if len(other[0]) == len(run[0])), None)
        if end is not None:
            parts[-1] += line[start : run.start()]
            parts += [line[run.start() : end], ""]
            start = end
    parts[-1] += line[start:]
    return parts


def _code(text: str) -> str:
    return " ".join(words.clean(text).split()).replace("`", "'")
