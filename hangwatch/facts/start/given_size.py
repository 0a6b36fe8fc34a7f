"""The world size that the program gives to init_process_group itself, whatever its launcher says."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Frame
from hangwatch.ranks.view import RankView

_CALL = "init_process_group("
_SIZE = re.compile(r"\bworld_size\s*=(?!=)\s*([^,()\n]+(?:\([^()\n]*\))?)")


def given_size(case: Case, where: Frame | None) -> str:
    """What the quoted line at `where` gives as `world_size=`: "5", "args.replicas"; "" where it gives none."""
    if where is None:
        return ""
    quoted = next((each for each in case.snapshot.excerpts if (each.file, each.line) == where.source_line), None)
    if quoted is None:
        return ""
    _, call, arguments = "\n".join(quoted.lines[quoted.line - quoted.first :]).partition(_CALL)
    found = _SIZE.search(_up_to_its_end(arguments)) if call else None
    return found[1].strip() if found is not None else ""


def launchers_size(view: RankView) -> int | None:
    """The WORLD_SIZE in the environment of a rank's process; None where it has none."""
    text = view.evidence.process.environment.get("WORLD_SIZE", "") if view.evidence.process is not None else ""
    return int(text) if text.isdecimal() else None


def size_sentence(case: Case, view: RankView) -> str:
    """`init_process_group (train.py:7) is given world_size=5, and WORLD_SIZE is 4`; "" where neither is known."""
    size, by_launcher = given_size(case, view.where), launchers_size(view)
    told = f", and WORLD_SIZE is {by_launcher}" if by_launcher is not None else ""
    if size:
        value = "" if size == str(case.size) else f", which is {case.size}"
        return f"init_process_group{words.at(view.where)} is given world_size={size}{value}{told}"
    if by_launcher in (None, case.size):
        return ""
    return f"WORLD_SIZE is {by_launcher}: the program itself gives init_process_group another world size, {case.size}"


def _up_to_its_end(arguments: str) -> str:
    """The arguments of a call, from behind its parenthesis to that which closes it."""
    depth = 1
    for at, character in enumerate(arguments):
        depth += (character in "([{") - (character in ")]}")
        if not depth:
            return arguments[:at]
    return arguments
