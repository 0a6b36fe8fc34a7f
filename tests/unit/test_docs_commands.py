"""Every command in README and docs can be understood: by the shell, by hangwatch's own parser, by make."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from hangwatch import commands
from tests.shell_examples import PAGES, ROOT, Example, blocks, examples

EXAMPLES = examples()
TARGETS = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
OF_OTHERS = {  # programs that are not ours, which the documentation calls
    *("curl", "docker", "env", "export", "grep", "kill", "nvidia-smi", "pg_dump", "pip", "promtool", "ps"),
    *("python3", "rm", "srun", "torchrun", "ulimit"),
}


def of(program: str) -> list[object]:
    """The commands that call a program, each once."""
    found = {" ".join(words): words for example in EXAMPLES for words in example.commands if words[0] == program}
    return [pytest.param(words, id=name) for name, words in found.items()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    # a block without a language would be neither checked as commands nor known as something else
    assert [text for language, text in blocks(page) if not language] == []


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 50


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.page}: {example.line}")
def test_the_shell_understands_it(example: Example) -> None:
    assert subprocess.run(["bash", "-n", "-c", example.line], check=False).returncode == 0


@pytest.mark.parametrize("words", of("hangwatch"))
def test_hangwatch_understands_it(words: list[str]) -> None:
    own, behind = commands._cut(words[1:])
    arguments, strangers = commands.parser(own[0]).parse_known_args(own)
    assert strangers == []
    assert behind or own[0] != "run"
    assert callable(arguments.run)


@pytest.mark.parametrize("words", of("make"))
def test_make_has_the_targets(words: list[str]) -> None:
    wanted = [word for word in words[1:] if "=" not in word]
    assert set(wanted) <= set(TARGETS)


def test_all_else_is_in_the_checkout_or_known() -> None:
    rest = {words[0] for example in EXAMPLES for words in example.commands} - {"hangwatch", "make"} - OF_OTHERS
    assert [program for program in rest if not program.startswith(".venv/bin/") and not (ROOT / program).exists()] == []
    assert {words[0] for example in EXAMPLES for words in example.commands} >= OF_OTHERS
