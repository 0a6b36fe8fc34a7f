"""Incident files: written whole or not at all, private, read back with errors that say what is wrong."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hangwatch.errors import HangwatchError
from hangwatch.model import SCHEMA, Incident
from hangwatch.report import html, versions
from hangwatch.wire import codec

_NAME = re.compile(r"incident-\d{8}T\d{6}Z-[\w.-]+\.json")


class ReportError(HangwatchError):
    """A report that cannot be written or read."""


@dataclass(frozen=True)
class Written:
    """What came of writing an incident: the files that now stand, and why one of them does not."""

    json_path: Path | None
    html_path: Path | None
    error: ReportError | None = None

    @property
    def best(self) -> Path | None:
        """The file that a person should open."""
        return self.html_path or self.json_path


def name(incident: Incident) -> str:
    """incident-20261120T193000Z-3f2a, without an ending. The same for every version of one incident."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(incident.opened_at))
    return f"incident-{stamp}-{re.sub(r'[^0-9A-Za-z_-]', '_', incident.id) or 'x'}"


def write(incident: Incident, report_dir: Path | str) -> Written:
    """Write the incident as JSON and HTML, replacing earlier versions of it.

    JSON comes first: if the disk fills up between the two, the evidence is there. What cannot be written is
    told in the result, not raised: the verdict must still reach the terminal.
    """
    directory, stem = Path(report_dir), name(incident)
    json_path, html_path = directory / f"{stem}.json", directory / f"{stem}.html"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(json_path, codec.dumps(incident, indent=1) + "\n")
    except OSError as error:
        return Written(None, None, _unwritable(directory, error))
    try:
        _replace(html_path, html.page(incident))
    except OSError as error:
        return Written(json_path, None, _unwritable(html_path, error))
    return Written(json_path, html_path)


def write_text(path: Path, text: str) -> None:
    """Write a private file, whole or not at all. Raises ReportError."""
    try:
        _replace(path, text)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_named(path: Path, text: str) -> None:
    """Write to what a user has named: a file as `write_text` does, a pipe or a device into it. Raises ReportError.

    Never a new file in the place of a device: by renaming, `--json /dev/null` of root would take it from the machine.
    """
    try:
        of_the_system = str(path.absolute()).startswith(("/dev/", "/proc/"))  # /dev/stdout may lead to a file
        if path.exists() and (of_the_system or not path.is_file()):
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise _unwritable(path, error, "name another file") from error


def _replace(path: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the renaming last. Some network file systems cannot, and then it lasts when they say so."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError, elsewhere: str = "choose another place (--report-dir)") -> ReportError:
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        reason = f"there is no folder {path.parent}"
    return ReportError(f"cannot write {path}: {reason}; mend that or {elsewhere}")


def latest(report_dir: Path | str) -> Path | None:
    """The JSON file of the newest incident, None where there is none."""
    try:
        found = [path for path in Path(report_dir).iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return None
    return max(found, key=_age, default=None)


def _age(path: Path) -> tuple[str, float]:
    """The time in the name orders incidents; within one second the file's own time does."""
    try:
        changed = path.stat().st_mtime
    except OSError:
        changed = 0.0
    return path.name.split("-")[1], changed


def read(path: Path | str) -> Incident:
    """The incident in a file, of this format or an earlier one. Fields of a newer hangwatch are passed over.

    Raises ReportError.
    """
    path = Path(path)
    if path.suffix == ".html":
        raise ReportError(_not_the_page(path))
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ReportError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    return parse(text, str(path))


def _not_the_page(path: Path) -> str:
    beside = path.with_suffix(".json")
    if beside.exists():
        return f"{path} is the report as a page; the report itself is {beside}"
    return f"{path} is the report as a page; the report itself, {beside.name}, is not beside it"


def parse(text: bytes, source: str) -> Incident:
    """The incident in a text; `source` names it in errors. Raises ReportError."""
    if not text.strip():
        raise ReportError(f"{source} is empty: its writing was cut off")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{source} is cut off or not JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in versions.READABLE:
        raise ReportError(f"{source} {_other_version(schema)}")
    try:
        return codec.decode(Incident, versions.upgraded(document), lenient=True)
    except codec.WireError as error:
        raise ReportError(f"{source} is not a whole incident report: {error}") from error


def _other_version(schema: object) -> str:
    kind, _, version = SCHEMA.rpartition("/")
    if isinstance(schema, str) and schema.startswith(f"{kind}/"):
        theirs = schema.rpartition("/")[2]
        return f"has format {theirs}, this hangwatch reads format {version}; use the version that wrote it"
    return f"is not an incident report of hangwatch (no schema {kind!r} in it)"
