"""What today's rules say of the evidence in stored reports: `python -m scripts.rejudge FOLDER_OR_FILE ...`.

A report holds all evidence that its verdict was made from. Before and after a change of the diagnosis, a folder full of
reports of real jobs shows which verdicts it changes. A report of an older hangwatch may be judged otherwise for good
reasons: compare two runs, not a run with what the reports said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hangwatch import words
from hangwatch.judge import diagnose
from hangwatch.model import Verdict
from hangwatch.report import files
from hangwatch.report.files import ReportError
from hangwatch.report.incident import snapshot_of


def main(arguments: list[str] | None = None) -> int:
    """Prints a line for each report, to be kept and compared. Returns 1 if none could be read."""
    parser = argparse.ArgumentParser(description="judge the evidence of stored reports again")
    parser.add_argument("reports", nargs="+", type=Path, metavar="FOLDER_OR_FILE")
    count = 0
    for path in _reports(parser.parse_args(arguments).reports):
        try:
            incident = files.read(path)
        except ReportError as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        count += 1
        then, now = _told(incident.verdict), _told(diagnose(snapshot_of([incident])).verdict)
        print(f"{path}: {now}" if now == then else f"{path}: {now} (the report said: {then})")
    print(words.plural(count, "report"), file=sys.stderr)
    return 0 if count else 1


def _reports(given: Iterable[Path]) -> Iterator[Path]:
    for path in given:
        yield from sorted(path.rglob("incident-*.json")) if path.is_dir() else [path]


def _told(verdict: Verdict) -> str:
    ranks = sorted(verdict.blamed)
    return f"{verdict.cause}, {verdict.certainty}{f', {words.ranks(ranks)}' if ranks else ''}"


if __name__ == "__main__":
    sys.exit(main())
