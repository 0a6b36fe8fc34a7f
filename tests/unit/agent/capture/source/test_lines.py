"""What a report shows of lines of source."""

from __future__ import annotations

import pytest

from hangwatch_agent.capture.source.lines import LONGEST_LINE, clipped, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("if password == 'hunter2': break", "if password == '[redacted]': break"),
        ('if "hunter2" == cfg.api_key: return', 'if "[redacted]" == cfg.api_key: return'),
        ("if next_token == eos_token: break", "if next_token == eos_token: break"),
        ("if not self.token: break", "if not self.token: break"),
        ("while state['phase'] != 'done'", "while state['phase'] != 'done'"),
        ("ok = get(url,\n    timeout=3)", "ok = get(url, timeout=3)"),
    ],
)
def test_what_stands_in_quotes_is_left_out_where_a_condition_speaks_of_secrets(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_secret_within_a_text_is_redacted() -> None:
    assert "hunter2" not in one_line("if probe('https://ann:hunter2@store.example/x'): continue")


def test_long_ones_are_cut() -> None:
    assert len(one_line("a + " * 200)) == len(clipped("x" * 400)) == LONGEST_LINE
