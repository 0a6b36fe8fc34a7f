"""The shell commands of README, CONTRIBUTING and docs/: each line of each block that is marked `sh`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r"[A-Z][A-Z0-9_]*=.*")
INNER = re.compile(r"\$\([^)]*\)")
BETWEEN = ("&&", "||", "|", ";", "&")


@dataclass(frozen=True)
class Example:
    """One line of a block, its comment cut off."""

    page: str
    line: str

    @property
    def commands(self) -> list[list[str]]:
        """The commands of the line as words, without variables that are set in front of them."""
        lexer = shlex.shlex(INNER.sub("X", self.line), posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        found: list[list[str]] = [[]]
        for word in lexer:
            if word in BETWEEN:
                found.append([])
            elif found[-1] or not SETTING.fullmatch(word):
                found[-1].append(word)
        return [words for words in found if words]


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block of code."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def examples() -> list[Example]:
    """Every line that a reader is told to type, each once."""
    found = []
    for page in PAGES:
        for language, text in blocks(page):
            if language == "sh":
                lines = text.replace("\\\n", " ").splitlines()
                found += [Example(page.name, line) for line in map(_uncommented, lines) if line]
    return list(dict.fromkeys(found))


def _uncommented(line: str) -> str:
    return re.sub(r"(^|\s)#\s.*$", "", line).strip()
