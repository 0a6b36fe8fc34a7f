"""Secrets out of command lines, environment values, messages and log lines: they leave the machine in reports.

Taken for a secret: options and variables whose name says so, what a sentence calls a password, tokens with a known
shape, userinfo and signatures in URLs, addresses of webhooks, private keys. Too much redacted is a nuisance, too little
is a leak: in doubt it goes.

Every repetition that can fail is bounded, so that no text takes longer than in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from hangwatch_agent.shared import passwords
from hangwatch_agent.shared.passwords import HIDDEN
from hangwatch_agent.shared.secret_shapes import SECRET_SHAPES, is_revision

_SECRET_NAME = re.compile(
    r"""-*(?:
        [\w.-]*(?:passw(?:or)?d|passphrase|secret|token(?!iz)|credential|api[_-]?key|access[_-]?key|private[_-]?key
            |account[_-]?key|shared[_-]?key|auth(?!or)|cookie|dsn|webhook|signature|connection[_-]?string)[\w.-]*
      | [\w.-]*[_-](?:key|pass|pwd|pat|sig) | key | pwd | sig | pat
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_COUNTED = re.compile(
    r"-*[\w.-]*(?:(?:num|max|min|n|total)[_-]tokens|tokens[_-]per[\w.-]*|tokens|token[_-](?:len|length|count|id|ids|dim)"
    r"|[\w.-]*[_-](?:dir|file|path|size))",
    re.IGNORECASE,
)  # `--max-tokens 2048` is a figure, `--token-file f` a place
_LONGEST_NAME = 80
_NAME = rf"[\w.-]{{1,{_LONGEST_NAME}}}"
_ASSIGNED = re.compile(rf"""(?<![\w.-])({_NAME})["']?\s{{0,20}}[=:]\s{{0,20}}""")
_FUNCTION = re.compile(r"lambda\b[^:\n]{0,100}:")  # of `sorted(found, key=lambda each: each.size)`
_VALUE = re.compile(r"""(["'])(?:(?!\1)[^\n]){0,500}\1|["']?[^\s"',;&}]+""")
# Its value stands behind a blank, in quotes or not; in a list that Python has printed, behind a comma too.
_OPTION = re.compile(
    rf"""(?<![^\s"'\[(,])(--?{_NAME})(["']?,?\s{{1,20}})(?!["']?-)(?:(["'])(?:(?!\3)[^\n]){{0,500}}\3|\S+)"""
)
_LOGIN_OPTIONS = ("-u", "-U", "--user", "--proxy-user")
_LOGIN = re.compile(r"(?<!\S)(-[uU]|--user|--proxy-user)([= ]{0,3}[\"']?)([^\s:\"'=]{1,100}):(\S+)")
_OWNER = re.compile(r"\d{1,10}:\d{1,10}")  # `docker run -u 1000:1000`
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")  # where `str.splitlines` ends a line
_BLANK = re.compile(r"\s")
Replacement = str | Callable[[re.Match[str]], str]
_PATTERNS: tuple[tuple[re.Pattern[str], Replacement], ...] = (
    # The body of a key, to its end or to that of the text, and the lines of one whose head has been cut off.
    (re.compile(r"(-----BEGIN [^\n-]{1,60}-----)(?:(?!-----END )[\s\S])*"), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"""^([ \t]{0,40}["']?)(?![0-9a-f]{64})[A-Za-z0-9+/]{64}(?=(?:\\n)?["']?,?[ \t]{0,40}$)""", re.MULTILINE
        ),
        rf"\1{HIDDEN}",
    ),
    # user:password@ and token@ in addresses.
    (re.compile(r"(?<=://)(?:[^\s/@:]{0,200}:[^\s@]{1,300}|[^\s/@]{1,300})@"), f"{HIDDEN}@"),
    # The address of a webhook is enough to post there.
    (
        re.compile(
            r"""((?:hooks\.slack\.com/(?:services|workflows|triggers)
            |://[^\s/"']{1,200}/(?:[^\s/"'?]{1,100}/){0,6}(?:webhook\w{0,10}|hooks)
            )/)[^\s"'<>]+""",
            re.VERBOSE | re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(
            r"""\b(authorization["']?\s{0,5}[:=]\s{0,5}["']?)(?:(?:bearer|basic|token|digest|negotiate|apikey)\s{1,5})?"""
            r"""[^\s"',;]+""",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\b(bearer)\s{1,20}[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # "basic training" is none: what is encoded has a digit, a `=` or a capital in its midst.
    (
        re.compile(r"\b(basic)\s{1,20}(?=\S{0,100}(?:[\d=]|(?-i:[a-z][A-Z])))[\w+/=-]{8,}", re.IGNORECASE),
        rf"\1 {HIDDEN}",
    ),
    (
        re.compile(
            r"""\b(basic(?:\s{1,3}auth\w{0,12})?\s{1,3}(?:(?:as|for|with|user)\s{1,3})?["']?[^\s:"']{1,60}:)"""
            r"""[^\s"']+""",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\b(login\s{1,5}\S{1,100}\s{1,5}password\s{1,5})\S+"), rf"\1{HIDDEN}"),  # .netrc
)


MOST_PASSES = 4


def redact_text(text: str) -> str:
    """A text with everything replaced that looks like a secret.

    Again, as long as that changes it: what is replaced may have stood before another secret, whose name it took along.
    """
    for _ in range(MOST_PASSES):
        before, text = text, _redacted(text)
        if text == before:
            break
    return text


def _redacted(text: str) -> str:
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    text = _LOGIN.sub(_without_password, text)
    text = _without_assigned(text)
    text = _OPTION.sub(_without_value, text)
    text = passwords.of_programs(passwords.in_sentences(text))
    return SECRET_SHAPES.sub(_without_shape, text)


def redact_command(arguments: Sequence[str]) -> str:
    """A command line as one line. `--token X` and `--token=X` both lose X, whatever blanks X holds."""
    shown: list[str] = []
    option = ""
    for argument in arguments:
        is_option = argument.startswith("-")
        shown.append(_argument(argument) if is_option or not option else _operand(option, argument))
        option = argument if is_option and "=" not in argument else ""
    # An argument stays one word, whatever blanks it holds: no process has an argument with a NUL in it.
    words = " ".join(_BLANK.sub("\0", one_line(each.replace("\0", " "))) for each in shown)
    return passwords.of_programs(words).replace("\0", " ")


def one_line(text: str) -> str:
    """A text with a blank in place of each line break: `python -c` has whole programs in its command line."""
    return _BREAK.sub(" ", text)


def _argument(argument: str) -> str:
    name, equals, _ = argument.partition("=")
    return f"{name}={HIDDEN}" if equals and is_secret_name(name) else redact_text(argument)


def _operand(option: str, argument: str) -> str:
    """What stands behind an option."""
    if is_secret_name(option):
        return HIDDEN
    user, colon, _ = argument.partition(":")
    if option in _LOGIN_OPTIONS and colon and "//" not in argument and not _OWNER.fullmatch(argument):
        return f"{redact_text(user)}:{HIDDEN}"
    return _argument(argument)


def redact_environment(values: Mapping[str, str]) -> dict[str, str]:
    """An environment with the values of secrets replaced, by name and by shape."""
    return {name: HIDDEN if value and is_secret_name(name) else redact_text(value) for name, value in values.items()}


def is_secret_name(name: str) -> bool:
    """Whether an option's or variable's name says that its value is a secret."""
    name = name[-_LONGEST_NAME:]
    return bool(_SECRET_NAME.fullmatch(name)) and not _COUNTED.fullmatch(name)


def _without_assigned(text: str) -> str:
    """Values of secret names: `name=value`, `"name": "value"`."""
    parts, end = [], 0
    for found in _ASSIGNED.finditer(text):
        if found.start() < end or not is_secret_name(found[1]) or _FUNCTION.match(text, found.end()):
            continue
        if value := _VALUE.match(text, found.end()):
            quote = value[1] or ""
            parts += [text[end : found.end()], quote, HIDDEN, quote]
            end = value.end()
    return "".join((*parts, text[end:]))


def _without_password(match: re.Match[str]) -> str:
    if match[4].startswith("//") or _OWNER.fullmatch(f"{match[3]}:{match[4]}"):
        return match[0]
    return f"{match[1]}{match[2]}{match[3]}:{HIDDEN}"


def _without_value(match: re.Match[str]) -> str:
    quote = match[3] or ""
    return f"{match[1]}{match[2]}{quote}{HIDDEN}{quote}" if is_secret_name(match[1]) else match[0]


def _without_shape(match: re.Match[str]) -> str:
    return match[0] if is_revision(match) else HIDDEN
