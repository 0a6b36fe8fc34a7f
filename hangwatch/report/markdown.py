"""The verdict as Markdown, to be pasted into an issue or a chat; the page's "Copy as Markdown" writes the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hangwatch.model import Excerpt, Incident, Verdict
from hangwatch.report import titles, words

MOST = 10
_MARKUP = re.compile(r"[\\*<>\[\]|#]")


def render(incident: Incident, report: str = "") -> str:
    """The text, ending in a line break. `report` is the file that holds the rest, "" for none."""
    verdict = incident.verdict
    name = _code(incident.job.name or incident.job.id)
    parts = [f"**{_plain(words.headline(incident))}** in `{name}`", f"> {_plain(verdict.summary or words.NO_VERDICT)}"]
    parts += ["\n".join(_rows(verdict)), *_excerpts(verdict), *_list("Evidence", verdict.evidence)]
    parts += _ruled_out(verdict)
    if report:
        parts.append(f"More: `{_code(report)}`")
    return "\n\n".join(parts) + "\n"


def _rows(verdict: Verdict) -> Iterator[str]:
    name = titles.title(verdict.cause)
    beside = "" if name == verdict.cause else f" (`{_code(verdict.cause)}`)"
    yield f"- **Cause:** {_plain(name)}{beside}, {words.cause(verdict)}"
    for who in verdict.culprits[:MOST]:
        at = f" at `{_code(f'{who.where.file}:{who.where.line}')}`" if who.where else ""
        yield f"- **Who:** {_plain(words.culprit(who))}{at}"
    if len(verdict.culprits) > MOST:
        yield f"- and {len(verdict.culprits) - MOST} more"
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


def _list(name: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield "\n".join((f"**{name}**", "", *(f"- {_plain(sentence)}" for sentence in sentences[:MOST])))


def _ruled_out(verdict: Verdict) -> Iterator[str]:
    if verdict.alternatives:
        others = (f"- `{_code(other.cause)}`: {_plain(other.why_not)}" for other in verdict.alternatives[:MOST])
        yield "\n".join(("**Ruled out**", "", *others))


def _plain(text: str) -> str:
    """A sentence on one line without markup and without mentions, except `code`."""
    line = " ".join(words.clean(text).split())
    return _MARKUP.sub(lambda sign: f"\\{sign[0]}", line).replace("@", "@\u200b")


def _code(text: str) -> str:
    return " ".join(words.clean(text).split()).replace("`", "'")
