"""A page for each cause, made of docs/causes.md, the catalogue, the gallery and what hangwatch really said."""

from __future__ import annotations

import re
from pathlib import Path

from hangwatch.catalogue import BY_ID, Cause
from hangwatch.commands.demo import sentence
from hangwatch.gallery import Case, cases

SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
TO_DO = "**What to do.**"
NO_REPORT = """\
No report is shown: no script of the gallery makes this happen. The diagnosis is tested on evidence that is made up.
"""


def listed(causes: str) -> str:
    """docs/causes.md with each section cut to its sentence and the link to its page; headings stay, as anchors."""
    return SECTION.sub(_entry, causes)


def _entry(found: re.Match[str]) -> str:
    cause = BY_ID[found[1]]
    return f"### {cause.id}\n\n**{cause.title}.** {cause.explanation} [What to do](causes/{cause.id}.md)\n\n"


def pages(causes: str, reports: Path | None = None) -> dict[str, str]:
    """The pages by the causes' ids, in the order of docs/causes.md."""
    return {name: _page(BY_ID[name], text, reports) for name, text in SECTION.findall(causes)}


def _page(cause: Cause, section: str, reports: Path | None) -> str:
    told, _, to_do = section.partition(TO_DO)
    told = told.partition("\n\n")[2] if told.lstrip().startswith("**") else told
    parts = [
        f"---\ntitle: {cause.id}\n---\n\n# {cause.title}",
        f"`{cause.id}`: {cause.explanation}",
        f"## What hangwatch says\n\n{_report(cause, reports)}",
        f"## What do I do now\n\n{_turned(to_do.strip())}",
        f"## How it is told from others\n\n{_turned(_bullets(told))}",
        _scripts(cause),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _bullets(told: str) -> str:
    """The bullets of a section, without what stands before the first."""
    return told[told.index("- *") :].strip()


def shown(cause: str) -> Case | None:
    """The case of the gallery whose report stands on the page; one that only waits has none."""
    return next((case for case in cases(cause) if case.status != "waiting"), None)


def _report(cause: Cause, reports: Path | None) -> str:
    case, file = shown(cause.id), reports and reports / f"{cause.id}.txt"
    if case is None:
        return NO_REPORT
    if not file or not file.is_file():
        return f"`hangwatch demo {case.name}` shows it.\n"
    said = file.read_text(encoding="utf-8").rstrip()
    return f"The real report of `hangwatch demo {case.name}`:\n\n```text\n{said}\n```\n"


def _turned(text: str) -> str:
    """Links of docs/causes.md, as seen from a page in a folder of its own."""
    text = re.sub(r"\]\((?!https?:)([^#)]+\.md)", r"](../\1", text)
    return re.sub(r"\]\(#([\w-]+)\)", _inward, text)


def _inward(link: re.Match[str]) -> str:
    """Another cause's section is a page; other headings stay where they are."""
    return f"]({link[1]}.md)" if link[1] in BY_ID else f"](../causes.md#{link[1]})"


def _scripts(cause: Cause) -> str:
    found = dict.fromkeys(f"- `{case.script}`: {sentence(case)}" for case in cases(cause.id))
    if not found:
        return ""
    return f"## See it on your machine\n\n```sh\nhangwatch demo {cause.id}\n```\n\n" + "\n".join(found)
