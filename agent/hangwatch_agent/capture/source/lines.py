"""Lines of source as a report may show them: redacted, and not too long."""

from __future__ import annotations

import re

from hangwatch_agent.shared.passwords import HIDDEN
from hangwatch_agent.shared.redact import is_secret_name, redact_text

LONGEST_LINE = 160
LONGEST_READ = 4000  # of a line, before secrets are looked for
_LITERAL = re.compile(r"""'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)\"""")
_NAME = re.compile(r"[A-Za-z_]\w*")


def clipped(line: str) -> str:
    """A line of a file."""
    return _cut(redact_text(line[:LONGEST_READ]).rstrip())


def one_line(text: str) -> str:
    """A condition or an assignment, which may stand on several lines.

    Names are no secrets, as those of tokens of a text are not: what stands in quotes may be, and is left out where the
    text speaks of such.
    """
    flat = " ".join(text.split())[:LONGEST_READ]
    hidden = any(map(is_secret_name, _NAME.findall(_LITERAL.sub("", flat))))

    def shown(found: re.Match[str]) -> str:
        inner = found[1] if found[1] is not None else found[2]
        return f"{found[0][0]}{HIDDEN if hidden and inner else redact_text(inner)}{found[0][0]}"

    return _cut(_LITERAL.sub(shown, flat))


def _cut(shown: str) -> str:
    return shown if len(shown) <= LONGEST_LINE else f"{shown[: LONGEST_LINE - 4]} ..."
