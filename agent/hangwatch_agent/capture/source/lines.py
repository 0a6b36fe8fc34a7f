"""Lines of source as a report may show them: redacted, and not too long."""

from __future__ import annotations

from hangwatch_agent.shared.redact import redact_text

LONGEST_LINE = 160
LONGEST_READ = 4000  # of a line, before secrets are looked for


def clipped(line: str) -> str:
    """A line of a file."""
    shown = redact_text(line[:LONGEST_READ]).rstrip()
    return shown if len(shown) <= LONGEST_LINE else f"{shown[: LONGEST_LINE - 4]} ..."


def one_line(text: str) -> str:
    """What may stand on several lines, such as a condition."""
    return clipped(" ".join(text.split()))
