"""Elements of HTML as function calls. Text is escaped unless it is `Html` already, so nothing can be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from hangwatch.report import words

LONGEST = 2000  # characters of one text; an incident of thousands of ranks must still open
LONGEST_BLOCK = 20_000
ROWS = 64  # rows of one table


class Html(str):
    """Text that is markup: made by `tag` alone."""

    __slots__ = ()


Child = str | int | None


def tag(name: str, *children: Child, **attributes: str) -> Html:
    """An element. `class_` and `for_` stand for attributes that Python reserves; empty attributes are left out."""
    said = "".join(f' {key.rstrip("_")}="{_text(value)}"' for key, value in attributes.items() if value)
    return Html(f"<{name}{said}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Children beside each other; None is nothing."""
    return Html(
        "".join(child if isinstance(child, Html) else _text(str(child)) for child in children if child is not None)
    )


def prose(text: str) -> Html:
    """A sentence in which `backticks` mark code; one without a partner stands as it is."""
    parts = re.split(r"`([^`]+)`", text)
    return join(tag("code", part) if index % 2 else part for index, part in enumerate(parts))


def block(text: str) -> Html:
    """Text of several lines as it stands, its end rather than its beginning where it is too long."""
    shown = text[-LONGEST_BLOCK:]
    lines = (escape(words.clean(line)) for line in shown.splitlines())
    return Html(f"<pre>{chr(10).join(lines)}</pre>")


def listing(lines: Iterable[str], first: int, marked: int) -> Html:
    """Lines of code with their numbers, from `first` on; the line `marked` stands out."""
    numbered = ((number, f"{number:6}  {line.expandtabs(4)}") for number, line in enumerate(lines, first))
    shown = [tag("mark" if number == marked else "span", line) for number, line in numbered]
    return Html(f'<pre class="excerpt">{chr(10).join(shown)}</pre>')


def section(title: str, *children: Child, hint: str = "") -> Html:
    """A part of the page under a heading; nothing where there is nothing to show."""
    inner = join(children)
    if not inner:
        return Html("")
    return tag("section", tag("h2", title, tag("small", hint) if hint else None), inner)


def table(head: Sequence[str], rows: Sequence[Sequence[Child]], marked: Sequence[bool] = ()) -> Html:
    """A table of at most ROWS rows, without the columns that are empty in all of them; `marked` rows stand out."""
    if not rows:
        return Html("")
    shown = _shown(rows, marked)
    columns = [place for place in range(len(head)) if any(row[place] not in (None, "") for row, _ in shown)]
    top = tag("tr", *(tag("th", head[place], scope="col") for place in columns))
    body = (
        tag("tr", *(_cell(row[place], head[place]) for place in columns), class_="marked" if mark else "")
        for row, mark in shown
    )
    rest = tag("p", f"and {len(rows) - ROWS} more", class_="more") if len(rows) > ROWS else None
    return join((tag("div", tag("table", tag("thead", top), tag("tbody", *body)), class_="wide"), rest))


def _shown(rows: Sequence[Sequence[Child]], marked: Sequence[bool]) -> list[tuple[Sequence[Child], bool]]:
    """The rows with their marks; where there are too many, the marked ones first."""
    pairs = list(zip(rows, marked or [False] * len(rows), strict=True))
    return pairs if len(pairs) <= ROWS else sorted(pairs, key=lambda pair: not pair[1])[:ROWS]


def _cell(child: Child, column: str) -> Html:
    """A cell that knows its column's name: on a narrow screen, where a row is a card, the style puts it before."""
    short = not isinstance(child, Html) and len(str(child)) <= 24
    return tag("td", child, class_="short" if short else "", **{"data-label": column})


def details(summary: Child, *children: Child, open_: bool = False) -> Html:
    """A part that a click opens."""
    inner = join((tag("summary", summary), *children))
    return Html(f"<details{' open' if open_ else ''}>{inner}</details>")


def _text(text: str) -> str:
    return escape(words.clipped(text, LONGEST))
