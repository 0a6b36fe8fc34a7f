"""Reports of real programs whose truth is known: tests/judged/, read and added to."""

from __future__ import annotations

import json
import lzma
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from hangwatch.model import Incident
from hangwatch.report import files
from hangwatch.wire import codec

FOLDER = Path(__file__).parent.parent / "tests" / "judged"
ENDING = ".json.xz"
TRUTH = ".toml"
LINK = re.compile(rb"\(https?://[^)\s]*\)")  # in what a program printed: it may name a host that no file here names


@dataclass(frozen=True)
class Truth:
    """What is true of one program, by its `name`.

    Attributes:
        about: what the program does wrong.
        causes: the ids of the causes that an expert would accept.
        ranks: the culprits; empty where the cause has none.
        line: the place that the verdict must name ("train.py:61"), "" for any.
        known_wrong: why today's verdict is another, "" where it is right.
    """

    name: str
    about: str
    causes: tuple[str, ...]
    ranks: tuple[int, ...]
    line: str = ""
    known_wrong: str = ""


def truths(folder: Path = FOLDER) -> list[Truth]:
    """All that are kept, by name."""
    return [_truth(path) for path in sorted(folder.glob(f"*{TRUTH}"))]


def _truth(path: Path) -> Truth:
    name, said = path.name.removesuffix(TRUTH), tomllib.loads(path.read_text(encoding="utf-8"))
    causes, ranks = tuple(said.pop("causes")), tuple(said.pop("ranks"))
    return Truth(name, causes=causes, ranks=ranks, **said)


def incident(name: str, folder: Path = FOLDER) -> Incident:
    """The report of one program. Raises ReportError and OSError."""
    path = folder / f"{name}{ENDING}"
    return files.parse(lzma.decompress(path.read_bytes()), str(path))


def keep(kept: Incident, truth: Truth, folder: Path = FOLDER) -> Path:
    """Adds a report, and what is true of it beside it. Raises FileExistsError where the name is taken."""
    path = folder / f"{truth.name}{ENDING}"
    text = LINK.sub(b"()", codec.dumps(kept).encode(errors="backslashreplace"))
    with path.open("xb") as file:
        file.write(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    (folder / f"{truth.name}{TRUTH}").write_text(_text(truth), encoding="utf-8")
    return path


def drop(name: str, folder: Path = FOLDER) -> None:
    """Forgets a report and what is true of it, if it is kept."""
    for ending in (ENDING, TRUTH):
        (folder / f"{name}{ending}").unlink(missing_ok=True)


def _text(truth: Truth) -> str:
    """A string of JSON is one of TOML, and so is a list of strings or numbers."""
    said = {key: value for key, value in vars(truth).items() if key != "name" and value != ""}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items())
