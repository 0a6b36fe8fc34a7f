"""Secrets out of command lines, environment values and log lines: they leave the machine in reports.

Taken for a secret: options and variables whose name says so, tokens with a known shape, userinfo in URLs. Too
much redacted is a nuisance, too little is a leak: in doubt it goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "[redacted]"

_NAME = (
    r"(?:[\w.-]*(?:passw(?:or)?d|passphrase|secret|token(?!iz)|credential|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|auth(?!or)|cookie|dsn|webhook)[\w.-]*|[\w.-]*[_-](?:key|pass|pwd|pat)|key|pwd)"
)
_SECRET_NAME = re.compile(rf"-*{_NAME}", re.IGNORECASE)
_COUNTED = re.compile(
    r"-*[\w.-]*(?:(?:num|max|min|n|total)[_-]tokens|tokens[_-]per[\w.-]*|tokens|token[_-](?:len|length|count|id|ids|dim)"
    r"|[\w.-]*[_-](?:dir|file|path|size))",
    re.IGNORECASE,
)  # `--max-tokens 2048` is a figure, `--token-file f` a place
_ASSIGNED = re.compile(rf"""(?<![\w.-])(-*{_NAME})(["']?\s*[=:]\s*["']?)([^\s"',;&}}]+)""", re.IGNORECASE)
_OPTION = re.compile(rf"(?<!\S)(--?{_NAME})(\s+)(?!-)(\S+)", re.IGNORECASE)
_HEADER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)(?:[^\s/@:]+:[^\s@]+|[^\s/@]+)@")
_SHAPES = re.compile(
    r"""\b(?:
        hf_[A-Za-z0-9]{16,}                         # Hugging Face
      | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}         # AWS access key id
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,}
      | glpat-[\w-]{16,}
      | sk-[\w-]{16,}                               # OpenAI and those who copied it
      | xox[abeprs]-[\w-]{10,}                      # Slack
      | AIza[\w-]{30,}                              # Google
      | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*             # JSON web token
      | wandb_v\d_\w{16,}
      | [0-9a-f]{40}(?![0-9a-f])                    # wandb key; a git hash looks the same, and goes too
    )""",
    re.VERBOSE,
)


def redact_text(text: str) -> str:
    """A text with everything replaced that looks like a secret."""
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    text = _HEADER.sub(rf"\1 {HIDDEN}", text)
    text = _ASSIGNED.sub(_unless_counted, text)
    text = _OPTION.sub(_unless_counted, text)
    return _SHAPES.sub(HIDDEN, text)


def redact_command(arguments: Sequence[str]) -> str:
    """A command line as one text. `--token X` and `--token=X` both lose X, whatever blanks X holds."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        is_option = argument.startswith("-")
        shown.append(HIDDEN if hide_next and not is_option else _argument(argument))
        hide_next = is_option and "=" not in argument and is_secret_name(argument)
    return " ".join(shown)


def _argument(argument: str) -> str:
    name, equals, _ = argument.partition("=")
    return f"{name}={HIDDEN}" if equals and is_secret_name(name) else redact_text(argument)


def redact_environment(values: Mapping[str, str]) -> dict[str, str]:
    """An environment with the values of secrets replaced, by name and by shape."""
    return {name: HIDDEN if value and is_secret_name(name) else redact_text(value) for name, value in values.items()}


def is_secret_name(name: str) -> bool:
    """Whether an option's or variable's name says that its value is a secret."""
    return bool(_SECRET_NAME.fullmatch(name)) and not _COUNTED.fullmatch(name)


def _unless_counted(match: re.Match[str]) -> str:
    return match[0] if _COUNTED.fullmatch(match[1]) else f"{match[1]}{match[2]}{HIDDEN}"
