"""Keeps a report of a real program in tests/judged/: `python -m scripts.keep_report REPORT NAME --about ...`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from hangwatch.catalogue import BY_ID
from hangwatch.report import files
from hangwatch.report.files import ReportError
from scripts import judged


def main(arguments: list[str] | None = None, folder: Path = judged.FOLDER) -> str | None:
    """Returns what was wrong, None if the report is kept."""
    given = _options().parse_args(arguments)
    unknown = sorted(set(given.causes) - set(BY_ID))
    if unknown:
        return f"no such cause: {', '.join(unknown)}"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", given.name):
        return f"{given.name}: a name is of small letters, digits and single dashes"
    truth = judged.Truth(given.name, given.about, tuple(given.causes), tuple(sorted(given.ranks)), given.line)
    try:
        print(judged.keep(files.read(given.report), truth, folder))
    except FileExistsError:
        return f"{given.name} is kept already; choose another name, or remove its two files"
    except ReportError as error:
        return str(error)
    return None


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="keep a report of a real program among those that guard the rules")
    parser.add_argument("report", type=Path)
    parser.add_argument("name", help="small letters and dashes: what the program does wrong")
    parser.add_argument("--about", required=True, help="the same as a sentence")
    parser.add_argument("--causes", required=True, nargs="+", metavar="ID", help="those that an expert would accept")
    parser.add_argument("--ranks", default=[], nargs="*", type=int, metavar="RANK", help="the culprits")
    parser.add_argument("--line", default="", help="the place that the verdict must name: train.py:61")
    return parser


if __name__ == "__main__":
    sys.exit(main())
