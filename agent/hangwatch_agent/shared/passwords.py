"""Passwords that no name of an option tells: short options of some programs, and what a sentence calls a password."""

from __future__ import annotations

import re

HIDDEN = "[redacted]"

_ARGUMENTS = r"(?:\s[^\n;|&]{0,300}?)?\s"  # what may stand between the program and the option
_OF_PROGRAMS = re.compile(
    rf"""\b(
        (?:mysql|mariadb)[\w-]{{0,20}}{_ARGUMENTS}-p(?=\S)  # `-p NAME` asks for the password of a data base
      | (?:sshpass|mongo\w{{0,10}}|(?:docker|podman)\slogin){_ARGUMENTS}-p\s{{0,5}}
      | redis-cli{_ARGUMENTS}-a\s{{0,5}}
      | ldap\w{{2,10}}{_ARGUMENTS}-w\s{{0,5}}
    )\S+""",
    re.VERBOSE,
)
_SAID = re.compile(
    r"""\b(?P<head>(?:(?P<password>pass(?:word|phrase|code|wd)|pwd)|secret|token|(?:api|access)[ ]key)
        (?:\s{1,3}(?:for|of)\s{1,3}\S{1,60})?
        (?P<verb>\s{1,3}(?:is|was)(?:\s{1,3}set)?(?:\s{1,3}to)?)?
        \s{1,3}["'`]?)(?P<value>[^\s"'`]{1,200})""",
    re.IGNORECASE | re.VERBOSE,
)
# What a sentence says of a password, and not what it is.
_REMARKS = frozenset(
    [
        "a",
        "accepted",
        "already",
        "also",
        "always",
        "an",
        "at",
        "being",
        "by",
        "changed",
        "checked",
        "chosen",
        "correct",
        "default",
        "deprecated",
        "different",
        "disabled",
        "empty",
        "enabled",
        "encrypted",
        "expired",
        "false",
        "first",
        "for",
        "from",
        "generated",
        "given",
        "hashed",
        "hidden",
        "ignored",
        "in",
        "incorrect",
        "invalid",
        "it",
        "kept",
        "known",
        "left",
        "longer",
        "mandatory",
        "missing",
        "needed",
        "never",
        "no",
        "none",
        "not",
        "now",
        "null",
        "obsolete",
        "of",
        "ok",
        "on",
        "only",
        "optional",
        "out",
        "passed",
        "prompted",
        "read",
        "rejected",
        "required",
        "reset",
        "same",
        "saved",
        "sent",
        "set",
        "shared",
        "shorter",
        "shown",
        "still",
        "stored",
        "supported",
        "taken",
        "the",
        "to",
        "too",
        "true",
        "undefined",
        "unknown",
        "unset",
        "unsupported",
        "used",
        "valid",
        "wrong",
        "your",
    ]
)


def of_programs(text: str) -> str:
    """A text without the passwords in command lines such as `mysql -pSECRET` and `redis-cli -a SECRET`."""
    return _OF_PROGRAMS.sub(rf"\1{HIDDEN}", text)


def in_sentences(text: str) -> str:
    """A text without what it calls a password: "the password is SECRET", "with password SECRET"."""
    return _SAID.sub(_without_said, text)


def _without_said(match: re.Match[str]) -> str:
    value = match["value"].rstrip(".,;:!?)")
    told = match["password"] and match["verb"] and value.lower() not in _REMARKS
    end = match["value"][len(value) :]
    return f"{match['head']}{HIDDEN}{end}" if value and (told or _is_made_up(value)) else match[0]


def _is_made_up(value: str) -> bool:
    """Not a word, a number or a path, as what follows the noun "token" mostly is."""
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return mixed and len(value) >= 6 and value[0] not in "/.<[(" and "=" not in value
