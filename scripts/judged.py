"""Reports of real programs whose truth is known: tests/judged/, read and added to."""

from __future__ import annotations

import json
import lzma
import tomllib
from dataclasses import dataclass
from pathlib import Path

from hangwatch.model import Incident
from hangwatch.report import files
from hangwatch.wire import codec

FOLDER = Path(__file__).parent.parent / "tests" / "judged"
TRUTH = "truth.toml"
ENDING = ".json.xz"


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
    try:
        document = tomllib.loads((folder / TRUTH).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [_truth(name, said) for name, said in sorted(document.items())]


def _truth(name: str, said: dict[str, object]) -> Truth:
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    return Truth(name, **lists)  # type: ignore[arg-type]  # the test of the corpus reads all of them


def incident(name: str, folder: Path = FOLDER) -> Incident:
    """The report of one program. Raises ReportError and OSError."""
    path = folder / f"{name}{ENDING}"
    return files.parse(lzma.decompress(path.read_bytes()), str(path))


def keep(kept: Incident, truth: Truth, folder: Path = FOLDER) -> Path:
    """Adds a report and what is true of it. Raises FileExistsError where the name is taken."""
    path = folder / f"{truth.name}{ENDING}"
    text = codec.dumps(kept).encode(errors="backslashreplace")
    with path.open("xb") as file:
        file.write(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    with (folder / TRUTH).open("a", encoding="utf-8") as file:
        file.write(_entry(truth))
    return path


def drop(name: str, folder: Path = FOLDER) -> None:
    """Forgets a report and what is true of it, if it is kept."""
    (folder / f"{name}{ENDING}").unlink(missing_ok=True)
    others = [truth for truth in truths(folder) if truth.name != name]
    (folder / TRUTH).write_text("".join(map(_entry, others)).lstrip("\n"), encoding="utf-8")


def _entry(truth: Truth) -> str:
    """A string of JSON is one of TOML, and so is a list of strings or numbers."""
    said = {key: value for key, value in vars(truth).items() if key != "name"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in said.items() if value != ""]
    return "\n".join(["", f"[{truth.name}]", *lines, ""])
